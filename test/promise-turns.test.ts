// Callers of one session and its run: nobody takes the session from the others, and nobody is told of an internal error for being one of many.
import { describe, expect, it } from 'vitest'
import { BusyError } from '../src/errors.ts'
import type { Core } from '../src/runner/core.ts'
import { decideAgain } from '../src/runner/decide-again.ts'
import { updateSession } from '../src/runner/sessions.ts'
import { createTurns } from '../src/runner/turns.ts'
import { codeOf, presentable } from '../src/schema/masking.ts'
import { said } from './support/asking.ts'
import { atAppend } from './support/at-append.ts'
import { eventually } from './support/core.ts'
import { gate, hang } from './support/provider.ts'
import { hasEvent, interrupt, prompt, tenant, useStage } from './support/stage.ts'

const stage = useStage()
const isUpdate = hasEvent('session.updated')
const titles = async (s: string) => (await stage.payloads(s, 'session.updated')).map(({ title }) => title)
const rename = (core: Core, sessionId: string, title: string) => updateSession(core, tenant, { sessionId, title })

/** Callers who rename the session again and again until `stop`; gives what any of them was told but that it is done. */
function pressure(cores: readonly Core[], sessionId: string, callers = 16) {
  let goesOn = true
  let done = 0
  const told: unknown[] = []
  const ends = Array.from({ length: callers }, async (_, n) => {
    for (let i = 0; goesOn; i++) {
      const core = cores[n % cores.length]!
      const answer = await rename(core, sessionId, `${n}/${i}`).catch((thrown: unknown) => thrown)
      if ((answer as { type?: string }).type === 'UpdateSessionPayload') done++
      else told.push(answer)
    }
  })
  return {
    done: () => done,
    async stop() {
      goesOn = false
      await Promise.all(ends)
      return told
    },
  }
}

