// At most so many new sessions of a tenant a day, also of many calls at once and over all processes.

import { type AppendOutcome, type AppendRequest, appendIn } from '../append.ts'
import { retrying, type Tx } from '../db.ts'
import { newAppendId } from '../ids.ts'
import type { Core } from './core.ts'
import type { Outcome } from './outcomes.ts'

const dayMs = 24 * 3600 * 1000
/** So far from the limit creations share commits; more than these are not under way at once. Nearer they go one by one. */
const nearLimit = 1000
/** Advisory locks of this kind: one for each tenant. */
const lockKind = 0x0da7
const lockTimeoutMs = 5000

type Limited = Outcome<'LimitExceededError'>

async function readDay(db: Tx, tenant: string, sessionsPerDay: number): Promise<{ made: number } | Limited> {
  const rows = await db.$queryRaw<{ made: number; freeInMs: number | null }[]>`
    SELECT count(*)::int AS made, (EXTRACT(EPOCH FROM min("createdAt") - holdfast_now()) * 1000 + ${dayMs})::float8 AS "freeInMs"
      FROM (SELECT "createdAt" FROM "Session"
             WHERE tenant = ${tenant} AND "createdAt" > (SELECT holdfast_now()) - interval '24 hours'
             ORDER BY "createdAt" DESC LIMIT ${sessionsPerDay}) recent`
  const { made, freeInMs } = rows[0]!
  if (made < sessionsPerDay) return { made }
  return {
    type: 'LimitExceededError',
    message: `at most ${sessionsPerDay} new sessions a day`,
    limit: 'sessionsPerDay',
    retryAfterMs: Math.max(0, Math.ceil(freeInMs ?? 0)),
  }
}

/** Appends the creation of a session, unless the tenant has made as many as it may. */
export async function createWithinDay(
  core: Core,
  tenant: string,
  request: AppendRequest,
): Promise<AppendOutcome | Limited> {
  const { sessionsPerDay } = core.config.limits
  const day = await readDay(core.db, tenant, sessionsPerDay)
  if ('type' in day) return day
  if (day.made + nearLimit <= sessionsPerDay) return core.eventLog.append(request)
  // One connection of this process waits for the tenant's lock at a time.
  const outcome = await core.turns.take(`${tenant} new`, 'caller', () => createUnderLock(core, tenant, request))
  if (!('type' in outcome) && outcome.kind === 'appended') core.doorbell.ring([request.sessionId])
  return outcome
}

function createUnderLock(core: Core, tenant: string, request: AppendRequest): Promise<AppendOutcome | Limited> {
  const { sessionsPerDay } = core.config.limits
  const appendId = newAppendId()
  return retrying(() =>
    core.db.$transaction(async (tx): Promise<AppendOutcome | Limited> => {
      await tx.$executeRaw`SELECT set_config('lock_timeout', ${`${lockTimeoutMs}ms`}, true)`
      await tx.$executeRaw`SELECT pg_advisory_xact_lock(${lockKind}::int, hashtext(${tenant}))`
      // Counted behind the lock: what others have made is committed. So is what this very call has made, if its reply was lost.
      const mine = await tx.event.findFirst({ where: { appendId, ordinal: 0 }, select: { seq: true, at: true } })
      if (mine !== null) return { kind: 'appended', seq: mine.seq, lastSeq: mine.seq, at: mine.at, appendId }
      const day = await readDay(tx, tenant, sessionsPerDay)
      return 'type' in day ? day : appendIn(tx, request, core.owner, appendId)
    }),
  )
}
