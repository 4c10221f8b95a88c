// What the model is told of a call: its output, or why there is none. A call that never got an outcome still has a result, as every
// provider refuses a history with an open call (STEP-16).

import type { LanguageModelV4ToolResultOutput, LanguageModelV4ToolResultPart } from '@ai-sdk/provider'
import type { JsonValue } from '../events.ts'
import type { ToolCall } from '../generated/prisma/client.ts'
import { isMediaPart, isPartList } from './tools/output.ts'

type ContentEntry = Extract<LanguageModelV4ToolResultOutput, { type: 'content' }>['value'][number]

function contentEntry(part: JsonValue): ContentEntry {
  if (isMediaPart(part)) return { type: 'file', data: { type: 'data', data: part.data }, mediaType: part.mediaType }
  return { type: 'text', text: (part as { text: string }).text }
}

function outputOf(output: JsonValue): LanguageModelV4ToolResultOutput {
  if (typeof output === 'string') return { type: 'text', value: output }
  if (isPartList(output)) return { type: 'content', value: output.map(contentEntry) }
  return { type: 'json', value: output }
}

/** The result part of one call. */
export function toolResult(call: ToolCall): LanguageModelV4ToolResultPart {
  const common = { type: 'tool-result' as const, toolCallId: call.callId, toolName: call.name }
  if (call.status === 'COMPLETED') return { ...common, output: outputOf(call.output as JsonValue) }
  const code = call.errorCode ?? 'OUTCOME_UNKNOWN'
  const message = call.errorMessage ?? 'the call has no known outcome'
  return { ...common, output: { type: 'error-text', value: `${code}: ${message}` } }
}
