// Work is a question (design section 2, idea 3): `readWork` gathers the durable rows in one snapshot, the functions below answer
// from them. Pure but for the one read; drain, scans and mutations ask the same questions.

import type { Tx } from '../db.ts'
import type { Delivery, ExecutionPhase, InputKind, RecoveryPhase } from '../events.ts'

export interface PendingInput {
  id: string
  kind: InputKind
  delivery: Delivery
  armed: boolean
  /** Of a continuation: what its recovery found. Only UNKNOWN is shown to the model. */
  recoveryPhase: RecoveryPhase | null
}

export interface Work {
  seq: number
  model: string
  stepOwed: boolean
  parked: boolean
  quarantined: boolean
  /** Given back for now: not before this has passed. */
  backingOff: boolean
  /** In admission order. */
  pending: PendingInput[]
  openInteractions: number
  armedInteractions: number
  /** The step or compaction that has no terminal yet. */
  open: { messageId: string; kind: 'ASSISTANT' | 'COMPACTION'; streamed: boolean } | null
  claim: { executionId: string; owner: string; phase: ExecutionPhase; live: boolean } | null
}

/** All that decides about a session's next move, of one moment; null for an unknown session. */
export async function readWork(db: Tx, sessionId: string): Promise<Work | null> {
  const rows = await db.$queryRaw<Work[]>`
    SELECT s.seq, s.model, s."stepOwed", s."parkedReason" IS NOT NULL AS parked,
           EXISTS (SELECT 1 FROM "Quarantine" q WHERE q."sessionId" = s.id AND q."resolvedAt" IS NULL AND q.kind = 'EXECUTION') AS quarantined,
           COALESCE(s."retryAt" > holdfast_now(), false) AS "backingOff",
           COALESCE((SELECT jsonb_agg(jsonb_build_object('id', i.id, 'kind', i.kind, 'delivery', i.delivery, 'armed', i."wakePending",
                                                         'recoveryPhase', r.phase) ORDER BY i."admittedSeq")
                       FROM "Input" i LEFT JOIN "Recovery" r ON r."sessionId" = i."sessionId" AND r."continuationMessageId" = i.id
                      WHERE i."sessionId" = s.id AND i.state = 'PENDING'), '[]') AS pending,
           (SELECT count(*)::int FROM "Interaction" n WHERE n."sessionId" = s.id AND n.state = 'OPEN') AS "openInteractions",
           (SELECT count(*)::int FROM "Interaction" n WHERE n."sessionId" = s.id AND n."wakePending") AS "armedInteractions",
           (SELECT jsonb_build_object('messageId', m.id, 'kind', m.kind, 'streamed', m.streamed)
              FROM "Message" m WHERE m."sessionId" = s.id AND m.status = 'RUNNING' ORDER BY m.seq DESC LIMIT 1) AS open,
           (SELECT jsonb_build_object('executionId', c."executionId", 'owner', c.owner, 'phase', c.phase, 'live', c."expiresAt" > holdfast_now())
              FROM "Claim" c WHERE c."sessionId" = s.id) AS claim
      FROM "Session" s WHERE s.id = ${sessionId}`
  return rows[0] ?? null
}

/** Is something armed or owed, so that the system itself must see to it? Unarmed inputs alone wake nothing (section 5). */
export const isOwed = (work: Work) =>
  work.stepOwed || work.armedInteractions > 0 || work.pending.some(({ armed }) => armed)

/** May a drain start now? */
export function isEligible(work: Work): boolean {
  if (work.claim !== null || work.parked || work.quarantined || work.backingOff) return false
  // While a person is asked no boundary is reached; a decided interaction is work all the same.
  if (work.openInteractions > 0) return work.armedInteractions > 0
  return isOwed(work)
}

/**
 * What a safe boundary asks for (section 5).
 * - `step`: promote these inputs, in this order, and make the request
 * - `compact`: run this compaction request alone
 * - `rest`: nothing to ask; `promote` holds a continuation that asks for nothing by itself and settles with the execution
 */
export type Boundary =
  | { kind: 'step'; promote: PendingInput[] }
  | { kind: 'compact'; input: PendingInput }
  | { kind: 'rest'; promote: PendingInput[] }

/** The next move at a safe boundary of a claimed session. Continuations go first, then steers together, then one queued input. */
export function atBoundary(work: Work): Boundary {
  const continuations = work.pending.filter(({ kind }) => kind === 'CONTINUATION')
  const steers = work.pending.filter(
    ({ kind, delivery }) => kind === 'COMPACTION' || (kind === 'PROMPT' && delivery === 'STEER'),
  )
  const barrier = steers.findIndex(({ kind }) => kind === 'COMPACTION')
  const beforeBarrier = barrier === -1 ? steers : steers.slice(0, barrier)
  const asksByItself = continuations.some(({ recoveryPhase }) => recoveryPhase === 'UNKNOWN')
  if (work.stepOwed || asksByItself || beforeBarrier.length > 0) {
    // A compaction request that is first in line runs before the owed step, alone.
    if (barrier === 0 && !asksByItself && continuations.length === 0) return { kind: 'compact', input: steers[0]! }
    return { kind: 'step', promote: [...continuations, ...beforeBarrier] }
  }
  if (barrier === 0) return { kind: 'compact', input: steers[0]! }
  const queued = work.pending.find(({ kind, delivery }) => kind === 'PROMPT' && delivery === 'QUEUE')
  if (queued !== undefined) return { kind: 'step', promote: [...continuations, queued] }
  return { kind: 'rest', promote: continuations }
}
