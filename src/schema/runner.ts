// Stands in for the runner until its functions are there.

import type { Core } from '../runner/core.ts'
import type { Outcome, OutcomeName } from './outcomes.ts'

type Call<I, N extends OutcomeName> = (core: Core, tenant: string, input: I) => Promise<Outcome<N>>
const missing = (): never => {
  throw new Error('not there yet')
}
type Delivery = 'STEER' | 'QUEUE'
type Nullish<T> = T | null | undefined
export const createSession: Call<
  { sessionId: string; title?: Nullish<string>; instructions?: Nullish<string>; model?: Nullish<string> },
  'CreateSessionPayload' | 'SessionConflictError' | 'InvalidInputError' | 'LimitExceededError'
> = missing
export const updateSession: Call<
  {
    sessionId: string
    title?: Nullish<string>
    instructions?: Nullish<string>
    model?: Nullish<string>
    ifSeq?: Nullish<number>
  },
  'UpdateSessionPayload' | 'SessionNotFoundError' | 'SessionChangedError' | 'InvalidInputError'
> = missing
export const archiveSession: Call<
  { sessionId: string; archived?: Nullish<boolean>; ifSeq?: Nullish<number> },
  'UpdateSessionPayload' | 'SessionNotFoundError' | 'SessionChangedError' | 'InvalidInputError'
> = missing
export const admitPrompt: Call<
  {
    sessionId: string
    messageId: string
    text: string
    attachments?: Nullish<{ name: string; mediaType: string; url: string }[]>
    delivery?: Nullish<Delivery>
    resume?: Nullish<boolean>
  },
  'PromptAdmission' | 'PromptConflictError' | 'SessionNotFoundError' | 'InvalidInputError' | 'LimitExceededError'
> = missing
export const withdrawPrompt: Call<
  { sessionId: string; messageId: string },
  'PromptChangePayload' | 'PromptNotPendingError' | 'SessionNotFoundError' | 'SessionChangedError' | 'InvalidInputError'
> = missing
export const changeDelivery: Call<
  { sessionId: string; messageId: string; delivery: Delivery; ifSeq?: Nullish<number> },
  'PromptChangePayload' | 'PromptNotPendingError' | 'SessionNotFoundError' | 'SessionChangedError' | 'InvalidInputError'
> = missing
export const compactSession: Call<
  { sessionId: string; messageId: string },
  'CompactSessionPayload' | 'PromptConflictError' | 'SessionNotFoundError' | 'InvalidInputError' | 'LimitExceededError'
> = missing
export const resumeSession: Call<
  { sessionId: string; ifSeq?: Nullish<number> },
  'ResumeSessionPayload' | 'SessionNotFoundError' | 'SessionQuarantinedError' | 'SessionChangedError'
> = missing
export const interruptSession: Call<
  { sessionId: string; executionId?: Nullish<string> },
  'InterruptSessionPayload' | 'InterruptPendingError' | 'SessionNotFoundError'
> = missing
export const decideApproval: Call<
  {
    interactionId: string
    decision: 'APPROVE' | 'DECLINE_AND_STOP' | 'DECLINE_AND_CONTINUE'
    feedback?: Nullish<string>
    editedInput?: unknown
    remember?: Nullish<boolean>
  },
  'InteractionPayload' | 'InteractionNotFoundError' | 'InteractionSettledError' | 'InvalidInputError'
> = missing
export const answerQuestion: Call<
  { interactionId: string; answer: unknown },
  'InteractionPayload' | 'InteractionNotFoundError' | 'InteractionSettledError' | 'InvalidInputError'
> = missing
export const dismissQuestion: Call<
  { interactionId: string },
  'InteractionPayload' | 'InteractionNotFoundError' | 'InteractionSettledError' | 'InvalidInputError'
> = missing
export const resolveQuarantine: Call<
  { id: string; action: 'RETRY' | 'DISCARD' },
  'ResolveQuarantinePayload' | 'QuarantineNotFoundError'
> = missing
