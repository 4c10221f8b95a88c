// What the functions behind mutations answer with: expected outcomes as values (docs/decisions). The tag is the name of a member of
// the mutation's result union in contract.graphql. Records are named by id and read afterwards; all else stands in the value.

export interface Outcomes {
  PromptAdmission: {
    outcome: 'ADMITTED' | 'ALREADY_ADMITTED' | 'ALREADY_PROMOTED' | 'ALREADY_WITHDRAWN'
    messageId: string
    executionRequested: boolean
  }
  CreateSessionPayload: { sessionId: string; created: boolean }
  UpdateSessionPayload: { sessionId: string }
  PromptChangePayload: { messageId: string }
  ResumeSessionPayload: { sessionId: string }
  InterruptSessionPayload: { sessionId: string; interrupted: boolean }
  CompactSessionPayload: { messageId: string }
  InteractionPayload: { interactionId: string }
  ResolveQuarantinePayload: { sessionId: string | null }

  PromptConflictError: { message: string; sessionId: string; messageId: string; differingFields: string[] }
  SessionConflictError: { message: string; sessionId: string; differingFields: string[] }
  InterruptPendingError: { message: string; sessionId: string; executionId: string }
  LimitExceededError: { message: string; limit: string; retryAfterMs: number | null }
  SessionChangedError: { message: string; sessionId: string }
  SessionNotFoundError: { message: string; sessionId: string }
  SessionQuarantinedError: { message: string; sessionId: string }
  PromptNotPendingError: { message: string; messageId: string }
  InteractionNotFoundError: { message: string; interactionId: string }
  InteractionSettledError: { message: string; interactionId: string }
  QuarantineNotFoundError: { message: string; id: string }
  InvalidInputError: { message: string; field: string }
}

export type OutcomeName = keyof Outcomes

/** One of these outcomes, tagged. */
export type Outcome<N extends OutcomeName> = { [K in N]: { type: K } & Outcomes[K] }[N]

export const sessionNotFound = (sessionId: string): Outcome<'SessionNotFoundError'> => ({
  type: 'SessionNotFoundError',
  message: `there is no session ${sessionId}`,
  sessionId,
})

export const sessionChanged = (sessionId: string, seq: number): Outcome<'SessionChangedError'> => ({
  type: 'SessionChangedError',
  message: `the session is at seq ${seq} by now: look again, then decide`,
  sessionId,
})

export const invalidInput = (field: string, rule: string): Outcome<'InvalidInputError'> => ({
  type: 'InvalidInputError',
  message: `${field}: ${rule}`,
  field,
})
