// How a step ended, classified once from all evidence (design section 2, idea 4; section 6). Pure: evidence in, one tagged value out.
// An interrupt wins over a provider failure, a provider failure over a failure of our own to keep a tool's result.

import type { StepError } from '../events.ts'
import type { ProviderFailure } from './models/failure.ts'

export interface Evidence {
  interrupted: boolean
  /** The interrupt came with a declined or dismissed interaction. */
  dismissed?: boolean
  providerFailure: ProviderFailure | null
  /** An overflow that was held back until the tools had settled; published as the provider's failure. */
  heldOverflow: ProviderFailure | null
  /** Keeping a tool's outcome failed for good. */
  toolInfraFailure: Error | null
  /** A rule of ours ends the step: loop guard, refused content. */
  stepError: StepError | null
  /** A local call stands in the step, so the model has to see its result. */
  hasLocalCalls: boolean
  /** The last step before the limit: it does not continue, whatever it called. */
  isLastStep: boolean
}

export type Settlement =
  | { kind: 'Interrupted'; dismissed: boolean }
  | { kind: 'ProviderFailed'; failure: ProviderFailure }
  | { kind: 'ToolInfraFailed'; cause: Error }
  | { kind: 'StepFailed'; error: StepError }
  | { kind: 'Clean'; continues: boolean }

export function classify(evidence: Evidence): Settlement {
  if (evidence.interrupted) return { kind: 'Interrupted', dismissed: evidence.dismissed ?? false }
  const failure = evidence.providerFailure ?? evidence.heldOverflow
  if (failure !== null) return { kind: 'ProviderFailed', failure }
  if (evidence.toolInfraFailure !== null) return { kind: 'ToolInfraFailed', cause: evidence.toolInfraFailure }
  if (evidence.stepError !== null) return { kind: 'StepFailed', error: evidence.stepError }
  return { kind: 'Clean', continues: evidence.hasLocalCalls && !evidence.isLastStep }
}
