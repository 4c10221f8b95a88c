import { expect, it } from 'vitest'
import { createLog } from '../src/log.ts'
import { createMetrics } from '../src/metrics.ts'
import { createRecovery } from '../src/recovery/resolver.ts'
import { createCoordinator } from '../src/runner/wake.ts'
import { fault, onDatabase } from './support/faults.ts'
import { instantModel } from './support/instant-model.ts'
import { collectGarbage } from './support/memory.ts'
import {
  admit,
  atAppend,
  atRest,
  claimOf,
  events,
  inputOf,
  newSession,
  type Played,
  statusIn,
  typesOf,
  usersIn,
  useStage,
} from './support/prompt-stage.ts'
import { finish, reply, text } from './support/provider.ts'
import { random } from './support/random.ts'

const stage = useStage()
const said = (word: string) => reply(text(word), finish())
const asked = () => stage.provider.requests.map(usersIn)
const scan = ({ core }: Played) => createRecovery(core, null).scan()

it('DRAIN-03: work that comes after the last look and before the claim is given back is not lost', async () => {
  const a = await stage.start()
  for (const arrives of ['before the commit', 'after the commit, before the drain knows']) {
    const sessionId = await newSession(a)
    const kinds: string[] = []
    atAppend(a, 'execution.settled', async (go, _nth, request) => {
      if (request.sessionId !== sessionId) return go()
      const isFirst = kinds.length === 0
      kinds.push('')
      if (isFirst && arrives === 'before the commit') await admit(a, sessionId, 'two')
      const outcome = await go()
      if (isFirst && arrives !== 'before the commit') await admit(a, sessionId, 'two')
      kinds[kinds.indexOf('')] = outcome.kind
      return outcome
    })
    stage.provider.script(said('A'), said('B'))
    await admit(a, sessionId, 'one')
    await atRest(a)
    expect(kinds).toEqual(arrives === 'before the commit' ? ['stale', 'appended'] : ['appended', 'appended'])
    expect(asked().slice(-2)).toEqual([['one'], ['one', 'two']])
    expect(await claimOf(a, sessionId)).toBeNull()
  }
})

it('DRAIN-04: over 1000 generated interleavings of admission and return each prompt runs once, without a scan', async () => {
  const sessionCount = 50
  const rounds = 20
  const asked: string[] = []
  const models = { models: { 'local/instant': { model: instantModel((said) => asked.push(said)) } } }
  const complaints: unknown[] = []
  const log = (line: Record<string, unknown>) => {
    if (line.level === 'warn' || line.level === 'error') complaints.push(line)
  }
  // The race is between transactions, not with the disk.
  await onDatabase(
    stage.database.url,
    `ALTER DATABASE ${new URL(stage.database.url).pathname.slice(1)} SET synchronous_commit = off`,
  )
  const a = await stage.start({ models, log })
  const b = await stage.start({ models, log })
  const seed = Date.now() % 1_000_000
  const pick = random(seed).below
  const admitted = new Map<string, number>()
  const admissions: Promise<unknown>[] = []
  const outcomes: Record<string, number> = {}
  const turns = async (n: number) => {
    for (let turn = 0; turn < n; turn++) await new Promise((resolve) => setImmediate(resolve))
  }
  for (const core of [a, b])
    atAppend(core, 'execution.settled', async (go, _nth, { sessionId }) => {
      const round = admitted.get(sessionId)!
      if (round > rounds) return go()
      admitted.set(sessionId, round + 1)
      const by = pick(2) === 0 ? a : b
      const delivery = pick(2) === 0 ? 'STEER' : 'QUEUE'
      const next = () => {
        const admission = admit(by, sessionId, `${sessionId}/${round}`, { delivery })
        admissions.push(admission)
        return admission
      }
      const at = pick(5)
      const later = pick(12)
      if (at === 0) await next()
      if (at === 1) void next()
      if (at === 1) await turns(later)
      const going = go()
      if (at === 2) void next()
      if (at === 3) void turns(later).then(next)
      const outcome = await going
      outcomes[outcome.kind] = (outcomes[outcome.kind] ?? 0) + 1
      if (at === 4) void turns(later % 4).then(next)
      // The drain is told when the other process may already be at it.
      if (at >= 3) await turns(later)
      return outcome
    })
  const sessions: string[] = []
  for (let n = 0; n < sessionCount; n++) {
    const sessionId = await newSession(a, 'local/instant')
    sessions.push(sessionId)
    admitted.set(sessionId, 1)
  }
  for (const sessionId of sessions) admissions.push(admit(a, sessionId, `${sessionId}/0`))
  for (let settled = -1; settled !== admissions.length; ) {
    settled = admissions.length
    await Promise.all(admissions)
    await atRest(a, b)
    await turns(20)
  }
  expect(admissions.length, `seed ${seed}`).toBe(sessionCount * (rounds + 1))
  expect(complaints).toEqual([])
  expect(asked.length, `seed ${seed}`).toBe(sessionCount * (rounds + 1))
  expect(new Set(asked).size, `seed ${seed}`).toBe(sessionCount * (rounds + 1))
  expect(await a.core.db.input.count({ where: { sessionId: { in: sessions }, state: 'PENDING' } })).toBe(0)
  expect(await a.core.db.claim.count({ where: { sessionId: { in: sessions } } })).toBe(0)
  // Both ways to be right were taken.
  expect(outcomes.stale).toBeGreaterThan(100)
  expect(outcomes.appended).toBeGreaterThan(100)
}, 300_000)

