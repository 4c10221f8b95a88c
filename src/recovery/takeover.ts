// The takeover of one claim: evidence, decision, one append inside a Prisma transaction (design sections 3 and 9). The append is a
// compare-and-swap, its own fence: it names the session, execution, owner, phase and very expiry that the decision was taken on, and
// the seq; whatever has moved since refuses it whole.

import type { Db, Tx } from '../db.ts'
import { isClaimRace } from '../errors.ts'
import { type AppendRequest, appendIn, type Fence } from '../event-log.ts'
import { type ExecutionPhase, event, type NewEvent, type StepError } from '../events.ts'
import { continuationIdOf, newQuarantineId } from '../ids.ts'
import type { Core } from '../runner/core.ts'
import { type Ending, type OpenRows, type OpenTool, type Received, settleOpen } from '../runner/settle-open.ts'
import { type Evidence, readEvidence } from './evidence.ts'
import { type Decision, outcomeUnknown, parkReason, resolve } from './resolution.ts'

/**
 * By what right a claim is taken.
 * - `expired`: its lease has run out by the database's clock
 * - `dead`: its owner's liveness lock is held by this process; `isStill` says whether it still is
 * - `handover`: it is this process's own and live; `received` is what its step had received
 * - `failed`: the same of a drain that failed, with nothing of it under way any more
 */
export type Right =
  | { kind: 'expired' }
  | { kind: 'dead'; isStill: () => boolean }
  | { kind: 'handover' | 'failed'; received: Received | null }

/** Is it this process's own claim, and alive? */
const isOwn = (right: Right): right is Extract<Right, { received: unknown }> =>
  right.kind === 'handover' || right.kind === 'failed'

/** `gone`: there was nothing to take, or not by this right (any more). */
export type Taken = 'recovered' | 'parked' | 'cleared' | 'removed' | 'quarantined' | 'gone'

const decideAgainMax = 20

/** Why a tool of a cut-off step has no result: each says whether it can have done anything. */
function cutOffError(tool: OpenTool): StepError {
  if (tool.started) return { code: 'OUTCOME_UNKNOWN', message: 'cut off while it ran; what it did is not known' }
  if (tool.interactionState === 'EXPIRED') return { code: 'EXPIRED', message: 'nobody answered in time; it never ran' }
  return { code: 'NOT_STARTED', message: 'the step was cut off before this tool was started; it never ran' }
}

/** The events that leave nothing open of what was cut off; what became of its compaction nobody knows. */
export const settleCutOff = (open: OpenRows, step: Ending['step'], received: Received | null = null): NewEvent[] =>
  settleOpen(open, { tool: cutOffError, compaction: outcomeUnknown, step, received })

/** What is open of one message alone. */
const openOf = (open: OpenRows, messageId: string): OpenRows => ({
  ...open,
  step: open.step?.messageId === messageId ? open.step : null,
  compaction: null,
  parts: open.parts.filter((part) => part.messageId === messageId),
  tools: open.tools.filter((tool) => tool.messageId === messageId),
  interactions: open.interactions.filter((interaction) => interaction.messageId === messageId),
})

function eventsOf(
  core: Core,
  evidence: Evidence,
  decision: Extract<Decision, { kind: 'Clear' | 'Recover' }>,
  right: Right,
) {
  const { executionId } = evidence.claim
  const { step } = decision
  const end = step === null ? null : { ...step, failed: step.error }
  const received = isOwn(right) ? right.received : null
  if (decision.kind === 'Clear') {
    const open = decision.only === undefined ? evidence.open : openOf(evidence.open, decision.only)
    const settled = event('execution.settled', { executionId, outcome: 'CLEARED', retryAt: null })
    return { events: [...settleCutOff(open, end, received), settled], parks: false }
  }
  const { phase, assistantMessageId, keepsOpen } = decision
  const handover = right.kind === 'handover'
  const recovered = event('step.recovered', {
    executionId,
    assistantMessageId,
    continuationMessageId: continuationIdOf(executionId),
    phase,
    handover,
  })
  // Parked after it was recovered: the projection of the park disarms what the recovery has armed.
  const reason = handover ? null : parkReason(evidence, core.config)
  const parked = reason === null ? [] : [event('session.parked', { reason })]
  const settled = keepsOpen ? [] : settleCutOff(evidence.open, end, received)
  return { events: [...settled, recovered, ...parked], parks: reason !== null }
}

