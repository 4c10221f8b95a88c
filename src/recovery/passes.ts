// What a scan looks for, page by page with a key cursor: each function gives the next page of rows that owe something (design section
// 9). The partial indexes of the migration carry them, so a scan costs what is owed. Only keys are read here: a row that cannot be
// read must not hide its neighbours.

import type { Tx } from '../db.ts'

export const pageSize = 100

export interface ClaimKey {
  sessionId: string
  executionId: string
  /** The expiry as text: an unreadable one is still a key. */
  expiry: string
}

/** Claims whose lease has run out, of sessions that are not set aside. */
export const expiredClaims = (db: Tx, after: ClaimKey | null): Promise<ClaimKey[]> => db.$queryRaw`
  SELECT c."sessionId", c."executionId", c."expiresAt"::text AS expiry FROM "Claim" c
   WHERE c."expiresAt" <= (SELECT holdfast_now())
     AND (c."expiresAt", c."sessionId") > (${after?.expiry ?? '-infinity'}::timestamptz, ${after?.sessionId ?? ''})
     AND NOT EXISTS (SELECT 1 FROM "Quarantine" q
                      WHERE q."sessionId" = c."sessionId" AND q."resolvedAt" IS NULL AND q.kind = 'EXECUTION')
   ORDER BY c."expiresAt", c."sessionId" LIMIT ${pageSize}`

/** Claims of one owner, expired or not. */
export const claimsOf = (db: Tx, owner: string, after: string): Promise<ClaimKey[]> => db.$queryRaw`
  SELECT c."sessionId", c."executionId", c."expiresAt"::text AS expiry FROM "Claim" c
   WHERE c.owner = ${owner} AND c."sessionId" > ${after}
     AND NOT EXISTS (SELECT 1 FROM "Quarantine" q
                      WHERE q."sessionId" = c."sessionId" AND q."resolvedAt" IS NULL AND q.kind = 'EXECUTION')
   ORDER BY c."sessionId" LIMIT ${pageSize}`

export interface ArmedRecovery {
  id: string
  sessionId: string
  executionId: string
  continuationMessageId: string
  /** Of the continuation input; null if this session has none of that id. */
  inputKind: string | null
  inputState: string | null
  claimed: boolean
}

/** Armed recovery rows that nobody has set aside or discarded. */
export const armedRecoveries = (db: Tx, after: { sessionId: string; id: string } | null): Promise<ArmedRecovery[]> =>
  db.$queryRaw`
  SELECT r.id, r."sessionId", r."executionId", r."continuationMessageId", i.kind AS "inputKind", i.state AS "inputState",
         EXISTS (SELECT 1 FROM "Claim" c WHERE c."sessionId" = r."sessionId") AS claimed
    FROM "Recovery" r LEFT JOIN "Input" i ON i."sessionId" = r."sessionId" AND i.id = r."continuationMessageId"
   WHERE r."wakePending" AND (r."sessionId", r.id) > (${after?.sessionId ?? ''}, ${after?.id ?? ''})
     AND NOT EXISTS (SELECT 1 FROM "Quarantine" q WHERE q."sessionId" = r."sessionId"
                        AND (q.kind = 'EXECUTION' AND q."resolvedAt" IS NULL
                             OR q.kind = 'RECOVERY' AND q."executionId" = r."executionId"
                                AND (q."resolvedAt" IS NULL OR q.action = 'DISCARD')))
   ORDER BY r."sessionId", r.id LIMIT ${pageSize}`

/**
 * Sessions in which something is armed or owed: inputs, decided interactions, steps. `due`: the system itself must start it now; not one
 * that is claimed, parked, set aside, not due yet, or waiting for a person with nothing decided. The page is cut before that is looked at,
 * so that with thousands of them each page costs no more than itself.
 */
export const owedSessions = (db: Tx, after: string): Promise<{ id: string; due: boolean }[]> => db.$queryRaw`
  SELECT s.id,
         s."parkedReason" IS NULL AND (s."retryAt" IS NULL OR s."retryAt" <= (SELECT holdfast_now()))
         AND NOT EXISTS (SELECT 1 FROM "Claim" c WHERE c."sessionId" = s.id)
         AND NOT EXISTS (SELECT 1 FROM "Quarantine" q
                          WHERE q."sessionId" = s.id AND q."resolvedAt" IS NULL AND q.kind = 'EXECUTION')
         AND (NOT EXISTS (SELECT 1 FROM "Interaction" n WHERE n."sessionId" = s.id AND n.state = 'OPEN')
              OR EXISTS (SELECT 1 FROM "Interaction" n WHERE n."sessionId" = s.id AND n."wakePending")) AS due
    FROM (SELECT id FROM (
            (SELECT DISTINCT "sessionId" AS id FROM "Input" WHERE "wakePending" AND "sessionId" > ${after} ORDER BY id LIMIT ${pageSize})
            UNION (SELECT DISTINCT "sessionId" FROM "Interaction" WHERE "wakePending" AND "sessionId" > ${after} ORDER BY 1 LIMIT ${pageSize})
            UNION (SELECT o.id FROM "Session" o WHERE o."stepOwed" AND o.id > ${after} ORDER BY o.id LIMIT ${pageSize})) found
           ORDER BY id LIMIT ${pageSize}) owed
    JOIN "Session" s ON s.id = owed.id
   ORDER BY s.id`

export interface ExpiringKey {
  id: string
  sessionId: string
  expiry: string
}

/** Open interactions past their expiry. One whose execution is being cleaned up or set aside ends with that. */
export const expiredInteractions = (db: Tx, after: ExpiringKey | null): Promise<ExpiringKey[]> => db.$queryRaw`
  SELECT n.id, n."sessionId", n."expiresAt"::text AS expiry FROM "Interaction" n
   WHERE n.state = 'OPEN' AND n."expiresAt" <= (SELECT holdfast_now())
     AND (n."expiresAt", n.id) > (${after?.expiry ?? '-infinity'}::timestamptz, ${after?.id ?? ''})
     AND NOT EXISTS (SELECT 1 FROM "Claim" c WHERE c."sessionId" = n."sessionId" AND c.phase = 'CANCELLING')
     AND NOT EXISTS (SELECT 1 FROM "Quarantine" q
                      WHERE q."sessionId" = n."sessionId" AND q."resolvedAt" IS NULL AND q.kind = 'EXECUTION')
   ORDER BY n."expiresAt", n.id LIMIT ${pageSize}`

/** What the gauges show. */
export async function countSetAside(db: Tx): Promise<{ parked: number; quarantined: number }> {
  const rows = await db.$queryRaw<{ parked: number; quarantined: number }[]>`
    SELECT (SELECT count(*)::int FROM "Session" WHERE "parkedReason" IS NOT NULL) AS parked,
           (SELECT count(*)::int FROM "Quarantine" WHERE "resolvedAt" IS NULL) AS quarantined`
  return rows[0]!
}
