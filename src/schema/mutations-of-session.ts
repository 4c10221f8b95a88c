import { interruptSession } from '../runner/interrupt.ts'
import { resumeSession } from '../runner/resume.ts'
import { archiveSession, createSession, updateSession } from '../runner/sessions.ts'
import { builder } from './builder.ts'
import {
  CreateSessionPayload,
  InterruptPendingError,
  InterruptSessionPayload,
  InvalidInputError,
  LimitExceededError,
  ResumeSessionPayload,
  SessionChangedError,
  SessionConflictError,
  SessionNotFoundError,
  SessionQuarantinedError,
  UpdateSessionPayload,
} from './outcome.ts'
import { resultOf } from './result.ts'

const sessionId = { required: true, description: 'The session.' } as const
const ifSeq = { description: 'Only if the session is at this seq; makes a late repeat harmless.' } as const

const CreateSessionInput = builder.inputType('CreateSessionInput', {
  description: 'A new session.',
  fields: (t) => ({
    sessionId: t.id({
      required: true,
      description: 'The id to give it: ses_ and 8 to 64 characters of [A-Za-z0-9_-].',
    }),
    title: t.string({ description: 'What to call it.' }),
    instructions: t.string({ description: 'What the model is told before the conversation.' }),
    model: t.string({ description: "Its model, as provider/model; the server's default model if omitted." }),
  }),
})

const UpdateSessionInput = builder.inputType('UpdateSessionInput', {
  description: 'New settings of a session. What is omitted stays as it is.',
  fields: (t) => ({
    sessionId: t.id(sessionId),
    title: t.string({ description: 'Its new title; null takes it away.' }),
    instructions: t.string({ description: 'Its new instructions, from the next step on; null takes them away.' }),
    model: t.string({ description: 'Its new model, from the next step on.' }),
    ifSeq: t.int(ifSeq),
  }),
})

const ArchiveSessionInput = builder.inputType('ArchiveSessionInput', {
  description: 'Puts a session into the archive or takes it out.',
  fields: (t) => ({
    sessionId: t.id(sessionId),
    archived: t.boolean({ defaultValue: true, description: 'Whether it is to be archived.' }),
    ifSeq: t.int(ifSeq),
  }),
})

const ResumeSessionInput = builder.inputType('ResumeSessionInput', {
  description: 'Asks a session to go on.',
  fields: (t) => ({ sessionId: t.id(sessionId), ifSeq: t.int(ifSeq) }),
})

const InterruptSessionInput = builder.inputType('InterruptSessionInput', {
  description: 'Asks a session to stop.',
  fields: (t) => ({
    sessionId: t.id(sessionId),
    executionId: t.id({ description: 'Only if this execution still runs; makes a late repeat harmless.' }),
  }),
})

builder.inputType('SessionIdInput', {
  description: 'Names a session.',
  fields: (t) => ({ sessionId: t.id(sessionId) }),
})

const UpdateSessionResult = resultOf('UpdateSessionResult', 'What updateSession and archiveSession answer.', [
  UpdateSessionPayload,
  SessionNotFoundError,
  SessionChangedError,
  InvalidInputError,
])

builder.mutationFields((t) => ({
  createSession: t.field({
    type: resultOf('CreateSessionResult', 'What createSession answers.', [
      CreateSessionPayload,
      SessionConflictError,
      InvalidInputError,
      LimitExceededError,
    ]),
    description: 'Creates a session under an id that the client made. The same call again gives the same session.',
    args: { input: t.arg({ type: CreateSessionInput, required: true, description: 'The session.' }) },
    resolve: (_root, { input }, { core, tenant }) => createSession(core, tenant, input),
  }),
  updateSession: t.field({
    type: UpdateSessionResult,
    description: 'Changes title, instructions or model. What changes nothing writes nothing.',
    args: { input: t.arg({ type: UpdateSessionInput, required: true, description: 'The settings.' }) },
    resolve: (_root, { input }, { core, tenant }) => updateSession(core, tenant, input),
  }),
  archiveSession: t.field({
    type: UpdateSessionResult,
    description:
      'Takes a session out of the list, or back into it. A new prompt takes it out of the archive by itself.',
    args: { input: t.arg({ type: ArchiveSessionInput, required: true, description: 'Which session, and which way.' }) },
    resolve: (_root, { input }, { core, tenant }) => archiveSession(core, tenant, input),
  }),
  resumeSession: t.field({
    type: resultOf('ResumeSessionResult', 'What resumeSession answers.', [
      ResumeSessionPayload,
      SessionNotFoundError,
      SessionQuarantinedError,
      SessionChangedError,
    ]),
    description:
      'Arms what is pending or owed and unparks the session. If nothing is owed, nothing is asked of the model.',
    args: { input: t.arg({ type: ResumeSessionInput, required: true, description: 'Which session.' }) },
    resolve: (_root, { input }, { core, tenant }) => resumeSession(core, tenant, input),
  }),
  interruptSession: t.field({
    type: resultOf('InterruptSessionResult', 'What interruptSession answers.', [
      InterruptSessionPayload,
      InterruptPendingError,
      SessionNotFoundError,
    ]),
    description:
      'Stops what runs and disarms what is armed. Answers once the cleanup is durable; pending prompts stay pending.',
    args: { input: t.arg({ type: InterruptSessionInput, required: true, description: 'Which session.' }) },
    resolve: (_root, { input }, { core, tenant }) => interruptSession(core, tenant, input),
  }),
}))