/** The fence of a takeover: the very row that was decided on, by this right. */
function fenceOf({ claim }: Evidence, right: Right): Fence {
  const { executionId, owner, phase } = claim
  const fence: Fence = { executionId, owner, phases: [phase as ExecutionPhase], live: isOwn(right) }
  // The leaving owner goes on renewing until the claim is gone, and a renewal of a failed one's may still be under way.
  if (!isOwn(right)) fence.expiresAt = claim.expiresAt
  if (right.kind === 'expired') fence.expired = true
  return fence
}

/** The one append that a decision stands for. Pure but for the id of a quarantine entry. */
export function requestOf(
  core: Core,
  sessionId: string,
  evidence: Evidence,
  decision: Exclude<Decision, { kind: 'Remove' }>,
  right: Right,
): { request: AppendRequest; taken: Taken } {
  const fence = fenceOf(evidence, right)
  const expectedSeq = evidence.seq
  if (decision.kind === 'Quarantine') {
    const opened = event('quarantine.opened', {
      quarantineId: newQuarantineId(),
      executionId: evidence.claim.executionId,
      quarantineKind: 'EXECUTION',
      reason: decision.reason,
    })
    return { request: { sessionId, events: [opened], fence, expectedSeq }, taken: 'quarantined' }
  }
  const { events, parks } = eventsOf(core, evidence, decision, right)
  const request: AppendRequest = { sessionId, events, fence, expectedSeq, claim: { kind: 'remove' } }
  return { request, taken: decision.kind === 'Clear' ? 'cleared' : parks ? 'parked' : 'recovered' }
}

/**
 * Removes a claim whose execution has its end in the log. A claim is operational, so no event tells of it; the session's lock keeps
 * the order of all other changes of claims.
 */
export async function removeClaim(tx: Tx, sessionId: string, { claim }: Evidence, right: Right): Promise<boolean> {
  await tx.$queryRaw`SELECT id FROM "Session" WHERE id = ${sessionId} FOR NO KEY UPDATE`
  const removed = await tx.$executeRaw`
    DELETE FROM "Claim" WHERE "sessionId" = ${sessionId} AND "executionId" = ${claim.executionId} AND owner = ${claim.owner}
       AND phase = ${claim.phase} AND "expiresAt" = ${claim.expiresAt}
       AND (${right.kind !== 'expired'} OR "expiresAt" <= holdfast_now())`
  return removed === 1
}

/** Is it this execution's claim still, and does the right to it hold? */
export function isTakeable({ claim, quarantined }: Evidence, executionId: string, right: Right): boolean {
  if (claim.executionId !== executionId || quarantined) return false
  if (right.kind === 'expired' && !claim.expired) return false
  return right.kind !== 'dead' || right.isStill()
}

/** Lets everybody know of a takeover that has committed. */
export function announce(core: Core, sessionId: string, executionId: string, taken: Taken, right: Right): void {
  core.doorbell.ring([sessionId])
  if (taken !== 'quarantined') core.metrics.recoveries.inc()
  core.log.info({ sessionId, executionId, taken, right: right.kind }, 'claim taken over')
}

/**
 * Takes one claim over, if the right to it holds. Throws what the database refuses: rows that contradict each other
 * (AppendRefusedError) or cannot be read; the caller sets them aside.
 */
