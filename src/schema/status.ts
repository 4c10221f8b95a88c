import { Prisma } from '../generated/prisma/client.ts'
import { batched } from './batched.ts'
import type { Context } from './context.ts'

export type Status = 'IDLE' | 'RUNNING' | 'WAITING' | 'RECOVERING' | 'PARKED' | 'QUARANTINED'

/**
 * The status of the session row `s` as an SQL expression: the same for showing and for filtering. While a person is
 * waited for no boundary is reached, so only a decided interaction or a claim that ran out is owed work then. An armed
 * recovery that was set aside is not owed: nobody will wake it.
 */
export function statusOf(scanMs: number): Prisma.Sql {
  const waiting = Prisma.sql`EXISTS (SELECT 1 FROM "Interaction" i WHERE i."sessionId" = s.id AND i.state = 'OPEN')`
  const owed = Prisma.sql`(
    EXISTS (SELECT 1 FROM "Claim" c WHERE c."sessionId" = s.id)
    OR EXISTS (SELECT 1 FROM "Interaction" i WHERE i."sessionId" = s.id AND i."wakePending")
    OR NOT ${waiting} AND (
      s."stepOwed"
      OR EXISTS (SELECT 1 FROM "Input" i WHERE i."sessionId" = s.id AND i."wakePending")
      OR EXISTS (SELECT 1 FROM "Recovery" r WHERE r."sessionId" = s.id AND r."wakePending" AND NOT EXISTS (
        SELECT 1 FROM "Quarantine" q
        WHERE q."sessionId" = s.id AND q."executionId" = r."executionId" AND q.kind = 'RECOVERY'
          AND (q."resolvedAt" IS NULL OR q.action = 'DISCARD')))))`
  return Prisma.sql`CASE
    WHEN EXISTS (SELECT 1 FROM "Quarantine" q
                 WHERE q."sessionId" = s.id AND q.kind = 'EXECUTION' AND q."resolvedAt" IS NULL) THEN 'QUARANTINED'
    WHEN s."parkedReason" IS NOT NULL THEN 'PARKED'
    WHEN EXISTS (SELECT 1 FROM "Claim" c WHERE c."sessionId" = s.id AND c."expiresAt" > holdfast_now()) THEN 'RUNNING'
    WHEN s."updatedAt" > holdfast_now() - ${scanMs} * interval '1 millisecond' AND ${owed} THEN 'RUNNING'
    WHEN ${waiting} THEN 'WAITING'
    WHEN ${owed} THEN 'RECOVERING'
    ELSE 'IDLE' END`
}

/** The status of one session; those of a list are read in one statement. */
export const statusFor = batched<string, Status>(async ({ db, core }: Context, ids) => {
  const rows = await db.$queryRaw<{ id: string; status: Status }[]>`
    SELECT s.id, ${statusOf(core.config.scanMs)} AS status FROM "Session" s WHERE s.id = ANY (${ids})`
  const byId = new Map(rows.map((row) => [row.id, row.status]))
  return ids.map((id) => byId.get(id) ?? 'IDLE')
})
