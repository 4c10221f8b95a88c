import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { appendIn } from '../src/append.ts'
import { createAppendQueue } from '../src/append-queue.ts'
import { renewClaims } from '../src/claim.ts'
import { connect, isTransient } from '../src/db.ts'
import { createLog } from '../src/log.ts'
import { createMetrics } from '../src/metrics.ts'
import { takeOverTogether } from '../src/recovery/takeover-together.ts'
import type { Core } from '../src/runner/core.ts'
import { createHold } from '../src/runner/hold.ts'
import { createLeases } from '../src/runner/leases.ts'
import { type Beside, beside, lockable, locking } from './support/beside.ts'
import { eventually, startCore, type TestCore } from './support/core.ts'
import { type CutOff, cutOff, quiet } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { silentWire } from './support/silent-wire.ts'
import { type RunningStep, runningStep, type StreamProcess, streamProcess, titled } from './support/stream-process.ts'

// What a process that stands still, or whose wire is silent, may keep from others: a session for some seconds, and nothing else.

let database: TestDatabase
let running: TestCore
let core: Core
let outside: Beside
beforeAll(async () => {
  database = await createTestDatabase()
  running = await startCore({ url: database.url, config: { livenessGraceMs: 60_000 } })
  core = running.core
  quiet(core)
  outside = await beside(database.url)
})
afterAll(async () => {
  await outside?.close()
  await running?.stop()
  await database?.drop()
})

const claimed = (n: number, owner: string) =>
  Promise.all(Array.from({ length: n }, () => cutOff(core, { owner, leaseMs: 600_000 })))
const expiryOf = async ({ sessionId }: CutOff) =>
  (await core.db.claim.findUniqueOrThrow({ where: { sessionId } })).expiresAt.getTime()
const leasesOf = (owner: string, db = core.db) =>
  createLeases({
    db,
    owner,
    leaseMs: 900_000,
    renewMs: 600_000,
    log: createLog('silent'),
    metrics: createMetrics(),
    now: () => 0,
  })

it('PROMISE-030: a transaction whose process stands still is ended by the database, and what waited for its locks goes on', async () => {
  const [cut] = await claimed(1, 'own_.frozen')
  const { sessionId } = cut!
  const wire = await silentWire(database.url)
  const frozen = connect(wire.url, 1, 6000)
  const queue = createAppendQueue({ db: core.db, origin: 'own_.next', committed: () => {} })
  try {
    const standing = frozen
      .$transaction(async (tx) => {
        await tx.$queryRaw`SELECT id FROM "Session" WHERE id = ${sessionId} FOR NO KEY UPDATE`
        expect(await lockable(database.url, 'session', sessionId)).toBe(false)
        expect(wire.silence('FOR NO KEY UPDATE')).toBe(1)
        await tx.$queryRaw`SELECT 1`
      })
      .catch((thrown: unknown) => thrown)
    await eventually('the wire to be silent', () => wire.silent() === 1)
    expect(await queue.append({ sessionId, events: [titled('waited')] })).toMatchObject({ kind: 'appended' })
    // The process itself learns of it as of any lost connection.
    await wire.close()
    const thrown = await standing
    expect(isTransient(thrown), String(thrown)).toBe(true)
  } finally {
    await wire.close()
    await frozen.$disconnect()
  }
})

it('PROMISE-031: while many sessions are locked, the appends that wait for them hold two connections; others get theirs, and each session its order', async () => {
  const cuts = await claimed(8, 'own_.locked')
  const [free] = await claimed(1, 'own_.locked')
  const pool = connect(database.url, 4)
  const queue = createAppendQueue({ db: pool, origin: 'own_.waiting', committed: () => {} })
  const told: string[] = []
  try {
    await outside.lock(...cuts.map(({ sessionId }) => sessionId).toSorted())
    const waiting = cuts.flatMap(({ sessionId }, n) =>
      ['first', 'second'].map(async (which) => {
        const outcome = await queue.append({ sessionId, events: [titled(which)] })
        told.push(`${n} ${which}`)
        return outcome.kind
      }),
    )
    await outside.blocked(2)
    // More often than there are connections.
    for (let n = 0; n < 6; n++) {
      expect(await queue.append({ sessionId: free!.sessionId, events: [titled(`${n}`)] })).toMatchObject({
        kind: 'appended',
      })
      expect(await pool.session.count({ where: { id: free!.sessionId } })).toBe(1)
    }
    const blocked = await core.db.$queryRaw<unknown[]>`
      SELECT DISTINCT l.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()`
    expect(blocked.length).toBeLessThanOrEqual(2)
    expect(told).toEqual([])
    await outside.query('COMMIT')
    expect(new Set(await Promise.all(waiting))).toEqual(new Set(['appended']))
    for (const [n] of cuts.entries()) expect(told.indexOf(`${n} first`)).toBeLessThan(told.indexOf(`${n} second`))
  } finally {
    await outside.query('ROLLBACK')
    await queue.idle()
    await pool.$disconnect()
  }
})

