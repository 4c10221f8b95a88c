// People at work while servers die: each opens a session, asks for this and that, decides what is asked back, stops what takes too long,
// takes up what was set aside, and opens the next one. What was acknowledged to them is written down.
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Facts } from '../support/checker.ts'
import type { Random } from '../support/random.ts'
import { createCaller } from './caller.ts'
import * as calls from './calls.ts'
import { type Watcher, watch } from './watcher.ts'

export interface People {
  /** Sessions that were acknowledged. */
  sessionIds: readonly string[]
  admitted: Facts['admitted']
  /** What should not have happened, as they saw it. */
  complaints: readonly string[]
  counts: Record<string, number>
  /** How many answers they have got by now. */
  answers(): number
  /** For how long the one who waits longest for a session to come to rest has waited, in ms. */
  longestWaitMs(): number
  /** They finish what they are asking and leave, in the middle of whatever runs. */
  stop(): Promise<void>
  /** After all: decides and resolves what is open, asks for one last answer, and waits until the session is idle. */
  lastWord(sessionId: string): Promise<void>
}

const restMsMax = 90_000
const lookMs = 150

type Now = {
  seq: number
  status: string
  parkedReason: string | null
  execution: { id: string } | null
  interactions: { id: string; kind: string }[]
}

export function startPeople(urls: () => string[], count: number, chance: Random): People {
  const { call, retries, answers } = createCaller(urls)
  const sessionIds: string[] = []
  const admitted: { sessionId: string; messageId: string; text: string }[] = []
  const complaints: string[] = []
  const counts: Record<string, number> = {}
  let stopped = false
  const waits = new Set<number>()
  const counted = (what: string, by = 1) => {
    counts[what] = (counts[what] ?? 0) + by
  }

  async function admit(sessionId: string, text: string, delivery = 'STEER', resume = true): Promise<void> {
    const messageId = `msg_${randomUUID()}`
    const variables = { s: sessionId, m: messageId, t: text, d: delivery, resume }
    // Now and then somebody clicks twice.
    const sent = await Promise.all(
      Array.from({ length: chance.chance(0.1) ? 2 : 1 }, () => call(calls.admitPrompt, variables)),
    )
    for (const { admitPrompt: answer } of sent)
      if (answer.__typename !== 'PromptAdmission' || answer.input.id !== messageId || answer.input.text !== text)
        complaints.push(`${sessionId}: ${messageId} was answered ${JSON.stringify(answer)}`)
    admitted.push({ sessionId, messageId, text })
    counted('admissions')
  }

  const now = async (sessionId: string): Promise<Now> => {
    const { session } = await call(calls.sessionNow, { s: sessionId })
    if (session === null) throw new Error(`${sessionId} is gone`)
    return session
  }

  async function decide(interaction: { id: string; kind: string }, mayStop: boolean): Promise<void> {
    const i = interaction.id
    if (interaction.kind === 'QUESTION') {
      const dismisses = mayStop && chance.chance(0.2)
      counted(dismisses ? 'questions dismissed' : 'questions answered')
      await call(dismisses ? calls.dismissQuestion : calls.answerQuestion, { i })
      return
    }
    const d = chance.of(['APPROVE', 'APPROVE', 'DECLINE_AND_CONTINUE', mayStop ? 'DECLINE_AND_STOP' : 'APPROVE'])
    counted(`decided ${d}`)
    await call(calls.decideApproval, { i, d })
  }

  async function takeUp(sessionId: string): Promise<void> {
    if (chance.chance(0.4)) {
      counted('quarantines stopped again')
      await call(calls.interruptSession, { s: sessionId })
      return
    }
    for (let after: string | null = null, more = true; more; ) {
      const { quarantine } = await call(calls.openQuarantine, { after })
      for (const { node } of quarantine.edges) {
        if (node.session.id !== sessionId) continue
        const a = chance.of(['RETRY', 'DISCARD'])
        counted(`quarantines resolved ${a}`)
        await call(calls.resolveQuarantine, { q: node.id, a })
      }
      more = quarantine.pageInfo.hasNextPage
      after = quarantine.pageInfo.endCursor
    }
  }

  /** Waits until the session is idle, and does what it asks for. */
  async function toRest(sessionId: string, isOver: () => boolean, mayStop = true): Promise<void> {
    const begun = performance.now()
    waits.add(begun)
    try {
      await untilRest(sessionId, isOver, mayStop, Date.now() + restMsMax)
    } finally {
      waits.delete(begun)
    }
  }

  async function untilRest(sessionId: string, isOver: () => boolean, mayStop: boolean, deadline: number) {
    while (!isOver()) {
      const { seq, status, parkedReason, interactions } = await now(sessionId)
      if (status === 'IDLE') return
      if (status === 'WAITING') for (const each of interactions) await decide(each, mayStop)
      else if (status === 'QUARANTINED') await takeUp(sessionId)
      else if (status === 'PARKED') {
        counted('parked and resumed')
        if (!parkedReason) complaints.push(`${sessionId}: parked without a reason`)
        await call(calls.resumeSession, { s: sessionId, seq })
      }
      if (Date.now() > deadline) {
        complaints.push(`${sessionId}: still ${status} after ${restMsMax} ms`)
        return
      }
      await sleep(lookMs)
    }
  }

  const wait = (least: number, most: number) => sleep(chance.from(least, most))
  const tool = (name: string) => `/tool ${name} {"beforeMs":${chance.from(0, 200)},"afterMs":${chance.from(0, 200)}}`
  const slow = () => `/slow ${chance.from(20, 80)} ${'one two three four five six '.repeat(chance.from(1, 3)).trim()}`

  /** Stops what runs, as a button does it that knows which execution it shows. */
  async function stopIt(sessionId: string): Promise<void> {
    const { execution } = await now(sessionId)
    const { interruptSession } = await call(calls.interruptSession, { s: sessionId, x: execution?.id ?? null })
    counted(interruptSession.interrupted ? 'interrupted' : 'interrupts that came too late')
  }

  const turns: ((sessionId: string) => Promise<void>)[] = [
    (s) => admit(s, `/length ${chance.from(5, 60)}`),
    (s) => admit(s, slow()),
    (s) => admit(s, tool('effect')),
    (s) => admit(s, `${tool('effect')} ${tool('effect')}`),
    (s) => admit(s, tool('guarded')),
    (s) => admit(s, `${tool('guarded')} ${tool('effect')}`),
    (s) => admit(s, '/tool ask_user {"question":"Which colour?","options":["red","blue"]}'),
    (s) => admit(s, '/fail mid 1'),
    async (s) => {
      await admit(s, slow())
      await wait(0, 400)
      await admit(s, 'and this, at once')
      await admit(s, `then ${tool('effect')}`, 'QUEUE')
    },
    async (s) => {
      await admit(s, slow())
      await wait(0, 800)
      await stopIt(s)
    },
    async (s) => {
      await admit(s, `/tool effect {"beforeMs":${chance.from(0, 900)},"afterMs":900}`)
      await wait(0, 900)
      await stopIt(s)
    },
    async (s) => {
      await admit(s, 'later', 'QUEUE', false)
      const { seq } = await now(s)
      await call(calls.resumeSession, { s, seq })
    },
  ]

  async function work(turn: number): Promise<void> {
    while (!stopped) {
      const sessionId = `ses_${randomUUID()}`
      await call(calls.createSession, { s: sessionId })
      sessionIds.push(sessionId)
      const watcher: Watcher | null = chance.chance(0.5) ? watch(urls, sessionId, turn) : null
      for (let left = chance.from(1, 4); left > 0 && !stopped; left--) {
        const take = turns[chance.from(0, turns.length - 1)]!
        await take(sessionId)
        await toRest(sessionId, () => stopped)
      }
      if (watcher === null) continue
      const { seq } = await now(sessionId)
      if (!(await watcher.reached(seq))) complaints.push(`${sessionId}: a watcher never saw event ${seq}`)
      await watcher.stop()
      complaints.push(...watcher.faults)
      counted('sessions watched')
      counted('streams broken off', watcher.breaks())
    }
  }

  const working = Array.from({ length: count }, (_, n) =>
    work(n).catch((thrown) => void complaints.push(`a person gave up: ${thrown}`)),
  )
  return {
    sessionIds,
    admitted,
    complaints,
    counts,
    answers,
    longestWaitMs: () => (waits.size === 0 ? 0 : performance.now() - Math.min(...waits)),
    async stop() {
      stopped = true
      await Promise.all(working)
      counts.retries = retries()
    },
    async lastWord(sessionId) {
      await toRest(sessionId, () => false, false)
      await admit(sessionId, 'one last word')
      await toRest(sessionId, () => false, false)
    },
  }
}
