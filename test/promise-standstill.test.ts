import { afterAll, beforeAll, expect, it } from 'vitest'
import { newOwnerId } from '../src/ids.ts'
import { createLog } from '../src/log.ts'
import { createMetrics } from '../src/metrics.ts'
import { createLiveness } from '../src/recovery/liveness.ts'
import type { Core } from '../src/runner/core.ts'
import { createHold } from '../src/runner/hold.ts'
import { createLeases } from '../src/runner/leases.ts'
import { createStandstill } from '../src/standstill.ts'
import { startCore, type TestCore } from './support/core.ts'
import { cutOff, quiet } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { stealClaim } from './support/stage.ts'

// A machine that is suspended and goes on: the monotonic clock has stood still with it, the wall clock has not. And a wall clock that is set.

const hour = 3_600_000
let database: TestDatabase
let running: TestCore
let core: Core
beforeAll(async () => {
  database = await createTestDatabase()
  running = await startCore({ url: database.url, config: { livenessGraceMs: 60_000 } })
  core = running.core
  quiet(core)
})
afterAll(async () => {
  await running?.stop()
  await database?.drop()
})

const silent = createLog('silent')

/** A hold whose claim is there, with clocks of its own. */
async function held() {
  const owner = newOwnerId()
  const { sessionId, executionId } = await cutOff(core, { owner, leaseMs: 10 * hour })
  const clock = { now: 0, wall: 1_000_000 }
  const leases = createLeases({
    db: core.db,
    owner,
    leaseMs: 30_000,
    renewMs: 10 * hour,
    log: silent,
    metrics: createMetrics(),
    // Time goes on a little whenever it is asked for.
    now: () => (clock.now += 0.001),
    wall: () => clock.wall,
  })
  const hold = createHold(sessionId, executionId, owner)
  leases.add(hold, clock.now)
  const expiry = async () => (await core.db.claim.findUniqueOrThrow({ where: { sessionId } })).expiresAt.getTime()
  return { sessionId, clock, leases, hold, expiry }
}

it('PROMISE-081: after the machine slept nothing is started for a claim that was taken over meanwhile, however fresh it looks', async () => {
  const { sessionId, clock, leases, hold } = await held()
  try {
    clock.now += 5
    clock.wall += 5
    expect(await leases.mayStart(hold)).toBe(true)
    await stealClaim(core.db, sessionId)
    clock.now += 5
    clock.wall += hour
    expect(await leases.mayStart(hold)).toBe(false)
    expect(hold.ended).toBe('lost')
  } finally {
    leases.close()
  }
})

it('PROMISE-082: a wall clock that is set forward costs a renewal and no claim; one that is set back costs nothing', async () => {
  const { clock, leases, hold, expiry } = await held()
  try {
    const first = await expiry()
    clock.now += 5
    clock.wall -= hour
    expect(await leases.mayStart(hold)).toBe(true)
    expect(await expiry()).toBe(first)
    clock.now += 5
    clock.wall += 2 * hour
    expect(await leases.mayStart(hold)).toBe(true)
    const second = await expiry()
    expect(second).not.toBe(first)
    clock.now += 5
    clock.wall += 5
    expect(await leases.mayStart(hold)).toBe(true)
    expect(await expiry()).toBe(second)
    expect(hold.ended).toBeNull()
  } finally {
    leases.close()
  }
})

it('PROMISE-083: after the machine slept the liveness lock counts once the database has answered anew; how long the locks of others are free is not counted by the wall clock', async () => {
  const clock = { now: 0, wall: 1_000_000 }
  const dead = newOwnerId()
  await cutOff(core, { owner: dead, leaseMs: 10 * hour })
  const live = createLiveness({
    url: database.url,
    owner: newOwnerId(),
    graceMs: 2000,
    returnsWithinMs: 0,
    log: silent,
    now: () => clock.now,
    wall: () => clock.wall,
  })
  try {
    expect(await live.whenHeld()).toBe(true)
    expect((await live.observe()).dead).toEqual([])
    clock.now += 1
    clock.wall += hour
    expect(live.isHeld()).toBe(false)
    clock.now += 1
    expect(await live.whenHeld()).toBe(true)
    const seen = await live.observe()
    expect(seen.dead).toEqual([])
    expect(seen.lookAgainInMs).not.toBeNull()
  } finally {
    await live.close()
  }
})

it('PROMISE-084: small differences of the clocks add up until they are noticed, and are noticed once', () => {
  const clock = { now: 0, wall: 0 }
  const standstill = createStandstill(
    () => clock.now,
    () => clock.wall,
  )
  const after = (now: number, wall: number) => {
    clock.now += now
    clock.wall += wall
    return standstill.noticedAt()
  }
  expect(after(100, 500)).toBe(Number.NEGATIVE_INFINITY)
  expect(after(100, 300)).toBe(200)
  expect(after(1000, 1100)).toBe(200)
  // Set back, and put right again later: that is told from no sleep.
  expect(after(100, -5000)).toBe(200)
  expect(after(100, 5200)).toBe(1400)
})