it('PROMISE-032: an append whose session stays locked for too long is told to try again, and holds nothing up', async () => {
  const cuts = await claimed(4, 'own_.long')
  const queue = createAppendQueue({ db: core.db, origin: 'own_.waiting', committed: () => {}, lockedMs: 50 })
  await outside.lock(...cuts.map(({ sessionId }) => sessionId).toSorted())
  try {
    let refused = 0
    const waiting = cuts.map(({ sessionId }) =>
      queue.append({ sessionId, events: [titled('late')] }).then(
        ({ kind }) => kind,
        (thrown: Error) => {
          refused++
          return thrown.name
        },
      ),
    )
    await outside.blocked(2)
    // Those that found no place to wait in the database.
    await eventually('two to be told', () => refused === 2)
    await outside.query('COMMIT')
    expect((await Promise.all(waiting)).toSorted()).toEqual([
      'UnavailableError',
      'UnavailableError',
      'appended',
      'appended',
    ])
  } finally {
    await outside.query('ROLLBACK')
  }
})

it('PROMISE-033: a renewal passes over a claim that is locked: the others are renewed, and that one is neither lost nor proven', async () => {
  const owner = 'own_.passed'
  const cuts = await claimed(3, owner)
  const [locked, ...others] = cuts as [CutOff, ...CutOff[]]
  const leases = leasesOf(owner)
  const holds = cuts.map(({ sessionId, executionId }) => createHold(sessionId, executionId, owner))
  for (const hold of holds) leases.add(hold, -890_000)
  try {
    const before = await Promise.all(cuts.map(expiryOf))
    await outside.query('BEGIN')
    expect(await outside.query(locking.claim, [locked.sessionId])).toHaveLength(1)
    await leases.renewNow()
    const [still, ...renewed] = await Promise.all(cuts.map(expiryOf))
    expect(still).toBe(before[0])
    for (const [n] of others.entries()) expect(renewed[n]).toBeGreaterThan(before[n + 1]!)
    expect(holds.map(({ ended }) => ended)).toEqual([null, null, null])
    await outside.query('COMMIT')
    // By itself, and soon: its next turn would be in ten minutes.
    await eventually('the lease of the one that was locked', async () => (await expiryOf(locked)) > before[0]!)
  } finally {
    await outside.query('ROLLBACK')
    leases.close()
  }
})

it('PROMISE-034: renewals have connections of their own: they go out while all others of the process are taken', async () => {
  const crowded = await startCore({ url: database.url, config: { dbPool: 1, livenessGraceMs: 60_000 } })
  const owner = crowded.core.owner
  const [cut] = await claimed(1, owner)
  const { sessionId, executionId } = cut!
  try {
    const before = await expiryOf(cut!)
    await core.db.claim.update({ where: { sessionId }, data: { expiresAt: new Date(before - 590_000) } })
    const busy = crowded.core.db.$transaction(async (tx) => {
      await tx.$queryRaw`SELECT 1`
      crowded.core.leases.add(createHold(sessionId, executionId, owner), performance.now())
      await crowded.core.leases.renewNow()
      return expiryOf(cut!)
    })
    expect(await busy).toBeGreaterThan(before - 590_000)
  } finally {
    await crowded.stop()
  }
})

it('PROMISE-035: a process that stands still while it takes claims over gives their sessions back', async () => {
  const cuts = await Promise.all(Array.from({ length: 3 }, () => cutOff(core)))
  const wire = await silentWire(database.url)
  const far = connect(wire.url, 2, 6000)
  try {
    wire.silenceAt('COMMIT')
    const taking = takeOverTogether({ ...core, db: far }, cuts, { kind: 'expired' }).catch((thrown: unknown) => thrown)
    await eventually('it to stand still', () => wire.silent() === 1)
    const isFree = ({ sessionId }: CutOff) => lockable(database.url, 'session', sessionId)
    expect(await isFree(cuts[0]!)).toBe(false)
    for (const cut of cuts) await eventually('its lock to be free', () => isFree(cut))
    // Nothing of it has happened.
    for (const cut of cuts) expect(await cut.types()).not.toContain('step.recovered')
    await wire.close()
    expect(isTransient(await taking)).toBe(true)
  } finally {
    await wire.close()
    await far.$disconnect()
  }
})

