// The client of a world: a person with a program that does not know of deaths. A mutation that is not answered is sent again, byte for byte,
// as soon as there is somebody to send it to; everything else is looked up.
import { resolveQuarantine } from '../../src/recovery/quarantine.ts'
import { admitPrompt } from '../../src/runner/admit.ts'
import { compactSession } from '../../src/runner/compact.ts'
import type { Core } from '../../src/runner/core.ts'
import { answerQuestion, decideApproval, dismissQuestion } from '../../src/runner/decide.ts'
import { interruptSession } from '../../src/runner/interrupt.ts'
import { changeDelivery, withdrawPrompt } from '../../src/runner/pending.ts'
import { resumeSession } from '../../src/runner/resume.ts'
import { createSession, updateSession } from '../../src/runner/sessions.ts'
import type { Status } from '../../src/schema/status.ts'
import { findStuck, findUnrun, statusesOf } from '../support/checker.ts'
import type { World } from './world.ts'

const tenant = 'default'

export type Decision = 'APPROVE' | 'DECLINE_AND_CONTINUE' | 'DECLINE_AND_STOP' | 'ANSWER' | 'DISMISS'

export interface Client {
  create(model?: string): Promise<void>
  rename(title: string): Promise<void>
  /** `word` makes the id of the prompt and is its text. */
  prompt(word: string, over?: { delivery?: 'STEER' | 'QUEUE'; resume?: boolean }): Promise<void>
  moves(word: string, delivery: 'STEER' | 'QUEUE'): Promise<void>
  withdraw(word: string): Promise<void>
  compact(): Promise<void>
  resume(): Promise<void>
  /** `onlyOnce`: whoever asked does not ask again when no answer comes. */
  interrupt(onlyOnce?: boolean): Promise<void>
  /** Decides whatever is asked, until the session asks nothing more; gives how it rests then. */
  attend(decision: Decision): Promise<Status>
  /** Decides what is asked now. */
  decide(decision: Decision): Promise<void>
  /** Resolves whatever is set aside. */
  resolve(action: 'RETRY' | 'DISCARD'): Promise<void>
  /** Waits until this has been reached, or the session rests without it. */
  reached(flag: string): Promise<void>
  raise(flag: string): void
  /** A scan is due. */
  scan(): Promise<void>
  /** The server is stopped in order, without any grace. */
  stopServer(): Promise<void>
  /** The database's clock goes on. */
  passTime(ms: number): Promise<void>
  /** Waits until nothing is under way; reports what is stuck; gives how the session rests. */
  rest(): Promise<Status>
  /** Takes up whatever is set aside and asks once more: that has to be answered. */
  provesUsable(): Promise<void>
}

const refusals = /Error$/

/** Whoever finds nobody alive lets the others have a turn before looking again. */
const turn = () => new Promise((resolve) => setImmediate(resolve))