describe('PROMISE-07: one session, many callers', () => {
  it('PROMISE-070: 32 callers of two processes who change one session at once are all served, each change is in the log once', async () => {
    const [a, b] = [await stage.start(), await stage.start()]
    const s = await stage.session()
    const wanted = Array.from({ length: 32 }, (_, n) => `title ${n}`)
    const answers = await Promise.all(wanted.map((title, n) => rename((n % 2 ? a : b).core, s, title)))
    expect(answers.map(({ type }) => type)).toEqual(wanted.map(() => 'UpdateSessionPayload'))
    expect((await titles(s)).sort()).toEqual(wanted.sort())
  })

  it('PROMISE-071: within a process they are served in the order in which they came', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const wanted = Array.from({ length: 24 }, (_, n) => `title ${n}`)
    // Each decides once only: none finds the session moved by another.
    const appends = atAppend(core, isUpdate, (go) => go())
    for (const title of wanted.slice(0, -1)) void rename(core, s, title)
    await rename(core, s, wanted.at(-1)!)
    expect(await titles(s)).toEqual(wanted)
    expect(appends.count).toBe(wanted.length)
  })

  it('PROMISE-072: where the session moves at each look the caller is told to try again, and nothing was done', async () => {
    const lines: Record<string, unknown>[] = []
    const { core } = await stage.start({ log: (line) => lines.push(line) })
    const s = await stage.session()
    const met = atAppend(core, isUpdate, async () => ({ kind: 'stale' }))
    const thrown = await rename(core, s, 'never').catch((error: unknown) => error)
    expect(met.count).toBe(16)
    expect(codeOf(thrown)).toBe('UNAVAILABLE')
    expect(presentable(thrown, core.log, 'req').message).toBe(
      'Too many calls change this session at the same time; this one changed nothing, try again.',
    )
    expect(lines.at(-1)).toMatchObject({ msg: 'a session is too busy', requestId: 'req' })
    expect(await titles(s)).toEqual([])
  })

  it.each(['this process', 'another process'])(
    'PROMISE-073: a run gets to its step and its end while callers of %s change the session without end, and they go on',
    async (whose) => {
      const [a, b] = [await stage.start(), await stage.start()]
      const s = await stage.session()
      stage.provider.script(said())
      const callers = pressure([whose === 'this process' ? a.core : b.core], s)
      await eventually('callers under way', async () => callers.done() >= 20)
      await prompt(a.core, s)
      await stage.logged(s, 'execution.settled')
      const sofar = callers.done()
      await eventually('callers served on', async () => callers.done() >= sofar + 20)
      expect(await callers.stop()).toEqual([])
      expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'SUCCEEDED' }])
    },
  )

  it('PROMISE-280: a run that found the session moved three times has the callers of its process wait until its step has begun', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(said())
    const renamed: Promise<unknown>[] = []
    // Between each look and its append there is a caller, who is faster or stands in line.
    const begins = atAppend(core, hasEvent('step.started'), async (go, nth) => {
      if (nth > 8) return go()
      let isDone = false
      const caller = rename(core, s, `${nth}`).finally(() => {
        isDone = true
      })
      renamed.push(caller)
      if (nth <= 3) await caller
      else await eventually('the caller is served or waits', async () => isDone || core.turns.waiting() > 0)
      return go()
    })
    await prompt(core, s)
    await stage.logged(s, 'execution.settled')
    await Promise.all(renamed)
    expect(begins.count).toBe(4)
    expect(await titles(s)).toEqual(['1', '2', '3', '4'])
  })

  it('PROMISE-074: an interrupt and its cleanup come before callers who wait', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.leavesReplies = true
    stage.provider.script(hang())
    await prompt(core, s)
    await stage.logged(s, 'step.started')
    const callers = pressure([core], s, 32)
    await eventually('callers under way', async () => callers.done() >= 32)
    const before = callers.done()
    expect(await interrupt(core, s)).toMatchObject({ interrupted: true })
    // Two turns of its own; behind all who waited there would be 32 for each.
    expect(callers.done() - before).toBeLessThan(32)
    expect(await callers.stop()).toEqual([])
  })

  it('PROMISE-075: a line of waiting callers is bounded, in number and in time; who is refused was not run, and it is counted', async () => {
    let refused = 0
    const turns = createTurns({ waitingMax: 2, waitMs: 20, refused: () => refused++ })
    const end = gate()
    const ran: number[] = []
    const first = turns.take('s', 'caller', () => end.promise)
    const waiting = [1, 2, 3].map((n) => turns.take('s', 'caller', async () => ran.push(n)))
    const ends = await Promise.allSettled(waiting)
    const why = ends.map((ended) =>
      ended.status === 'rejected' && ended.reason instanceof BusyError ? ended.reason.message : ended,
    )
    const late = 'the calls before this one took too long'
    expect(why).toEqual([late, late, 'too many calls wait for this session'])
    // An owner waits for as long as it takes.
    const owner = turns.take('s', 'owner', async () => ran.push(4))
    expect(turns.waiting()).toBe(1)
    end.open()
    await Promise.all([first, owner])
    expect(ran).toEqual([4])
    expect(refused).toBe(3)
    expect(turns.waiting()).toBe(0)
  })

  it('PROMISE-076: a line that never empties rests, and only callers wait for the end of it', async () => {
    const turns = createTurns({ restEvery: 2, restMs: 60_000 })
    const order: string[] = []
    const take = (rank: 'owner' | 'interrupt' | 'caller', name: string) =>
      turns.take('s', rank, async () => void order.push(name))
    for (const n of [1, 2, 3, 4]) take('caller', `caller ${n}`).catch(() => {})
    await take('interrupt', 'interrupt')
    await take('owner', 'owner')
    expect(order).toEqual(['caller 1', 'interrupt', 'owner'])
  })

  it('PROMISE-077: callers of another tenant do not stand in the line of a session', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const end = gate()
    const held = decideAgain(core, { tenant, sessionId: s }, () => end.promise)
    await eventually('the turn is taken', async () => {
      const waits = rename(core, s, 'later')
      waits.catch(() => {})
      return core.turns.waiting() > 0
    })
    expect(await updateSession(core, 'stranger', { sessionId: s, title: 'x' })).toMatchObject({
      type: 'SessionNotFoundError',
    })
    end.open()
    await held
  })
})
