import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest'
import { createAppendQueue } from '../src/append-queue.ts'
import { connect, type Db, isTransient, retrying } from '../src/db.ts'
import { event } from '../src/events.ts'
import { newExecutionId } from '../src/ids.ts'
import { createLog } from '../src/log.ts'
import { createMetrics } from '../src/metrics.ts'
import { createLiveness } from '../src/recovery/liveness.ts'
import { createHold } from '../src/runner/hold.ts'
import { createLeases } from '../src/runner/leases.ts'
import { inconsistencies } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { eventually } from './support/eventually.ts'
import { type LossyWire, lossyWire } from './support/lost-reply.ts'
import { created } from './support/story.ts'
import { newSessionId, type StreamProcess, streamProcess, titled } from './support/stream-process.ts'

// The network is gone without a word: what was asked may have been done, no answer comes, and no connection is closed.

let database: TestDatabase
let beside: StreamProcess
let wire: LossyWire
let db: Db
beforeAll(async () => {
  database = await createTestDatabase()
  beside = streamProcess(database.url)
})
afterAll(async () => {
  await beside?.close()
  await database?.drop()
})
beforeEach(async () => {
  wire = await lossyWire(database.url)
  // One connection: it is of use again, or nothing is.
  db = connect(wire.url, 1, 400)
})
afterEach(async () => {
  await wire.close()
  await db.$disconnect()
  expect(await inconsistencies(beside.db)).toEqual([])
})

const newSession = async () => {
  const sessionId = newSessionId()
  await beside.eventLog.append({ sessionId, events: [created()] })
  return sessionId
}
const thrownBy = (work: Promise<unknown>) =>
  work.then(
    () => null,
    (thrown: unknown) => thrown,
  )

it('LOG-21: an append whose answer never comes is looked up over another connection, and is there once', async () => {
  const queue = createAppendQueue({ db, origin: 'own_.silent', committed: () => {} })
  const sessionId = await newSession()
  wire.swallow(['holdfast_append', 'into silence'])
  expect(await queue.append({ sessionId, events: [titled('into silence')] })).toMatchObject({ seq: 2 })
  expect(wire.lost()).toBe(1)
  expect(await queue.append({ sessionId, events: [titled('next')] })).toMatchObject({ kind: 'appended', seq: 3 })
})

it('DB-01: a statement and a COMMIT without an answer fail as ones that may be tried again, and the connection is given up', async () => {
  const sessionId = await newSession()
  const read = () => db.session.findUniqueOrThrow({ where: { id: sessionId } })
  wire.swallow(['SELECT', sessionId])
  const reading = await thrownBy(read())
  expect(isTransient(reading), String(reading)).toBe(true)
  expect(await read()).toMatchObject({ id: sessionId })
  wire.swallow(['SELECT 77'])
  const within = await thrownBy(db.$transaction((tx) => tx.$queryRaw`SELECT 77`))
  expect(isTransient(within), String(within)).toBe(true)
  wire.swallow(['COMMIT'])
  const committing = await thrownBy(db.$transaction((tx) => tx.$queryRaw`SELECT 78`))
  expect(isTransient(committing), String(committing)).toBe(true)
  expect(wire.lost()).toBe(3)
  expect(await retrying(read)).toMatchObject({ id: sessionId })
})

it('CLAIM-23: a liveness connection that goes silent before its lock is granted is made anew', async () => {
  const log = createLog('silent')
  wire.swallow(['pg_advisory_lock'])
  const liveness = createLiveness({ url: wire.url, owner: 'own_.silent1', graceMs: 400, silentMs: 400, log })
  expect(await liveness.whenHeld(AbortSignal.timeout(20_000))).toBe(true)
  expect(wire.lost()).toBe(1)
  await liveness.close()
})

it('CLAIM-14: a renewal that is not answered does not keep the next one from going out', async () => {
  const sessionId = await newSession()
  const owner = 'own_.silent2'
  const hold = createHold(sessionId, newExecutionId(), owner)
  const { executionId } = hold
  await beside.eventLog.append({
    sessionId,
    events: [event('execution.started', { executionId })],
    claim: { kind: 'acquire', executionId, owner, leaseMs: 60_000 },
  })
  const pool = connect(wire.url, 2)
  const leases = createLeases({
    db: pool,
    owner,
    leaseMs: 600_000,
    renewMs: 600_000,
    patienceMs: 300,
    log: createLog('silent'),
    metrics: createMetrics(),
  })
  leases.add(hold, performance.now())
  wire.swallow(['holdfast_renew'])
  await leases.renewNow()
  await eventually('the answer to be lost', () => wire.lost() === 1)
  const expiry = async () => (await beside.db.claim.findUniqueOrThrow({ where: { sessionId } })).expiresAt.getTime()
  const before = await expiry()
  // Over another connection, which a slow machine may not have made within the patience of the first try.
  await eventually('the next renewal', async () => {
    await leases.renewNow()
    return (await expiry()) > before
  })
  expect(hold.ended).toBeNull()
  leases.close()
  await beside.eventLog.append({
    sessionId,
    events: [event('execution.settled', { executionId, outcome: 'SUCCEEDED', retryAt: null })],
    fence: hold.fence(['READY']),
    claim: { kind: 'remove' },
  })
  await wire.close()
  await pool.$disconnect()
})
