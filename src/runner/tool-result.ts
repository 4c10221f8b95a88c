// What the model is told of a call: its output, or why there is none. A call that never got an outcome still has a result, as every
// provider refuses a history with an open call (STEP-16).

import type { LanguageModelV4ToolResultOutput, LanguageModelV4ToolResultPart } from '@ai-sdk/provider'
import type { JsonValue } from '../events.ts'
import type { ToolCall } from '../generated/prisma/client.ts'
import { type Dialect, takesInResult } from './dialect.ts'
import { isMediaPart, isPartList } from './tools/output.ts'

type ContentEntry = Extract<LanguageModelV4ToolResultOutput, { type: 'content' }>['value'][number]

/** A part for the model, with a note in place of media that its provider takes no tool output in. */
function contentEntry(part: JsonValue, dialect: Dialect): ContentEntry {
  if (!isMediaPart(part)) return { type: 'text', text: (part as { text: string }).text }
  const { data, mediaType } = part
  if (takesInResult(dialect, mediaType)) return { type: 'file', data: { type: 'data', data }, mediaType }
  return {
    type: 'text',
    text: `[${mediaType}, about ${Math.floor((data.length * 3) / 4)} bytes, not shown to this model]`,
  }
}

function outputOf(output: JsonValue, dialect: Dialect): LanguageModelV4ToolResultOutput {
  if (typeof output === 'string') return { type: 'text', value: output }
  if (!isPartList(output)) return { type: 'json', value: output }
  // A blank text among others is refused by some providers and says nothing.
  const entries = output
    .map((part) => contentEntry(part, dialect))
    .filter((e) => e.type !== 'text' || e.text.trim() !== '')
  const texts = entries.flatMap((entry) => (entry.type === 'text' ? [entry.text] : []))
  // Chat completions would get a list as JSON text.
  if (texts.length === entries.length) return { type: 'text', value: texts.join('\n') }
  return { type: 'content', value: entries }
}

/** The result part of one call, under the id and the name that its call has in this prompt. */
export function toolResult(
  call: ToolCall,
  { toolCallId, toolName }: { toolCallId: string; toolName: string },
  dialect: Dialect,
): LanguageModelV4ToolResultPart {
  const common = { type: 'tool-result' as const, toolCallId, toolName }
  if (call.status === 'COMPLETED') return { ...common, output: outputOf(call.output as JsonValue, dialect) }
  const code = call.errorCode ?? 'OUTCOME_UNKNOWN'
  const message = call.errorMessage ?? 'the call has no known outcome'
  return { ...common, output: { type: 'error-text', value: `${code}: ${message}` } }
}
