// The poll behind the activity streams of a process: what moved although nobody rang. One statement per interval for all of them,
// and none while nobody listens.

import { onOwnBehalf } from './behalf.ts'
import type { Db } from './db.ts'
import { realTimers, type Timers } from './pull.ts'

export interface MovedSession {
  id: string
  seq: number
}

interface Watcher {
  tenant: string
  /** On this process's clock, in ms. */
  since: number
  moved(sessions: MovedSession[]): void
}

interface PollSources {
  db: Db
  config: { pollMs: number }
  clock?: Timers
}

/** A time is given out before its commit becomes visible; no append takes longer from the one to the other. */
const overlapMs = 10_000
/** The newest ones; of more than these the doorbell alone tells. */
const rowsMax = 10_000

interface Poll {
  watchers: Set<Watcher>
  cancel: () => void
  /** The newest change that was seen, in ms of the database's clock. */
  newest: number | null
}

const polls = new WeakMap<Db, Poll>()

async function look(sources: PollSources, clock: Timers, poll: Poll): Promise<void> {
  const watchers = [...poll.watchers]
  const tenants = [...new Set(watchers.map((watcher) => watcher.tenant))]
  const rows = await sources.db.$queryRaw<{ id: string; tenant: string; seq: number; ms: number; now: number }[]>`
    SELECT id, tenant, seq, (extract(epoch FROM "updatedAt") * 1000)::float8 AS ms, (extract(epoch FROM n.now) * 1000)::float8 AS now
      FROM (SELECT holdfast_now() AS now) n, "Session"
     WHERE tenant = ANY (${tenants})
       AND "updatedAt" > COALESCE(to_timestamp(${poll.newest}::float8 / 1000), n.now) - ${overlapMs} * interval '1 millisecond'
     ORDER BY "updatedAt" DESC LIMIT ${rowsMax}`
  if (rows.length === 0) return
  poll.newest = Math.max(poll.newest ?? 0, rows[0]!.ms)
  // Between the two clocks, measured late rather than early: rather one item too many than a change that nobody hears of.
  const ahead = rows[0]!.now - clock.now()
  for (const { tenant, since, moved } of watchers)
    moved(rows.filter((row) => row.tenant === tenant && row.ms >= since + ahead))
}

/**
 * Calls `moved` with sessions of the tenant that have changed since now; may repeat one that was told already (compare its seq).
 * A failed poll is made up for by the next one. Returns how to stop.
 */
export function watchActivity(sources: PollSources, tenant: string, moved: Watcher['moved']): () => void {
  const clock = sources.clock ?? realTimers
  const watcher = { tenant, since: clock.now(), moved }
  const known = polls.get(sources.db)
  const poll: Poll = known ?? { watchers: new Set(), cancel: () => {}, newest: null }
  poll.watchers.add(watcher)

  function schedule(): void {
    poll.cancel = clock.setTimeout(() => {
      // The doorbell warns about a database that is away; here the next look finds what this one missed.
      // For all that listen, whoever was the first.
      const looked = onOwnBehalf(() => look(sources, clock, poll)).catch(() => {})
      void looked.then(() => poll.watchers.size > 0 && schedule())
    }, sources.config.pollMs)
  }

  if (known === undefined) {
    polls.set(sources.db, poll)
    schedule()
  }
  return () => {
    // The last one ends this poll for good; whoever comes next begins another, so that never two run.
    if (!poll.watchers.delete(watcher) || poll.watchers.size > 0) return
    poll.cancel()
    polls.delete(sources.db)
  }
}
