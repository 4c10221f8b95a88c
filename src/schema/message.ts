import type { Attachment as AttachmentShape } from '../events.ts'
import type { Message as MessageRow } from '../generated/prisma/client.ts'
import { builder } from './builder.ts'
import { CompactionStatus, StepStatus } from './enums.ts'
import { largeJson, largeText } from './large.ts'
import { MessagePart } from './message-part.ts'
import { partsOf } from './message-parts-of.ts'
import { RetryNotice, retryOf } from './message-retry.ts'
import { messageTypeOf, Node } from './node.ts'
import { Attachment, errorOf, StepError, Usage } from './values.ts'

const textOf = largeText('Message', 'text')
const attachmentsOf = largeJson<AttachmentShape[]>('Message', 'attachments')
const summaryOf = largeText('Message', 'summary')

export const Message = builder.interfaceRef<MessageRow>('Message').implement({
  description: 'An entry of the history of a session.',
  resolveType: (row) => messageTypeOf(row),
  fields: (t) => ({
    id: t.exposeID('id', { description: 'Its id; of a prompt the one that the client made.' }),
    seq: t.exposeInt('seq', { description: 'The event that put it into the history; messages are ordered by it.' }),
    createdAt: t.expose('createdAt', { type: 'DateTime', description: 'When it entered the history.' }),
  }),
})

builder.objectRef<MessageRow>('UserMessage').implement({
  interfaces: [Node, Message],
  description: 'What a person wrote.',
  fields: (t) => ({
    text: t.string({
      description: 'The text.',
      resolve: async (row, _args, context) => (await textOf(row, context)) ?? '',
    }),
    attachments: t.field({
      type: [Attachment],
      description: 'Its files.',
      resolve: (row, _args, context) => attachmentsOf(row, context),
    }),
  }),
})

builder.objectRef<MessageRow>('SyntheticMessage').implement({
  interfaces: [Node, Message],
  description: 'What the system wrote: continuations and notes about retries.',
  fields: (t) => ({
    text: t.string({
      description: 'The text.',
      resolve: async (row, _args, context) => (await textOf(row, context)) ?? '',
    }),
    hidden: t.exposeBoolean('hidden', {
      description: 'Whether it is bookkeeping only: not shown to the model, not meant for transcripts.',
    }),
  }),
})

builder.objectRef<MessageRow>('CompactionMessage').implement({
  interfaces: [Node, Message],
  description: 'The point at which older history was summarized for the model. The history itself stays readable.',
  fields: (t) => ({
    compactionStatus: t.field({
      type: CompactionStatus,
      description: 'How far the compaction has come.',
      resolve: (row) => row.status as 'RUNNING' | 'COMPLETED' | 'FAILED',
    }),
    summary: t.string({
      nullable: true,
      description: 'The summary, once it is complete.',
      resolve: (row, _args, context) => summaryOf(row, context),
    }),
    error: t.field({ type: StepError, nullable: true, description: 'Why there is no summary.', resolve: errorOf }),
  }),
})

builder.objectRef<MessageRow>('AssistantMessage').implement({
  interfaces: [Node, Message],
  description: 'The record of one step: what the model said and which tools it called.',
  fields: (t) => ({
    model: t.string({ description: 'The model, as provider/model.', resolve: (row) => row.model ?? '' }),
    status: t.field({
      type: StepStatus,
      description: 'How far the step has come.',
      resolve: (row) => row.status as 'RUNNING' | 'ENDED' | 'FAILED' | 'INTERRUPTED',
    }),
    finish: t.exposeString('finish', {
      nullable: true,
      description: 'Why the model stopped, in the words of its provider.',
    }),
    error: t.field({
      type: StepError,
      nullable: true,
      description: 'Why the step failed or was stopped.',
      resolve: errorOf,
    }),
    parts: t.field({
      type: [MessagePart],
      description:
        'Text, reasoning and tool calls in the order of their index. Open text is shown as far as it has been stored.',
      resolve: (row, _args, context) => partsOf(context, row, undefined),
    }),
    usage: t.field({
      type: Usage,
      nullable: true,
      description: 'Tokens of this step; null while it runs.',
      resolve: ({ inputTokens, outputTokens, reasoningTokens, cachedInputTokens }) =>
        inputTokens === null
          ? null
          : {
              inputTokens,
              outputTokens: outputTokens ?? 0,
              reasoningTokens: reasoningTokens ?? 0,
              cachedInputTokens: cachedInputTokens ?? 0,
            },
    }),
    settledAt: t.expose('settledAt', {
      type: 'DateTime',
      nullable: true,
      description: 'When the step was settled; null while it runs.',
    }),
    retry: t.field({
      type: RetryNotice,
      nullable: true,
      description:
        'The request that failed and is made again; null as soon as there is output, or the step is settled.',
      resolve: (row, _args, context) => (row.status === 'RUNNING' ? retryOf(context, row, undefined) : null),
    }),
  }),
})
