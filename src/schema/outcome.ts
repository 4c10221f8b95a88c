import type { OutcomeName, Outcomes } from '../runner/outcomes.ts'
import { builder } from './builder.ts'
import { AdmissionOutcome } from './enums.ts'
import { inputField, interactionField, sessionField } from './read-back.ts'
import { Session } from './session.ts'

const outcome = <N extends OutcomeName>(name: N) => builder.objectRef<Outcomes[N]>(name)

export const ErrorInterface = builder.interfaceRef<{ message: string }>('Error').implement({
  description: 'A result that says why nothing was done, and what can be done about it.',
  fields: (t) => ({ message: t.exposeString('message', { description: 'The reason, for a person.' }) }),
})

// ------------------------------------------------------------------------------------------------ what was done

export const PromptAdmission = outcome('PromptAdmission').implement({
  description: 'The prompt is durable.',
  fields: (t) => ({
    outcome: t.expose('outcome', {
      type: AdmissionOutcome,
      description: 'Whether this call stored it or an earlier one did.',
    }),
    input: inputField(t, 'The stored prompt.'),
    executionRequested: t.exposeBoolean('executionRequested', {
      description: 'Whether this call armed it; false when it was armed already or nothing was to be armed.',
    }),
  }),
})

export const CreateSessionPayload = outcome('CreateSessionPayload').implement({
  description: 'The session exists.',
  fields: (t) => ({
    session: sessionField(t, 'The session.'),
    created: t.exposeBoolean('created', {
      description: 'Whether this call created it; false when an earlier, identical one had.',
    }),
  }),
})

export const UpdateSessionPayload = outcome('UpdateSessionPayload').implement({
  description: 'The session is as it was asked to be.',
  fields: (t) => ({ session: sessionField(t, 'The session as it is now.') }),
})

export const PromptChangePayload = outcome('PromptChangePayload').implement({
  description: 'The prompt is as it was asked to be.',
  fields: (t) => ({ input: inputField(t, 'The prompt as it is now.') }),
})

export const ResumeSessionPayload = outcome('ResumeSessionPayload').implement({
  description: 'What was pending or owed is armed.',
  fields: (t) => ({ session: sessionField(t, 'The session as it is now.') }),
})

export const InterruptSessionPayload = outcome('InterruptSessionPayload').implement({
  description: 'Nothing runs any more, and the cleanup is durable.',
  fields: (t) => ({
    session: sessionField(t, 'The session as it is now.'),
    interrupted: t.exposeBoolean('interrupted', {
      description: 'Whether work was stopped or disarmed, by this call or by an earlier one with the same executionId.',
    }),
  }),
})

export const CompactSessionPayload = outcome('CompactSessionPayload').implement({
  description: 'The compaction is asked for and will run in its turn.',
  fields: (t) => ({ input: inputField(t, 'The stored request.') }),
})

export const InteractionPayload = outcome('InteractionPayload').implement({
  description: 'The decision is durable.',
  fields: (t) => ({ interaction: interactionField(t, 'The interaction as it is now.') }),
})

export const ResolveQuarantinePayload = outcome('ResolveQuarantinePayload').implement({
  description: 'The entry is resolved.',
  fields: (t) => ({
    session: t.prismaField({
      type: Session,
      nullable: true,
      description: 'The session that it belonged to.',
      resolve: (query, { sessionId }, _args, { db }) =>
        sessionId === null ? null : db.session.findUnique({ ...query, where: { id: sessionId } }),
    }),
  }),
})

// ------------------------------------------------------------------------------------------- why nothing was done

export const PromptConflictError = outcome('PromptConflictError').implement({
  interfaces: [ErrorInterface],
  description: 'The message id is taken by a request that differs. Nothing was changed.',
  fields: (t) => ({
    sessionId: t.exposeID('sessionId', { description: 'The session that was asked.' }),
    messageId: t.exposeID('messageId', { description: 'The id that is taken.' }),
    differingFields: t.exposeStringList('differingFields', {
      description: 'The input fields that differ; only "messageId" when the id is taken elsewhere.',
    }),
  }),
})

export const SessionConflictError = outcome('SessionConflictError').implement({
  interfaces: [ErrorInterface],
  description: 'The session id is taken by a session that was created with other values. Nothing was changed.',
  fields: (t) => ({
    sessionId: t.exposeID('sessionId', { description: 'The id that is taken.' }),
    differingFields: t.exposeStringList('differingFields', { description: 'The input fields that differ.' }),
  }),
})

export const InterruptPendingError = outcome('InterruptPendingError').implement({
  interfaces: [ErrorInterface],
  description: 'The interrupt is accepted and kept, but its cleanup is not durable yet. Asking again waits again.',
  fields: (t) => ({
    sessionId: t.exposeID('sessionId', { description: 'The session.' }),
    executionId: t.exposeID('executionId', { description: 'The execution that is being stopped.' }),
  }),
})

export const LimitExceededError = outcome('LimitExceededError').implement({
  interfaces: [ErrorInterface],
  description: 'A limit of this server is reached. Nothing was stored.',
  fields: (t) => ({
    limit: t.exposeString('limit', { description: 'The name of the limit.' }),
    retryAfterMs: t.exposeInt('retryAfterMs', {
      nullable: true,
      description: 'After how many milliseconds trying again makes sense; null if time alone does not help.',
    }),
  }),
})

export const SessionChangedError = outcome('SessionChangedError').implement({
  interfaces: [ErrorInterface],
  description: 'The session is not at the seq that ifSeq asked for. Nothing was changed.',
  fields: (t) => ({ sessionId: t.exposeID('sessionId', { description: 'The session.' }) }),
})

export const SessionNotFoundError = outcome('SessionNotFoundError').implement({
  interfaces: [ErrorInterface],
  description: 'There is no session with this id.',
  fields: (t) => ({ sessionId: t.exposeID('sessionId', { description: 'The id that was asked for.' }) }),
})

export const SessionQuarantinedError = outcome('SessionQuarantinedError').implement({
  interfaces: [ErrorInterface],
  description: 'The session is set aside; resolveQuarantine comes first.',
  fields: (t) => ({ sessionId: t.exposeID('sessionId', { description: 'The session.' }) }),
})

export const PromptNotPendingError = outcome('PromptNotPendingError').implement({
  interfaces: [ErrorInterface],
  description: 'The session has no prompt with this id that is pending. Nothing was changed.',
  fields: (t) => ({ messageId: t.exposeID('messageId', { description: 'The id that was asked for.' }) }),
})

export const InteractionNotFoundError = outcome('InteractionNotFoundError').implement({
  interfaces: [ErrorInterface],
  description: 'There is no interaction with this id.',
  fields: (t) => ({ interactionId: t.exposeID('interactionId', { description: 'The id that was asked for.' }) }),
})

export const InteractionSettledError = outcome('InteractionSettledError').implement({
  interfaces: [ErrorInterface],
  description: 'The interaction was settled otherwise before. Nothing was changed.',
  fields: (t) => ({ interaction: interactionField(t, 'How it was settled.') }),
})

export const QuarantineNotFoundError = outcome('QuarantineNotFoundError').implement({
  interfaces: [ErrorInterface],
  description: 'There is no quarantine entry with this id.',
  fields: (t) => ({ id: t.exposeID('id', { description: 'The id that was asked for.' }) }),
})

export const InvalidInputError = outcome('InvalidInputError').implement({
  interfaces: [ErrorInterface],
  description: 'A value of the input breaks a rule. Nothing was changed.',
  fields: (t) => ({ field: t.exposeString('field', { description: 'The input field; the message names the rule.' }) }),
})