it('PROMISE-080: one claim that cannot be looked at leaves the other holds proven', async () => {
  const owner = 'own_.looked'
  const cuts = await claimed(2, owner)
  // The first is gone, so the renewal does not answer for it; then the look at it fails.
  const holds = [
    createHold('ses_gone0000', 'exe_.gone', owner),
    ...cuts.map((cut) => createHold(cut.sessionId, cut.executionId, owner)),
  ]
  let time = 0
  let reads = 0
  const db = {
    $queryRaw: (strings: TemplateStringsArray, ...values: unknown[]) => {
      if (strings.join('').includes('holdfast_renew')) return core.db.$queryRaw(strings, ...values)
      reads++
      return Promise.reject(new Error('cannot be read'))
    },
  } as unknown as typeof core.db
  const leases = createLeases({
    db,
    owner,
    leaseMs: 900_000,
    renewMs: 600_000,
    log: createLog('silent'),
    metrics: createMetrics(),
    now: () => time,
  })
  try {
    for (const hold of holds) leases.add(hold, 0)
    time = 600_000
    await leases.renewNow()
    expect(reads).toBe(1)
    time = 1_000_000
    expect(await leases.mayStart(holds[1]!)).toBe(true)
    expect(await leases.mayStart(holds[2]!)).toBe(true)
    expect(await leases.mayStart(holds[0]!)).toBe(false)
  } finally {
    leases.close()
  }
})

it('PROMISE-036: the function that renews answers for the claims it has renewed only', async () => {
  const owner = 'own_.answers'
  const cuts = await claimed(2, owner)
  await outside.query('BEGIN')
  try {
    await outside.query(locking.claim, [cuts[0]!.sessionId])
    const ids = cuts.map(({ executionId }) => executionId)
    const renewed = await renewClaims(core.db, owner, ids, 900_000)
    expect(renewed.map(({ executionId }) => executionId)).toEqual([cuts[1]!.executionId])
  } finally {
    await outside.query('ROLLBACK')
  }
})

describe('a flush of live text', () => {
  let here: StreamProcess
  beforeAll(() => {
    here = streamProcess(database.url)
  })
  afterAll(() => here?.close())

  const writing = 'SELECT holdfast_write_chunks($1::jsonb) AS written'
  const talking = async () => {
    const step = await runningStep(here)
    await step.begin()
    return step
  }
  const chunksOf = (...steps: RunningStep[]) =>
    JSON.stringify(
      steps.map(({ sessionId: s, executionId: x, messageId: m }) => ({
        s,
        x,
        o: here.owner,
        m,
        i: 0,
        f: 0,
        t: 'text',
      })),
    )
  const interruptOf = ({ sessionId, executionId }: RunningStep) => ({
    sessionId,
    fence: { executionId, owner: here.owner, phases: ['UNKNOWN' as const] },
    events: [titled('interrupted')],
    claim: { kind: 'move' as const, to: 'CANCELLING' as const },
  })

  it('PROMISE-037: one that has not committed yet, however slow, costs no renewal of its claims', async () => {
    const step = await talking()
    await outside.query('BEGIN')
    try {
      expect(await outside.query(writing, [chunksOf(step)])).toEqual([{ written: [0] }])
      const renewed = await renewClaims(core.db, here.owner, [step.executionId], 900_000)
      expect(renewed.map(({ executionId }) => executionId)).toEqual([step.executionId])
    } finally {
      await outside.query('ROLLBACK')
    }
  })

  it('PROMISE-038: one that meets an interrupt under way waits for it and writes nothing behind it; an interrupt that meets a flush waits for that', async () => {
    const step = await talking()
    let flushed: unknown[] | undefined
    let flush: Promise<unknown> = Promise.resolve()
    await core.db.$transaction(async (tx) => {
      expect(await appendIn(tx, interruptOf(step), 'own_.other')).toMatchObject({ kind: 'appended' })
      flush = outside.query(writing, [chunksOf(step)]).then((rows) => {
        flushed = rows
      })
      await outside.blocked()
      expect(flushed).toBeUndefined()
    })
    await flush
    expect(flushed).toEqual([{ written: [] }])

    const other = await talking()
    await outside.query('BEGIN')
    await outside.query(writing, [chunksOf(other)])
    const interrupted = here.eventLog.append(interruptOf(other))
    await outside.blocked()
    await outside.query('COMMIT')
    expect(await interrupted).toMatchObject({ kind: 'appended' })
    expect(await here.db.chunk.count({ where: { sessionId: other.sessionId } })).toBe(1)
  })

  it('PROMISE-039: one that began before a renewal and an interrupt and comes to the claim behind both writes nothing', async () => {
    const steps = [await talking(), await talking()].toSorted((a, b) => (a.sessionId < b.sessionId ? -1 : 1))
    const [first, second] = steps as [RunningStep, RunningStep]
    const holder = await beside(database.url)
    try {
      await holder.query('BEGIN')
      await holder.query('SELECT 1 FROM "Claim" WHERE "sessionId" = $1 FOR UPDATE', [first.sessionId])
      const flush = outside.query(writing, [chunksOf(first, second)])
      await outside.blocked()
      expect(await renewClaims(core.db, here.owner, [second.executionId], 900_000)).toHaveLength(1)
      expect(await here.eventLog.append(interruptOf(second))).toMatchObject({ kind: 'appended' })
      await holder.query('ROLLBACK')
      expect(await flush).toEqual([{ written: [0] }])
      expect(await here.db.chunk.count({ where: { sessionId: second.sessionId } })).toBe(0)
    } finally {
      await holder.close()
    }
  })
})
