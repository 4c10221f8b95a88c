// What becomes of a claim whose owner cannot be asked (design section 9, the table). Pure twin of runner/settlement.ts: evidence in,
// one tagged decision out, followed by one append (takeover.ts).

import type { ExecutionPhase, RecoveryPhase, StepError } from '../events.ts'
import type { Evidence } from './evidence.ts'

/** The end of a step that nobody will end any more. */
export interface FailedStep {
  messageId: string
  error: StepError
  continues: boolean
}

export type Decision =
  /** The execution has its end already: only the row goes. */
  | { kind: 'Remove' }
  /** Not to be trusted: set aside, the claim stays as it is. */
  | { kind: 'Quarantine'; reason: string }
  /** Nothing is owed. `only`: settles what is open of this message alone, the rest belongs to somebody else. */
  | { kind: 'Clear'; step: FailedStep | null; only?: string }
  /** Goes on in a new execution. `keepsOpen`: the open step is resumed, not settled. */
  | {
      kind: 'Recover'
      phase: RecoveryPhase
      assistantMessageId: string | null
      step: FailedStep | null
      keepsOpen: boolean
    }

const phases: Record<ExecutionPhase, true> = {
  READY: true,
  UNKNOWN: true,
  SAFE: true,
  CONTINUE: true,
  CANCELLING: true,
  CANCELLED: true,
}
const isPhase = (phase: string): phase is ExecutionPhase => Object.hasOwn(phases, phase)

/** Nobody was there to see how it ended. */
export const outcomeUnknown: StepError = {
  code: 'OUTCOME_UNKNOWN',
  message: 'the process that ran this ended in the middle of it; what came of it is not known',
}

/** Decides about a claim. `phase` stands in for the row's own where a person asked to take it as given (resolveQuarantine). */
export function resolve(evidence: Evidence, phase: string = evidence.claim.phase): Decision {
  const { step, open, newestAssistantId, stepOwed } = evidence
  if (evidence.hasEnd) return { kind: 'Remove' }
  if (!isPhase(phase)) {
    const shown = JSON.stringify(phase.slice(0, 60))
    return { kind: 'Quarantine', reason: `the claim's phase is ${shown}, which this version does not know` }
  }
  if (phase === 'CANCELLING') {
    const reason = 'the process ended in the middle of the cleanup of an interrupt: what its tools did is not known'
    return { kind: 'Quarantine', reason }
  }
  if (step !== null && newestAssistantId !== null && newestAssistantId !== step.messageId) {
    const failed = step.status === 'RUNNING' ? unknownStep(step.messageId) : null
    return { kind: 'Clear', step: failed, only: step.messageId }
  }
  const isFailedForGood = step?.status === 'FAILED' && step.continues === false
  const hasStarted = open.tools.some(({ started }) => started)
  if (open.step === null && (phase === 'CANCELLED' || isFailedForGood)) return { kind: 'Clear', step: null }
  if (phase === 'CANCELLED') return { kind: 'Clear', step: unknownStep(open.step!.messageId) }

  // A compaction inside a step's overflow recovery falls with the step; by itself it owes nothing unless a step waited behind it.
  if (open.compaction !== null && open.step === null) {
    if (open.compaction.automatic || stepOwed) return goOn(evidence, null)
    return { kind: 'Clear', step: null }
  }
  switch (phase) {
    case 'READY': {
      // Nothing was dispatched under this claim. A step that waited for a person and is fully streamed can be taken up again.
      if (open.step === null) return recover('READY', null, null)
      if (!open.step.streamed || hasStarted || open.compaction !== null) return unknown(open.step.messageId)
      return { ...recover('READY', open.step.messageId, null), keepsOpen: true }
    }
    case 'SAFE':
      return open.step === null ? { kind: 'Clear', step: null } : unknown(open.step.messageId)
    case 'UNKNOWN':
      if (open.step !== null) return unknown(open.step.messageId)
      // The terminal and the claim's move are one commit; rows that say otherwise are believed as far as they go.
      return step === null || step.continues === true || stepOwed ? goOn(evidence, null) : { kind: 'Clear', step: null }
    case 'CONTINUE': {
      if (open.step === null) return goOn(evidence, null)
      if (hasStarted || open.compaction !== null) return unknown(open.step.messageId)
      // It was waiting for its next attempt: what failed is known, and the step is still owed.
      const { messageId } = open.step
      const error = evidence.retryError ?? outcomeUnknown
      return goOn(evidence, { messageId, error, continues: true })
    }
  }
}

const unknownStep = (messageId: string): FailedStep => ({ messageId, error: outcomeUnknown, continues: false })

const recover = (phase: RecoveryPhase, assistantMessageId: string | null, step: FailedStep | null) =>
  ({ kind: 'Recover', phase, assistantMessageId, step, keepsOpen: false }) as const

/** A step or a retry is owed. The message is the step's if there is one, else the newest answer. */
const goOn = ({ step, newestAssistantId }: Evidence, failed: FailedStep | null): Decision =>
  recover('CONTINUE', failed?.messageId ?? step?.messageId ?? newestAssistantId, failed)

const unknown = (messageId: string): Decision => recover('UNKNOWN', messageId, unknownStep(messageId))

/** Beyond these bounds a session waits for a person, so that a crash loop never bills for ever. Null: within them. */
export function parkReason(
  { recoveries, claim }: Evidence,
  { recoveryAttempts, recoveryMaxAgeMs }: { recoveryAttempts: number; recoveryMaxAgeMs: number },
): string | null {
  if (recoveries + 1 > recoveryAttempts)
    return `cut off ${recoveries + 1} times without a step that ended clean; the limit is ${recoveryAttempts} recoveries`
  if (claim.expiredForMs > recoveryMaxAgeMs) {
    const hours = (ms: number) => Math.round(ms / 360_000) / 10
    return `cut off ${hours(claim.expiredForMs)} hours ago; the limit is ${hours(recoveryMaxAgeMs)} hours`
  }
  return null
}