export async function takeOver(core: Core, sessionId: string, executionId: string, right: Right): Promise<Taken> {
  for (let look = 0; look < decideAgainMax; look++) {
    const taken = await inTransaction(core.db, async (tx): Promise<Taken | 'stale'> => {
      const evidence = await readEvidence(tx, sessionId)
      if (evidence === null || !isTakeable(evidence, executionId, right)) return 'gone'
      const decision = resolve(evidence)
      if (decision.kind === 'Remove') return (await removeClaim(tx, sessionId, evidence, right)) ? 'removed' : 'gone'
      // A cleanup that its owner could not finish is not handed over; it is found by the scan of those who stay.
      if (decision.kind === 'Quarantine' && right.kind === 'handover') return 'gone'
      const { request, taken } = requestOf(core, sessionId, evidence, decision, right)
      // Setting aside leaves the row alone, so a renewal under way would not be met: wait for it, then let the fence look.
      if (decision.kind === 'Quarantine') await lockClaim(tx, sessionId)
      const outcome = await appendIn(tx, request, core.owner)
      if (outcome.kind === 'appended') return taken
      if (outcome.kind === 'conflict') throw new Error(`the id ${continuationIdOf(executionId)} is taken`)
      return outcome.kind === 'stale' ? 'stale' : 'gone'
    }).catch((thrown: unknown): 'stale' => {
      // Its owner was not gone: it was about to renew. No reason to set anything aside.
      if (isClaimRace(thrown)) return 'stale'
      throw thrown
    })
    if (taken === 'stale') continue
    if (taken !== 'gone') announce(core, sessionId, executionId, taken, right)
    return taken
  }
  // Somebody is busy with the session: it is no emergency, and the next scan looks again.
  return 'gone'
}

/** Waits for whoever is about to change the claim. The session first, as everywhere. */
async function lockClaim(tx: Tx, sessionId: string): Promise<void> {
  await tx.$queryRaw`SELECT id FROM "Session" WHERE id = ${sessionId} FOR NO KEY UPDATE`
  await tx.$queryRaw`SELECT "sessionId" FROM "Claim" WHERE "sessionId" = ${sessionId} FOR NO KEY UPDATE`
}

const inTransaction = <T>(db: Db, work: (tx: Tx) => Promise<T>): Promise<T> => db.$transaction(work)

/**
 * Sets a row aside that cannot be decided on; the claim stays as it stands. Says whether it did: not if it is set aside already, if the claim
 * is not that execution's any more, or if the right to take it has gone: its owner lives after all, and goes on.
 */
export async function setAside(
  core: Core,
  entry: { sessionId: string; executionId: string; reason: string } & (
    | { kind: 'EXECUTION'; right: Right }
    | { kind: 'RECOVERY' }
  ),
): Promise<boolean> {
  const { sessionId, executionId, kind, reason } = entry
  const opened = event('quarantine.opened', {
    quarantineId: newQuarantineId(),
    executionId,
    quarantineKind: kind,
    reason: storable(reason),
  })
  const set = await inTransaction(core.db, async (tx) => {
    await tx.$queryRaw`SELECT id FROM "Session" WHERE id = ${sessionId} FOR NO KEY UPDATE`
    const open = await tx.quarantine.count({ where: { sessionId, executionId, kind, resolvedAt: null } })
    if (open > 0) return false
    const request: AppendRequest = { sessionId, events: [opened] }
    if (kind === 'EXECUTION') {
      const { right } = entry
      if (right.kind === 'dead' && !right.isStill()) return false
      const expired = right.kind === 'expired'
      request.fence = { executionId, owner: null, phases: null, live: false, expired }
    }
    return (await appendIn(tx, request, core.owner)).kind === 'appended'
  })
  if (set) core.doorbell.ring([sessionId])
  return set
}

/** A reason as the log can keep it: short, in one line, well-formed. */
const storable = (reason: string) =>
  reason
    .replaceAll('\u0000', '')
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/\p{Cs}/gu, '\ufffd')
    .slice(0, 300)
    .trim()
