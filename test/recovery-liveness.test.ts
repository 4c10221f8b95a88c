import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { event, type NewEvent } from '../src/events.ts'
import { newOwnerId } from '../src/ids.ts'
import { createLog } from '../src/log.ts'
import { handOver } from '../src/recovery/hand-over.ts'
import { createLiveness, type Liveness } from '../src/recovery/liveness.ts'
import { type Core, wake } from '../src/runner/core.ts'
import { testClock } from './support/clock.ts'
import { eventually, startCore, type TestCore } from './support/core.ts'
import { cutOff, hasClaim, inconsistencies, prompt, quiet } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import {
  finish,
  finishing,
  gate,
  hang,
  type Provider,
  reply,
  startProvider,
  text,
  toolCall,
} from './support/provider.ts'

// Dead owners: whose liveness lock has been free for the grace (design section 9).

vi.setConfig({ testTimeout: 60_000 })

let database: TestDatabase
let provider: Provider
const opened: TestCore[] = []
const alive: Liveness[] = []
beforeAll(async () => {
  database = await createTestDatabase()
  provider = await startProvider()
})
afterAll(async () => {
  await provider?.close()
  await database?.drop()
})
afterEach(async () => {
  for (const liveness of alive.splice(0)) await liveness.close()
  for (const { stop } of opened.splice(0)) await stop()
})

async function open(over: Partial<Parameters<typeof startCore>[0]> = {}) {
  const running = await startCore({
    url: database.url,
    models: { compatible: { baseUrl: provider.baseUrl } },
    ...over,
    config: { livenessGraceMs: 400, scanMs: 300, ...over.config },
  })
  opened.push(running)
  return running
}

async function live(owner: string, graceMs: number, now?: () => number) {
  const liveness = createLiveness({
    url: database.url,
    owner,
    graceMs,
    returnsWithinMs: graceMs,
    log: createLog('silent'),
    ...(now && { now }),
  })
  alive.push(liveness)
  return liveness
}

let sessions = 0
async function running(core: Core): Promise<string> {
  const sessionId = `ses_live${Date.now()}${++sessions}`
  await core.eventLog.append({
    sessionId,
    events: [
      event('session.created', { tenant: 'default', title: null, instructions: null, model: 'compatible/scripted' }),
      prompt(`msg_live${Date.now()}${sessions}`),
    ],
  })
  wake(core, sessionId)
  return sessionId
}

const typesOf = async (core: Core, sessionId: string) =>
  (await core.eventLog.read(sessionId, 0, 1000)).map(({ type }) => type)
const ofType = async <T extends NewEvent['type']>(core: Core, sessionId: string, type: T) =>
  (await core.eventLog.read(sessionId, 0, 1000)).filter((stored) => stored.type === type).map(({ payload }) => payload)

/** Leaves nothing to do for the scans of later tests. */
const stopHere = (core: Core, { sessionId }: { sessionId: string }) =>
  core.eventLog.append({ sessionId, events: [event('interrupt.requested', { interruptedExecutionId: null })] })

/** Who has the liveness lock of this owner, and who waits for it. */
async function locksOf(owner: string): Promise<{ granted: boolean }[]> {
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  const { rows } = await client.query(
    `SELECT l.granted FROM pg_locks l, (SELECT hashtextextended($1, 0) AS k) d
      WHERE l.locktype = 'advisory' AND l.objsubid = 1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.classid::bigint = (d.k >> 32) & 4294967295 AND l.objid::bigint = d.k & 4294967295`,
    [owner],
  )
  await client.end()
  return rows
}
const isWaitedFor = async (owner: string) => (await locksOf(owner)).some(({ granted }) => !granted)

/** First in the queue for these locks: has them the moment their connections break, and keeps them until it ends. */
async function rivalFor(...owners: string[]) {
  const clients = await Promise.all(
    owners.map(async (owner) => {
      const client = new pg.Client({ connectionString: database.url })
      await client.connect()
      const taken = client.query('SELECT pg_advisory_lock(hashtextextended($1, 0))', [owner])
      await eventually('the queue', () => isWaitedFor(owner))
      return { client, taken }
    }),
  )
  return {
    taken: Promise.all(clients.map(({ taken }) => taken)),
    end: () => Promise.all(clients.map(({ client }) => client.end())),
  }
}