it('DRAIN-08: a drain that throws leaves nothing behind in memory; its claim is settled at once, it and others go on', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const other = await newSession(a)
  const met = atAppend(a, 'execution.settled', async (go, nth) => {
    if (nth === 1) throw new Error('out of the blue')
    return go()
  })
  stage.provider.script(said('A'), said('B'), said('C'))
  await admit(a, sessionId, 'one')
  await atRest(a)
  expect(met.count).toBe(1)
  expect(a.core.coordinator.size()).toEqual({ queued: 0, running: 0 })
  expect(a.core.leases.held()).toEqual([])
  expect(await claimOf(a, sessionId)).toBeNull()
  await admit(a, other, 'mine')
  await admit(a, sessionId, 'two')
  await atRest(a)
  expect(asked().toSorted()).toEqual([['mine'], ['one'], ['one', 'two']])
})

it('DRAIN-08: a drain that throws before it has its claim is begun again by the next wake', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const met = atAppend(a, 'execution.started', async (go, nth) => {
    if (nth === 1) throw new Error('out of the blue')
    return go()
  })
  await admit(a, sessionId, 'one')
  await atRest(a)
  expect(met.count).toBe(1)
  expect(a.core.coordinator.size()).toEqual({ queued: 0, running: 0 })
  expect(stage.provider.requests).toHaveLength(0)
  stage.provider.script(said('A'))
  a.core.coordinator.wake(sessionId)
  await atRest(a)
  expect(asked()).toEqual([['one']])
})

it('DRAIN-09: a wake that fails after the commit does not fail the mutation, and the intent stands', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const { observe } = a.core.metrics.drainQueueSeconds
  let failed = 0
  a.core.metrics.drainQueueSeconds.observe = () => {
    failed++
    throw new Error('no wake today')
  }
  const messageId = await admit(a, sessionId, 'one')
  expect(failed).toBe(1)
  expect(await inputOf(a, messageId)).toMatchObject({ state: 'PENDING', wakePending: true })
  a.core.metrics.drainQueueSeconds.observe = observe
  stage.provider.script(said('A'))
  expect(await scan(a)).toMatchObject({ woken: 1 })
  await atRest(a)
  expect(asked()).toEqual([['one']])
})

it('DRAIN-10: a coordinator that is told of new work 20 000 times nests nothing and keeps nothing', async () => {
  Error.stackTraceLimit = 1000
  const rounds = 20_000
  const heap: number[] = []
  const depth: number[] = []
  let round = 0
  const metrics = createMetrics()
  const coordinator = createCoordinator({
    maxDrains: 2,
    log: createLog('silent'),
    metrics,
    async drain(sessionId) {
      round++
      if (round % 5000 === 1000) {
        collectGarbage()
        heap.push(process.memoryUsage().heapUsed)
        depth.push(new Error('here').stack!.split('\n').length)
      }
      await Promise.resolve()
      // By turns as the drain's own answer and as a wake that lands while it runs.
      if (round % 2 === 0) coordinator.wake(sessionId)
      return { again: round % 2 === 1 && round < rounds }
    },
  })
  coordinator.wake('ses_always-busy')
  await coordinator.idle()
  Error.stackTraceLimit = 10
  expect(round).toBeGreaterThanOrEqual(rounds)
  expect(coordinator.size()).toEqual({ queued: 0, running: 0 })
  expect(new Set(depth.slice(1)).size).toBe(1)
  expect(depth[0]).toBeLessThan(30)
  expect(heap).toHaveLength(4)
  expect(heap[3]! - heap[1]!).toBeLessThan(1_000_000)
})

