import type { Part as PartRow, ToolCall as ToolCallRow } from '../generated/prisma/client.ts'
import { builder } from './builder.ts'
import type { Context } from './context.ts'
import { ToolStatus } from './enums.ts'
import { callJson, partText } from './large.ts'
import { errorOf, StepError } from './values.ts'

type ToolStatusShape = 'STREAMING' | 'AWAITING_APPROVAL' | 'RUNNING' | 'COMPLETED' | 'FAILED'

const inputOf = callJson('input')
const outputOf = callJson('output')
/** Of an open part it is there already. */
const textOf = (row: PartRow, context: Context) => row.text ?? partText(row, context)

const TextPart = builder.objectRef<PartRow>('TextPart').implement({
  description: 'Text of the model.',
  fields: (t) => ({
    index: t.exposeInt('index', { description: 'Its place among the parts of the message.' }),
    text: t.string({
      description: 'The text, or what there is of it.',
      resolve: (row, _args, context) => textOf(row, context),
    }),
    complete: t.exposeBoolean('complete', { description: 'Whether nothing more is added.' }),
  }),
})

const ReasoningPart = builder.objectRef<PartRow>('ReasoningPart').implement({
  description: 'Reasoning that the model shows.',
  fields: (t) => ({
    index: t.exposeInt('index', { description: 'Its place among the parts of the message.' }),
    text: t.string({
      description: 'The text, or what there is of it.',
      resolve: (row, _args, context) => textOf(row, context),
    }),
    complete: t.exposeBoolean('complete', { description: 'Whether nothing more is added.' }),
  }),
})

const ToolCall = builder.objectRef<ToolCallRow>('ToolCall').implement({
  description: 'A call of a tool by the model, and what became of it.',
  fields: (t) => ({
    index: t.exposeInt('index', { description: 'Its place among the parts of the message.' }),
    callId: t.exposeID('callId', { description: 'Its id, which the tool gets as idempotency key.' }),
    name: t.exposeString('name', { description: 'The tool.' }),
    status: t.field({
      type: ToolStatus,
      description: 'How far it has come.',
      resolve: (row) => row.status as ToolStatusShape,
    }),
    input: t.field({
      type: 'JSON',
      nullable: true,
      description: 'Its input, once the model has written all of it.',
      resolve: (row, _args, context) => inputOf(row, context),
    }),
    output: t.field({
      type: 'JSON',
      nullable: true,
      description: 'What the tool returned.',
      resolve: (row, _args, context) => outputOf(row, context),
    }),
    error: t.field({ type: StepError, nullable: true, description: 'Why there is no output.', resolve: errorOf }),
    startedAt: t.expose('startedAt', {
      type: 'DateTime',
      nullable: true,
      description: 'When the tool was started; null if it never was.',
    }),
    settledAt: t.expose('settledAt', { type: 'DateTime', nullable: true, description: 'When it had its outcome.' }),
  }),
})

export const MessagePart = builder.unionType('MessagePart', {
  description: 'A part of an assistant message.',
  types: [TextPart, ReasoningPart, ToolCall],
  resolveType: (row) => ('callId' in row ? 'ToolCall' : row.kind === 'TEXT' ? 'TextPart' : 'ReasoningPart'),
})
