// The poll behind the activity streams of a process: what moved although nobody rang. One statement per interval for all of them.

import { onOwnBehalf } from './behalf.ts'
import type { Db } from './db.ts'
import type { Timers } from './pull.ts'

/** A session that has changed. */
export interface Polled {
  id: string
  tenant: string
  seq: number
  /** When, in ms of this process's clock, measured late rather than early: rather one item too many than a change that nobody hears of. */
  at: number
}

export interface PollSources {
  db: Db
  config: { pollMs: number }
}

/** A time is given out before its commit becomes visible; no append takes longer from the one to the other. */
const overlapMs = 10_000
/** The newest ones; of more than these the doorbell alone tells. */
const rowsMax = 10_000

/**
 * Calls `moved` in intervals with sessions of these tenants that have changed; may repeat one that was told already (compare its seq). A failed
 * poll is made up for by the next one. Returns how to stop.
 */
export function pollActivity(
  { db, config }: PollSources,
  clock: Timers,
  tenants: () => string[],
  moved: (sessions: Polled[]) => void,
): () => void {
  /** The newest change that was seen, in ms of the database's clock. */
  let newest: number | null = null
  let stopped = false
  let cancel = () => {}

  async function look(): Promise<void> {
    const rows = await db.$queryRaw<{ id: string; tenant: string; seq: number; ms: number; now: number }[]>`
      SELECT id, tenant, seq, (extract(epoch FROM "updatedAt") * 1000)::float8 AS ms, (extract(epoch FROM n.now) * 1000)::float8 AS now
        FROM (SELECT holdfast_now() AS now) n, "Session"
       WHERE tenant = ANY (${tenants()})
         AND "updatedAt" > COALESCE(to_timestamp(${newest}::float8 / 1000), n.now) - ${overlapMs} * interval '1 millisecond'
       ORDER BY "updatedAt" DESC LIMIT ${rowsMax}`
    if (rows.length === 0 || stopped) return
    newest = Math.max(newest ?? 0, rows[0]!.ms)
    const ahead = rows[0]!.now - clock.now()
    moved(rows.map(({ id, tenant, seq, ms }) => ({ id, tenant, seq, at: ms - ahead })))
  }

  function schedule(): void {
    cancel = clock.setTimeout(() => {
      // The doorbell warns about a database that is away; here the next look finds what this one missed.
      // For all that listen, whoever was the first.
      void onOwnBehalf(look)
        .catch(() => {})
        .then(() => stopped || schedule())
    }, config.pollMs)
  }

  schedule()
  return () => {
    stopped = true
    cancel()
  }
}