/** How often this core has noticed that its lock is lost. */
function losses() {
  const lines: Record<string, unknown>[] = []
  const isLoss = ({ msg }: Record<string, unknown>) => String(msg).startsWith('the liveness lock is lost')
  return { log: (line: Record<string, unknown>) => void lines.push(line), count: () => lines.filter(isLoss).length }
}

/** Each time that a drain of this core asks whether it may begin: null until it is answered, then whether the lock was held. */
function asksToBegin({ core, liveness }: TestCore): (boolean | null)[] {
  const asks: (boolean | null)[] = []
  const { whenAlive } = core.leases
  core.leases.whenAlive = async (signal) => {
    const n = asks.push(null) - 1
    const may = await whenAlive(signal)
    asks[n] = liveness.isHeld()
    return may
  }
  return asks
}

/** Ends the liveness connections of this database, as a restart of the server does. */
async function freeAllLocks(): Promise<number> {
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  const { rowCount } = await client.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND application_name LIKE 'holdfast liveness %'`,
  )
  await client.end()
  return rowCount ?? 0
}

describe('a killed process', () => {
  it('REC-33, CLAIM-27: another process takes its sessions over at the grace, within one scan interval and long before the lease, and they run on', async () => {
    const config = { leaseMs: 600_000, renewMs: 300_000, livenessGraceMs: 2000, scanMs: 5000 }
    const a = await open({ config })
    const clock = testClock()
    let time = 0
    const b = await open({ recovers: true, clock, livenessNow: () => time, config })
    await clock.armed(5000)
    provider.script(reply(text('half'), hang()), reply(text('whole'), finish()))
    const first = provider.requests.length
    const sessionId = await running(a.core)
    await eventually('kept text', () => b.core.db.chunk.count({ where: { sessionId } }))
    const { expiresAt } = await b.core.db.claim.findUniqueOrThrow({ where: { sessionId } })
    await a.kill()
    await eventually('the lock to be free', async () => (await locksOf(a.core.owner)).length === 0)
    const died = clock.now()
    // The next scan sees it free for the first time, and looks again until the grace is over.
    await clock.advance(5000)
    await clock.armed(500)
    time = 1999
    await b.liveness.whenHeld()
    await clock.advance(500)
    await clock.armed(1)
    expect(await typesOf(b.core, sessionId)).not.toContain('step.recovered')
    time = 2000
    await b.liveness.whenHeld()
    await clock.advance(1)
    await eventually('the run', async () => (await typesOf(b.core, sessionId)).includes('step.ended'))
    // Beyond the time until a scan sees it free no other scan was waited for.
    expect(clock.now() - died).toBeLessThan(5000 + 5000)
    const [at] = await b.core.db.$queryRaw<{ now: Date }[]>`SELECT holdfast_now() AS now`
    expect(expiresAt.getTime() - at!.now.getTime()).toBeGreaterThan(500_000)
    await b.core.coordinator.idle()
    expect(provider.requests).toHaveLength(first + 2)
    expect(await ofType(b.core, sessionId, 'step.recovered')).toMatchObject([{ phase: 'UNKNOWN', handover: false }])
    expect(await ofType(b.core, sessionId, 'text.ended')).toMatchObject([{ text: 'half' }, { text: 'whole' }])
  })

  it('REC-32, CLAIM-18: the only process, started again, is another owner and recovers its former life without waiting for the lease', async () => {
    const a = await open()
    provider.script(reply(hang()), reply(text('again'), finish()))
    const first = provider.requests.length
    const sessionId = await running(a.core)
    await provider.request(first)
    await a.kill()
    const claim = await (await open()).core.db.claim.findUniqueOrThrow({ where: { sessionId } })
    expect(claim.expiresAt.getTime()).toBeGreaterThan(Date.now() + 5_000)
    const again = await open({ recovers: true })
    expect(again.core.owner).not.toBe(a.core.owner)
    await eventually('the run', async () => (await typesOf(again.core, sessionId)).includes('step.ended'))
    expect(Date.now()).toBeLessThan(claim.expiresAt.getTime())
    await again.core.coordinator.idle()
  })

  it('REC-34: an owner that holds its lock is left alone until its lease has run out', async () => {
    let time = 0
    const b = await open({ livenessNow: () => time })
    quiet(b.core)
    const owner = newOwnerId()
    const stopped = await live(owner, 400)
    await stopped.whenHeld()
    const cut = await cutOff(b.core, { owner, leaseMs: 30_000 })
    // However long it is looked at.
    for (const at of [0, 401, 60_000]) {
      time = at
      await b.liveness.whenHeld()
      expect(await b.recovery.scan()).toMatchObject({ taken: 0 })
    }
    expect(await hasClaim(b.core, cut.sessionId)).toBe(true)
    await database.shiftClock(31_000)
    expect(await b.recovery.scan()).toMatchObject({ taken: 1 })
    await database.shiftClock(0)
    await stopHere(b.core, cut)
  })
})

describe('what a free lock proves', () => {
  it('CLAIM-27: free for less than the grace it proves nothing, at the grace the owner is dead', async () => {
    const { core } = await open({ config: { livenessGraceMs: 60_000 } })
    quiet(core)
    const owner = newOwnerId()
    const cut = await cutOff(core, { owner, leaseMs: 30_000 })
    let time = 0
    const observer = await live(newOwnerId(), 2000, () => time)
    await observer.whenHeld()
    expect((await observer.observe()).dead).toEqual([])
    for (const at of [1000, 1999]) {
      time = at
      await observer.whenHeld()
      const seen = await observer.observe()
      expect(seen.dead).not.toContain(owner)
      expect(seen.lookAgainInMs).not.toBeNull()
    }
    time = 2000
    await observer.whenHeld()
    expect((await observer.observe()).dead).toContain(owner)
    // One that came back is alive again, however long it was away.
    const back = await live(owner, 2000)
    await back.whenHeld()
    expect((await observer.observe()).dead).not.toContain(owner)
    await back.close()
    expect((await observer.observe()).dead).not.toContain(owner)
    await core.db.claim.delete({ where: { sessionId: cut.sessionId } })
    await cut.append([event('execution.settled', { executionId: cut.executionId, outcome: 'CLEARED', retryAt: null })])
    await stopHere(core, cut)
  })

  it('CLAIM-24: a restart frees all locks at once: no claim of a living owner is taken over, and each holds its lock again before it starts anything', async () => {
    const lost = { a: losses(), b: losses() }
    const a = await open({ recovers: true, log: lost.a.log, config: { livenessGraceMs: 1500 } })
    const b = await open({ recovers: true, log: lost.b.log, config: { livenessGraceMs: 1500 } })
    const held = gate()
    provider.script(reply([{ kind: 'wait', gate: held.promise }], text('undisturbed'), finish()))
    const first = provider.requests.length
    const sessionId = await running(a.core)
    await provider.request(first)
    const bothLost = (n: number) =>
      eventually(`loss ${n} in both`, async () => lost.a.count() === n && lost.b.count() === n)
    for (let n = 1; n <= 3; n++) {
      expect(await freeAllLocks()).toBeGreaterThanOrEqual(2)
      await bothLost(n)
      await eventually('both locks', async () => a.liveness.isHeld() && b.liveness.isHeld())
      await b.recovery.scan()
    }

    // And once more, with work that comes before either has its lock again.
    const rival = await rivalFor(a.core.owner, b.core.owner)
    expect(await freeAllLocks()).toBeGreaterThanOrEqual(2)
    await rival.taken
    await bothLost(4)
    const asks = { a: asksToBegin(a), b: asksToBegin(b) }
    provider.script(reply(text('later'), finish()), reply(text('later'), finish()))
    const later = [await running(a.core), await running(b.core)]
    await eventually('both to ask', async () => asks.a.length > 0 && asks.b.length > 0)
    expect(await b.recovery.scan()).toMatchObject({ taken: 0 })
    // A bell may make one ask again.
    expect(new Set([...asks.a, ...asks.b])).toEqual(new Set([null]))
    for (const id of later) expect(await typesOf(b.core, id)).toEqual(['session.created', 'prompt.admitted'])
    expect(provider.requests).toHaveLength(first + 1)
    await rival.end()
    for (const [n, { core }] of [a, b].entries())
      await eventually('the later run', async () => (await typesOf(core, later[n]!)).includes('execution.settled'))
    expect([...asks.a, ...asks.b]).not.toContain(null)
    expect([asks.a[0], asks.b[0]]).toEqual([true, true])
    held.open()
    await a.core.coordinator.idle()
    for (const id of [sessionId, ...later]) {
      expect(await typesOf(a.core, id)).not.toContain('step.recovered')
      expect(await ofType(a.core, id, 'execution.settled')).toMatchObject([{ outcome: 'SUCCEEDED' }])
    }
    expect(provider.requests).toHaveLength(first + 3)
  })

  it('what was seen over a connection that broke does not count', async () => {
    const { core } = await open({ config: { livenessGraceMs: 60_000 } })
    quiet(core)
    const owner = newOwnerId()
    const cut = await cutOff(core, { owner, leaseMs: 30_000 })
    let time = 0
    const observer = await live(newOwnerId(), 2000, () => time)
    await observer.whenHeld()
    await observer.observe()
    await freeAllLocks()
    await eventually('the loss', async () => !observer.isHeld())
    await observer.whenHeld()
    time = 2500
    await observer.whenHeld()
    expect((await observer.observe()).dead).not.toContain(owner)
    time = 4500
    await observer.whenHeld()
    expect((await observer.observe()).dead).toContain(owner)
    await core.db.claim.delete({ where: { sessionId: cut.sessionId } })
    await cut.append([event('execution.settled', { executionId: cut.executionId, outcome: 'CLEARED', retryAt: null })])
    await stopHere(core, cut)
  })

  it('CLAIM-28: while its claims are taken over an owner that comes back waits for its lock', async () => {
    const owner = newOwnerId()
    const worker = await live(newOwnerId(), 400)
    await worker.whenHeld()
    const working = gate()
    const started = gate()
    const work = worker.holding(owner, async (isStill) => {
      expect(isStill()).toBe(true)
      started.open()
      await working.promise
      return 'worked'
    })
    await started.promise
    // Nobody else takes the same owner over meanwhile.
    const rival = await live(newOwnerId(), 400)
    await rival.whenHeld()
    expect(await rival.holding(owner, async () => 'worked too')).toBeNull()
    const back = await live(owner, 400)
    const abort = new AbortController()
    const waited = back.whenHeld(abort.signal)
    await eventually('it to wait for its lock', () => isWaitedFor(owner))
    expect(back.isHeld()).toBe(false)
    abort.abort()
    expect(await waited).toBe(false)
    working.open()
    expect(await work).toBe('worked')
    expect(await back.whenHeld()).toBe(true)
  })

  it('CLAIM-23: a process that lost its lock does not hold it until it is granted again', async () => {
    const a = await open()
    expect(a.liveness.isHeld()).toBe(true)
    const rival = await rivalFor(a.core.owner)
    a.link.cut()
    await eventually('the loss', async () => !a.liveness.isHeld())
    await rival.taken
    let granted = false
    const waited = a.liveness.whenHeld().then((held) => {
      granted = held
    })
    a.link.mend()
    // Connected again, and in the queue.
    await eventually('it to wait for its lock', () => isWaitedFor(a.core.owner))
    expect([granted, a.liveness.isHeld()]).toEqual([false, false])
    await rival.end()
    await waited
    expect(granted).toBe(true)
    expect(a.liveness.isHeld()).toBe(true)
  })
})

it('CLAIM-23: while another process has its lock, an owner that lives makes no request; it goes on once it is granted again', async () => {
  const a = await open({ config: { livenessGraceMs: 400 } })
  const rival = await rivalFor(a.core.owner)
  await freeAllLocks()
  await rival.taken
  await eventually('the loss', async () => !a.liveness.isHeld())
  const asks = asksToBegin(a)
  provider.script(reply(text('at last'), finish()))
  const first = provider.requests.length
  const sessionId = await running(a.core)
  await eventually('it to ask', async () => asks.length > 0)
  await typesOf(a.core, sessionId)
  expect(asks).toEqual([null])
  expect(await typesOf(a.core, sessionId)).toEqual(['session.created', 'prompt.admitted'])
  expect(provider.requests).toHaveLength(first)
  await rival.end()
  await a.core.coordinator.idle()
  expect(asks[0]).toBe(true)
  expect(provider.requests).toHaveLength(first + 1)
  expect(await ofType(a.core, sessionId, 'text.ended')).toMatchObject([{ text: 'at last' }])
})

describe('the leaving owner', () => {
  it('REC-41, OPS-04: hands a running step over with what it had received, uncounted, and the next process runs on', async () => {
    let ran = 0
    const work = {
      name: 'work',
      description: 'Works.',
      inputSchema: { type: 'object' },
      execute: (_: unknown, { signal }: { signal: AbortSignal }) => {
        ran++
        return new Promise<string>((resolve) => signal.addEventListener('abort', () => resolve('stopped')))
      },
    }
    const a = await open({ tools: [work] })
    provider.script(reply(text('half a ', 'sentence'), hang()))
    const talking = await running(a.core)
    await eventually('the text', async () =>
      [...a.core.live.partsOf(talking)].some((part) => part.text.endsWith('sentence')),
    )
    provider.script(reply(toolCall('work', {}), finishing('tool_calls'), hang()))
    const working = await running(a.core)
    await eventually('the tool', async () => ran === 1)
    await a.core.coordinator.stop(0)
    await handOver(a.core, a.core.leases.held())
    for (const sessionId of [talking, working]) {
      expect(await hasClaim(a.core, sessionId)).toBe(false)
      expect(await ofType(a.core, sessionId, 'step.recovered')).toMatchObject([{ phase: 'UNKNOWN', handover: true }])
      expect(await ofType(a.core, sessionId, 'execution.settled')).toEqual([])
      expect((await a.core.db.session.findUniqueOrThrow({ where: { id: sessionId } })).recoveries).toBe(0)
    }
    expect(await ofType(a.core, talking, 'text.ended')).toMatchObject([{ text: 'half a sentence' }])
    expect(await ofType(a.core, working, 'tool.failed')).toMatchObject([{ error: { code: 'OUTCOME_UNKNOWN' } }])
    await a.stop()
    provider.script(reply(text('and the rest'), finish()), reply(text('and the rest'), finish()))
    const b = await open({ recovers: true })
    for (const sessionId of [talking, working])
      await eventually('the run', async () => (await typesOf(b.core, sessionId)).includes('step.ended'))
    await b.core.coordinator.idle()
    expect(ran).toBe(1)
  })

  it('REC-41: a hand-over is not counted: ten of them park nothing', async () => {
    provider.script(...Array.from({ length: 10 }, () => reply(text('x'), hang())))
    const a = await open()
    const first = provider.requests.length
    const sessionId = await running(a.core)
    await provider.request(first)
    await a.core.coordinator.stop(0)
    await handOver(a.core, a.core.leases.held())
    for (let n = 1; n < 10; n++) {
      const next = await open()
      await next.recovery.scan()
      await provider.request(first + n)
      await next.core.coordinator.stop(0)
      await handOver(next.core, next.core.leases.held())
    }
    const session = await a.core.db.session.findUniqueOrThrow({ where: { id: sessionId } })
    expect(session).toMatchObject({ recoveries: 0, parkedReason: null })
    await a.core.eventLog.append({
      sessionId,
      events: [event('interrupt.requested', { interruptedExecutionId: null })],
    })
  })
})

it('every session of this file is consistent with its log', async () => {
  const { core } = await open()
  expect(await inconsistencies(core.db)).toEqual([])
})