it('DRAIN-07: a session that is to be looked at once more while places are free makes nobody yield; one that finds no place does', async () => {
  const ends = new Map<string, (end: { again: boolean }) => void>()
  const coordinator = createCoordinator({
    maxDrains: 2,
    log: createLog('silent'),
    metrics: createMetrics(),
    drain: (sessionId) => new Promise((resolve) => ends.set(sessionId, resolve)),
  })
  coordinator.wake('ses_long')
  coordinator.wake('ses_short')
  ends.get('ses_short')!({ again: true })
  for (let turn = 0; turn < 10; turn++) await Promise.resolve()
  expect(coordinator.size()).toEqual({ queued: 1, running: 1 })
  expect(coordinator.othersWait()).toBe(false)
  await new Promise((resolve) => setImmediate(resolve))
  expect(coordinator.size()).toEqual({ queued: 0, running: 2 })
  coordinator.wake('ses_third')
  expect(coordinator.othersWait()).toBe(true)
  for (const id of ['ses_long', 'ses_short', 'ses_third']) {
    ends.get(id)!({ again: false })
    await new Promise((resolve) => setImmediate(resolve))
  }
  await coordinator.idle()
})

it('DRAIN-12: if the claim cannot be removed the execution has not ended either', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const injected = await fault(stage.database.url, {
    table: 'Claim',
    operation: 'DELETE',
    when: `OLD."sessionId" = '${sessionId}'`,
  })
  stage.provider.script(said('A'))
  await admit(a, sessionId, 'one')
  await atRest(a)
  expect(await injected.fired()).toBeGreaterThan(0)
  expect((await typesOf(a, sessionId)).at(-1)).toBe('step.ended')
  expect(await claimOf(a, sessionId)).toMatchObject({ phase: 'SAFE' })
  await injected.lift()
  await stage.database.shiftClock(60_000)
  expect(await scan(a)).toMatchObject({ taken: 1 })
  expect(await events(a, sessionId, 'execution.settled')).toMatchObject([{ payload: { outcome: 'CLEARED' } }])
  expect(await statusIn(a, sessionId)).toBe('IDLE')
})

it('DRAIN-20: a prompt that another process admits while a drain ends runs, with every doorbell lost and no scan', async () => {
  const a = await stage.start()
  const b = await stage.start()
  await Promise.all([a.core.doorbell.close(), b.core.doorbell.close()])
  for (const moment of [
    'and its wake has found the claim held',
    'and its wake comes after',
    'once the claim is free',
  ]) {
    const sessionId = await newSession(a)
    const kinds: string[] = []
    atAppend(a, 'execution.settled', async (go, _nth, request) => {
      if (request.sessionId !== sessionId || kinds.length > 0) return go()
      const { wake } = b.core.coordinator
      if (moment === 'and its wake comes after') b.core.coordinator.wake = () => {}
      if (moment !== 'once the claim is free') await admit(b, sessionId, 'two')
      if (moment === 'and its wake has found the claim held') await atRest(b)
      const outcome = await go()
      kinds.push(outcome.kind)
      if (moment === 'once the claim is free') await admit(b, sessionId, 'two')
      b.core.coordinator.wake = wake
      if (moment === 'and its wake comes after') wake(sessionId)
      return outcome
    })
    stage.provider.script(said('A'), said('B'))
    await admit(a, sessionId, 'one')
    await atRest(a, b)
    expect(kinds, moment).toEqual([moment === 'once the claim is free' ? 'appended' : 'stale'])
    expect(asked().slice(-2), moment).toEqual([['one'], ['one', 'two']])
    const started = await events(a, sessionId, 'execution.started')
    expect(started, moment).toHaveLength(moment === 'once the claim is free' ? 2 : 1)
  }
})
