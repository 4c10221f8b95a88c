import type { Release } from '../byte-budget.ts'
import { admitPrompt } from '../runner/admit.ts'
import { compactSession } from '../runner/compact.ts'
import { changeDelivery, withdrawPrompt } from '../runner/pending.ts'
import { takeRoom } from './account.ts'
import { builder } from './builder.ts'
import type { Context } from './context.ts'
import { Delivery } from './enums.ts'
import {
  CompactSessionPayload,
  InvalidInputError,
  LimitExceededError,
  PromptAdmission,
  PromptChangePayload,
  PromptConflictError,
  PromptNotPendingError,
  SessionChangedError,
  SessionNotFoundError,
} from './outcome.ts'
import { resultOf } from './result.ts'
import { AttachmentInput } from './values.ts'

const sessionId = { required: true, description: 'The session.' } as const
const messageId = { required: true, description: 'The prompt.' } as const
const newMessageId = {
  required: true,
  description:
    'The id to give it: msg_ and 8 to 64 characters of [A-Za-z0-9_-]. Keep it, so that the call can be repeated.',
} as const

const AdmitPromptInput = builder.inputType('AdmitPromptInput', {
  description: 'A prompt.',
  fields: (t) => ({
    sessionId: t.id(sessionId),
    messageId: t.id(newMessageId),
    text: t.string({ required: true, description: 'Its text; may be empty only if there are attachments.' }),
    attachments: t.field({ type: [AttachmentInput], description: 'Files to go with it.' }),
    delivery: t.field({ type: Delivery, defaultValue: 'STEER', description: 'When it joins.' }),
    resume: t.boolean({
      defaultValue: true,
      description: 'Whether the session is to start work for it; false: admit only, arm nothing.',
    }),
  }),
})

const ChangeDeliveryInput = builder.inputType('ChangeDeliveryInput', {
  description: 'When a pending prompt is to join from now on.',
  fields: (t) => ({
    sessionId: t.id(sessionId),
    messageId: t.id(messageId),
    delivery: t.field({ type: Delivery, required: true, description: 'When it joins.' }),
    ifSeq: t.int({ description: 'Only if the session is at this seq; makes a late repeat harmless.' }),
  }),
})

const PromptIdInput = builder.inputType('PromptIdInput', {
  description: 'Names a prompt of a session.',
  fields: (t) => ({ sessionId: t.id(sessionId), messageId: t.id(messageId) }),
})

const CompactSessionInput = builder.inputType('CompactSessionInput', {
  description: 'A request to summarize older history for the model.',
  fields: (t) => ({ sessionId: t.id(sessionId), messageId: t.id(newMessageId) }),
})

const PromptChangeResult = resultOf('PromptChangeResult', 'What withdrawPrompt and changeDelivery answer.', [
  PromptChangePayload,
  PromptNotPendingError,
  SessionNotFoundError,
  SessionChangedError,
  InvalidInputError,
])

interface Large {
  text: string
  attachments?: readonly { url: string }[] | null
}

/** Beneath this a prompt is never in the way of others. */
const smallPromptBytes = 64 * 1024

/** It is in memory several times until it is stored. */
async function roomFor(context: Context, input: Large): Promise<Release> {
  const attached = (input.attachments ?? []).reduce((sum, { url }) => sum + url.length, 0)
  const bytes = input.text.length + attached
  return bytes <= smallPromptBytes ? () => {} : takeRoom(context, bytes)
}

builder.mutationFields((t) => ({
  admitPrompt: t.field({
    type: resultOf('AdmitPromptResult', 'What admitPrompt answers.', [
      PromptAdmission,
      PromptConflictError,
      SessionNotFoundError,
      InvalidInputError,
      LimitExceededError,
    ]),
    description:
      'Makes a prompt durable. Answers as soon as it is stored and never waits for a model; a busy session takes it too.',
    args: { input: t.arg({ type: AdmitPromptInput, required: true, description: 'The prompt.' }) },
    resolve: async (_root, { input }, context) => {
      const { core, tenant } = context
      const release = await roomFor(context, input)
      try {
        return await admitPrompt(core, tenant, input)
      } finally {
        release()
      }
    },
  }),
  withdrawPrompt: t.field({
    type: PromptChangeResult,
    description: 'Takes a pending prompt back.',
    args: { input: t.arg({ type: PromptIdInput, required: true, description: 'Which prompt.' }) },
    resolve: (_root, { input }, { core, tenant }) => withdrawPrompt(core, tenant, input),
  }),
  changeDelivery: t.field({
    type: PromptChangeResult,
    description: 'Changes when a pending prompt joins.',
    args: { input: t.arg({ type: ChangeDeliveryInput, required: true, description: 'Which prompt, and when.' }) },
    resolve: (_root, { input }, { core, tenant }) => changeDelivery(core, tenant, input),
  }),
  compactSession: t.field({
    type: resultOf('CompactSessionResult', 'What compactSession answers.', [
      CompactSessionPayload,
      PromptConflictError,
      SessionNotFoundError,
      InvalidInputError,
      LimitExceededError,
    ]),
    description: 'Asks for a compaction. It waits its turn like a prompt, and the history itself stays readable.',
    args: { input: t.arg({ type: CompactSessionInput, required: true, description: 'The request.' }) },
    resolve: (_root, { input }, { core, tenant }) => compactSession(core, tenant, input),
  }),
}))
