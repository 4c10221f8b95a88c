// The claim: this owner runs this session under this execution id, in this phase, until this instant. It lives outside the log
// (docs/decisions): a lease is renewed too often to be history, and it is judged by the database's clock alone.
// Moves of a claim go through append; here is what goes without it: reading and renewing.

import type { Db, Tx } from './db.ts'
import type { ExecutionPhase } from './events.ts'

export interface ClaimRow {
  sessionId: string
  executionId: string
  owner: string
  phase: ExecutionPhase
  messageId: string | null
  startedAt: Date
  expiresAt: Date
  /** By the database's clock at the moment of reading. */
  live: boolean
}

/** The claim of a session and whether its lease runs; null if there is none. */
export async function readClaim(db: Tx, sessionId: string): Promise<ClaimRow | null> {
  const rows = await db.$queryRaw<ClaimRow[]>`
    SELECT "sessionId", "executionId", owner, phase, "messageId", "startedAt", "expiresAt", "expiresAt" > holdfast_now() AS live
      FROM "Claim" WHERE "sessionId" = ${sessionId}`
  return rows[0] ?? null
}

export interface Renewed {
  sessionId: string
  executionId: string
  phase: ExecutionPhase
}

/**
 * Renews these executions' claims, as far as this owner still holds them unexpired; one statement, which waits for nobody (design section 9).
 * What is not in the answer is lost (expired, taken over or removed) or locked by somebody, which `readClaim` tells. The phase tells of an
 * interrupt that another process committed.
 */
export async function renewClaims(db: Db, owner: string, executionIds: string[], leaseMs: number): Promise<Renewed[]> {
  return db.$queryRaw<Renewed[]>`
    SELECT "sessionId", "executionId", phase FROM holdfast_renew(${owner}, ${executionIds}, ${leaseMs})`
}
