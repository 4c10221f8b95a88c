// What the rows say about one claim whose owner cannot be asked: gathered here, classified in resolution.ts.

import type { Tx } from '../db.ts'
import type { StepError } from '../events.ts'
import { type OpenRows, readOpenOf } from '../runner/settle-open.ts'

export interface Evidence {
  /** As of the first read: what moves it afterwards makes the decision stale. */
  seq: number
  claim: {
    executionId: string
    owner: string
    /** As it stands in the row, known to this version or not. */
    phase: string
    messageId: string | null
    expiresAt: Date
    expired: boolean
    /** By the database's clock; negative while the lease runs. */
    expiredForMs: number
  }
  /** The step that the claim names: its status, and what its terminal says of going on (null without a terminal). */
  step: { messageId: string; status: string; continues: boolean | null } | null
  newestAssistantId: string | null
  stepOwed: boolean
  /** Counted recoveries since a person last acted or a step ended clean. */
  recoveries: number
  /** The last failure of the open step that led to a back-off. */
  retryError: StepError | null
  /** The execution has its end in the log already. */
  hasEnd: boolean
  /** Set aside and not resolved. */
  quarantined: boolean
  open: OpenRows
}

type Row = Omit<Evidence, 'claim' | 'step' | 'open'> &
  Evidence['claim'] & { sessionId: string; stepStatus: string | null; stepContinues: boolean | null }

/** The evidence about the claims of these sessions; one without a claim is not in the answer. Throws on rows that cannot be read. */
export async function readEvidenceOf(tx: Tx, sessionIds: readonly string[]): Promise<Map<string, Evidence>> {
  const rows = await tx.$queryRaw<Row[]>`
    SELECT s.id AS "sessionId", s.seq, s."stepOwed", s.recoveries, c."executionId", c.owner, c.phase, c."messageId", c."expiresAt",
           c."expiresAt" <= n.now AS expired, (extract(epoch FROM n.now - c."expiresAt") * 1000)::float8 AS "expiredForMs",
           (SELECT m.status FROM "Message" m WHERE m."sessionId" = s.id AND m.id = c."messageId" AND m.kind = 'ASSISTANT') AS "stepStatus",
           (SELECT (e.payload->>'continues')::boolean FROM "Event" e
             WHERE e."sessionId" = s.id AND e.type IN ('step.ended', 'step.failed', 'step.interrupted')
               AND e.payload->>'messageId' = c."messageId") AS "stepContinues",
           (SELECT m.id FROM "Message" m WHERE m."sessionId" = s.id AND m.kind = 'ASSISTANT' ORDER BY m.seq DESC LIMIT 1) AS "newestAssistantId",
           (SELECT e.payload->'error' FROM "Message" m JOIN "Event" e ON e."sessionId" = m."sessionId" AND e.seq > m.seq
             WHERE m."sessionId" = s.id AND m.status = 'RUNNING' AND m.kind = 'ASSISTANT'
               AND e.type = 'step.retry_scheduled' AND e.payload->>'messageId' = m.id ORDER BY e.seq DESC LIMIT 1) AS "retryError",
           EXISTS (SELECT 1 FROM "Event" e WHERE e."sessionId" = s.id AND e.type IN ('execution.settled', 'step.recovered')
                      AND e.payload->>'executionId' = c."executionId") AS "hasEnd",
           EXISTS (SELECT 1 FROM "Quarantine" q WHERE q."sessionId" = s.id AND q."resolvedAt" IS NULL AND q.kind = 'EXECUTION') AS quarantined
      FROM "Session" s JOIN "Claim" c ON c."sessionId" = s.id CROSS JOIN (SELECT holdfast_now() AS now) n
     WHERE s.id = ANY (${sessionIds})`
  // Read after the seq that a decision expects: what moves in between makes it stale.
  const open = await readOpenOf(
    tx,
    rows.map(({ sessionId }) => sessionId),
  )
  return new Map(rows.map((row) => [row.sessionId, evidenceOf(row, open.get(row.sessionId)!)]))
}

/** The evidence about one session's claim; null if there is none. Throws on rows that cannot be read. */
export async function readEvidence(tx: Tx, sessionId: string): Promise<Evidence | null> {
  return (await readEvidenceOf(tx, [sessionId])).get(sessionId) ?? null
}

function evidenceOf({ sessionId, stepStatus, stepContinues, ...row }: Row, open: OpenRows): Evidence {
  const { executionId, owner, phase, messageId, expiresAt, expired, expiredForMs, ...rest } = row
  // A takeover names the very expiry it saw, so it has to be a time.
  if (Number.isNaN(expiresAt.getTime())) throw new Error(`the expiry of the claim of ${sessionId} is not a time`)
  const step =
    messageId !== null && stepStatus !== null ? { messageId, status: stepStatus, continues: stepContinues } : null
  return { ...rest, claim: { executionId, owner, phase, messageId, expiresAt, expired, expiredForMs }, step, open }
}