export function createClient(world: World): Client {
  const { sessionId, lane, flags, facts, findings } = world
  const idOf = (word: string) => `msg_${word}${sessionId.slice('ses_'.length)}`

  /** Sends until it is answered. */
  async function ask<T>(what: string, send: (core: Core) => Promise<T>, onlyOnce = false): Promise<T | null> {
    for (;;) {
      world.waitingFor = what
      const { core, gate } = await world.current()
      world.asking++
      const answer = await Promise.race([send(core).then((value) => ({ value })), gate.died.then(() => null)])
      world.asking--
      if (answer !== null) return answer.value
      if (onlyOnce) return null
      await turn()
    }
  }

  /** The same for a mutation that has to succeed, or to be refused in one of these ways. */
  async function mutate(
    what: string,
    send: (core: Core) => Promise<{ type: string }>,
    { onlyOnce = false, or = [] as string[] } = {},
  ): Promise<string | null> {
    const answer = await ask(what, send, onlyOnce)
    if (answer !== null && refusals.test(answer.type) && !or.includes(answer.type))
      findings.push({ kind: 'broken', sessionId, what: `${what} was refused: ${JSON.stringify(answer)}` })
    return answer?.type ?? null
  }

  async function prompt(word: string, { delivery = 'STEER', resume = true }: Parameters<Client['prompt']>[1] = {}) {
    const input = { sessionId, messageId: idOf(word), text: word, delivery, resume }
    await mutate(`prompt ${word}`, (core) => admitPrompt(core, tenant, input))
    facts.admitted.push({ sessionId, messageId: input.messageId, text: word, isToRun: resume })
  }

  const open = () => lane.db.interaction.findMany({ where: { sessionId, state: 'OPEN' }, orderBy: { id: 'asc' } })

  async function decideOne(interactionId: string, decision: Decision) {
    const send = (core: Core) => {
      if (decision === 'ANSWER') return answerQuestion(core, tenant, { interactionId, answer: 'yes' })
      if (decision === 'DISMISS') return dismissQuestion(core, tenant, { interactionId })
      return decideApproval(core, tenant, { interactionId, decision })
    }
    // A death that fails the step cancels what it asked.
    await mutate(`${decision} ${interactionId}`, send, { or: ['InteractionSettledError'] })
  }

  async function status(): Promise<Status> {
    return (await statusesOf(lane.db, [sessionId], world.scanMs))[0]?.status ?? 'IDLE'
  }

  /** Resolves with the status when nothing is under way in the incarnation that lives now; null if it has died over it. */
  async function rested(): Promise<Status | null> {
    const { core, gate, scanned } = await world.current()
    const { coordinator } = core
    await Promise.race([scanned.then(() => coordinator.idle()), gate.died])
    if (gate.isDead) return null
    const { queued, running } = coordinator.size()
    if (queued + running > 0) return null
    return status()
  }

  async function rest(): Promise<Status> {
    for (;;) {
      world.waitingFor = 'the session to rest'
      const found = await rested()
      if (found === null) {
        await turn()
        continue
      }
      findings.push(
        ...(await findStuck(lane.db, [sessionId], world.scanMs)),
        ...(found === 'IDLE' ? await findUnrun(lane.db, facts.admitted) : []),
      )
      return found
    }
  }

  const client: Client = {
    create: async (model = 'world/plain') => {
      await mutate('create the session', (core) => createSession(core, tenant, { sessionId, model }))
    },
    rename: async (title) => {
      await mutate('rename the session', (core) => updateSession(core, tenant, { sessionId, title }))
    },
    prompt,
    moves: async (word, delivery) => {
      const input = { sessionId, messageId: idOf(word), delivery }
      await mutate(`move ${word}`, (core) => changeDelivery(core, tenant, input), { or: ['PromptNotPendingError'] })
    },
    withdraw: async (word) => {
      const input = { sessionId, messageId: idOf(word) }
      await mutate(`withdraw ${word}`, (core) => withdrawPrompt(core, tenant, input), { or: ['PromptNotPendingError'] })
    },
    compact: async () => {
      const messageId = idOf('compaction')
      await mutate('compact', (core) => compactSession(core, tenant, { sessionId, messageId }))
      facts.admitted.push({ sessionId, messageId, text: '', isToRun: true })
    },
    resume: async () => {
      await mutate('resume', (core) => resumeSession(core, tenant, { sessionId }), { or: ['SessionQuarantinedError'] })
    },
    interrupt: async (onlyOnce = false) => {
      await mutate('interrupt', (core) => interruptSession(core, tenant, { sessionId }), { onlyOnce })
    },
    async attend(decision) {
      for (;;) {
        const found = await rest()
        if (found !== 'WAITING') return found
        await client.decide(decision)
      }
    },
    async decide(decision) {
      for (const { id } of await open()) await decideOne(id, decision)
    },
    async resolve(action) {
      const entries = await lane.db.quarantine.findMany({ where: { sessionId, resolvedAt: null } })
      for (const { id } of entries)
        await mutate(`resolve ${id}`, (core) => resolveQuarantine(core, tenant, { id, action }))
    },
    async reached(flag) {
      const raised = flags.until(flag).then(() => true)
      for (;;) {
        world.waitingFor = flag
        if ((await Promise.race([raised, rested()])) !== null) return
        await turn()
      }
    },
    raise: flags.raise,
    scan: async () => {
      for (;;) {
        world.waitingFor = 'a scan'
        const { recovery, gate } = await world.current()
        await Promise.race([recovery.scan(), gate.died])
        if (!gate.isDead) return
        await turn()
      }
    },
    async stopServer() {
      const life = await world.current()
      world.waitingFor = 'the server to stop'
      await Promise.race([life.leave(), life.gate.died])
    },
    passTime: (ms) => lane.shift(ms),
    rest,
    async provesUsable() {
      let found = await rest()
      if (found === 'QUARANTINED') {
        await client.resolve('RETRY')
        found = await rest()
      }
      if (found === 'WAITING') await client.attend('DECLINE_AND_CONTINUE')
      await prompt('usable')
      const last = await client.attend('DECLINE_AND_CONTINUE')
      const asked = await lane.db.message.findUnique({ where: { id: idOf('usable') } })
      const answers = await lane.db.message.count({
        where: { sessionId, kind: 'ASSISTANT', status: 'ENDED', seq: { gt: asked?.seq ?? 0 } },
      })
      if (last === 'IDLE' && asked !== null && answers > 0) return
      const what = `a new prompt is ${asked === null ? 'not promoted' : `answered ${answers} times`}, the session ${last}`
      findings.push({ kind: 'stuck', sessionId, what })
    },
  }
  return client
}
