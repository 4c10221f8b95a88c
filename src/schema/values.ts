// Small values that several types carry.
import type { Attachment as AttachmentShape, StepError as StepErrorShape, Usage as UsageShape } from '../events.ts'
import { tokensMax } from '../tokens.ts'
import { builder } from './builder.ts'

/** Rows and logs of earlier versions may hold more than a JSON number keeps: one of them must not make a list of others null. */
const shown = (count: number | bigint): number => Math.min(Number(count), tokensMax)

export const Usage = builder.objectRef<{ [K in keyof UsageShape]: number | bigint }>('Usage').implement({
  description: 'Tokens as the provider counted them.',
  fields: (t) => ({
    inputTokens: t.field({
      type: 'SafeInt',
      description: 'Tokens sent to the model.',
      resolve: ({ inputTokens }) => shown(inputTokens),
    }),
    outputTokens: t.field({
      type: 'SafeInt',
      description: 'Tokens that the model wrote.',
      resolve: ({ outputTokens }) => shown(outputTokens),
    }),
    reasoningTokens: t.field({
      type: 'SafeInt',
      description: 'Of those written, the ones for reasoning.',
      resolve: ({ reasoningTokens }) => shown(reasoningTokens),
    }),
    cachedInputTokens: t.field({
      type: 'SafeInt',
      description: "Of those sent, the ones read from the provider's cache.",
      resolve: ({ cachedInputTokens }) => shown(cachedInputTokens),
    }),
  }),
})

export const StepError = builder.objectRef<Pick<StepErrorShape, 'message'> & { code: string }>('StepError').implement({
  description: 'Why a step, a tool call or a compaction has no result.',
  fields: (t) => ({
    code: t.exposeString('code', {
      description:
        'One of ABORTED, OUTCOME_UNKNOWN, NOT_STARTED, DECLINED, EXPIRED, LOOP_GUARD, TOOL_ERROR, TOOL_INPUT, TOOL_TIMEOUT, UNKNOWN_TOOL, STEP_LIMIT, CONTEXT_OVERFLOW, UNKNOWN_MODEL, PROVIDER_AUTH, PROVIDER_QUOTA, PROVIDER_RATE_LIMIT, PROVIDER_CONTENT, PROVIDER_INVALID, PROVIDER_UNAVAILABLE.',
    }),
    message: t.exposeString('message', { description: 'The same for a person.' }),
  }),
})

/** The error columns of a row as one value. */
export function errorOf(row: { errorCode: string | null; errorMessage: string | null }) {
  return row.errorCode === null ? null : { code: row.errorCode, message: row.errorMessage ?? '' }
}

export const Attachment = builder.objectRef<AttachmentShape>('Attachment').implement({
  description: 'A file that belongs to a prompt.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'File name, for people.' }),
    mediaType: t.exposeString('mediaType', { description: 'Media type, like image/png.' }),
    url: t.exposeString('url', { description: 'The data: or https: URL, as it was sent.' }),
  }),
})

export const AttachmentInput = builder.inputType('AttachmentInput', {
  description: 'A file to go with a prompt.',
  fields: (t) => ({
    name: t.string({ required: true, description: 'File name, for people.' }),
    mediaType: t.string({ required: true, description: 'Media type, like image/png.' }),
    url: t.string({ required: true, description: 'A data: URL that holds the file, or an https: URL where it is.' }),
  }),
})
