// What a process may still start by its own count and by its liveness lock (design section 9). No database is asked for that.
import { afterEach, expect, it } from 'vitest'
import type { Db } from '../src/db.ts'
import { createLog } from '../src/log.ts'
import { createMetrics } from '../src/metrics.ts'
import { createHold, HoldEnded } from '../src/runner/hold.ts'
import { type Alive, createLeases, type Leases } from '../src/runner/leases.ts'

const leaseMs = 30_000
const opened: Leases[] = []
afterEach(() => {
  for (const leases of opened.splice(0)) leases.close()
})

/** Timers of its own never fire within a test: what is asked here is answered at once. */
function leasesOf(now: () => number, alive: Alive | null = null): Leases {
  const nobody = {} as Db
  const log = createLog('silent')
  const options = {
    db: nobody,
    owner: 'own_.me',
    leaseMs,
    renewMs: 3_600_000,
    log,
    metrics: createMetrics(),
    alive,
    now,
  }
  const leases = createLeases(options)
  opened.push(leases)
  return leases
}
const holdOf = (n: number) => createHold(`ses_${n}`, `exe_.${n}`, 'own_.me')

it('CLAIM-15: a second before its lease can have run out by its own count a hold may start nothing any more', async () => {
  let time = 0
  const leases = leasesOf(() => time)
  const [fresh, late, stopped, unknown] = [holdOf(1), holdOf(2), holdOf(3), holdOf(4)] as const
  for (const hold of [fresh, late, stopped]) leases.add(hold, 0)
  time = leaseMs - 1000
  expect(await leases.mayStart(fresh)).toBe(true)
  await leases.mustStart(fresh)
  // One that was interrupted is not asked for its time.
  stopped.end('cancelled')
  expect(await leases.mayStart(stopped)).toBe(false)
  await expect(leases.mustStart(stopped)).rejects.toMatchObject({ name: 'HoldEnded', end: 'cancelled' })
  expect(await leases.mayStart(unknown)).toBe(false)
  time += 1
  expect(await leases.mayStart(late)).toBe(false)
  expect(late.ended).toBe('lost')
  await expect(leases.mustStart(fresh)).rejects.toBeInstanceOf(HoldEnded)
  expect(fresh.signal.aborted).toBe(true)
})

it('CLAIM-23: while its liveness lock is not held a hold waits, and starts nothing if it ends meanwhile', async () => {
  let isHeld = false
  const waiters: ((held: boolean) => void)[] = []
  const alive: Alive = {
    isHeld: () => isHeld,
    whenHeld: (signal) =>
      new Promise((resolve) => {
        waiters.push(resolve)
        signal?.addEventListener('abort', () => resolve(false))
      }),
  }
  const leases = leasesOf(() => 0, alive)
  const [waits, ends] = [holdOf(1), holdOf(2)] as const
  for (const hold of [waits, ends]) leases.add(hold, 0)
  const answers: [string, boolean][] = []
  const asking = leases.mayStart(waits).then((may) => void answers.push(['waits', may]))
  const ending = leases.mayStart(ends).then((may) => void answers.push(['ends', may]))
  await new Promise((resolve) => setImmediate(resolve))
  expect(answers).toEqual([])
  expect(waiters).toHaveLength(2)
  ends.end('cancelled')
  await ending
  isHeld = true
  waiters[0]!(true)
  await asking
  expect(answers).toEqual([
    ['ends', false],
    ['waits', true],
  ])
})
