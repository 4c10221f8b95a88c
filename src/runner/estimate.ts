// How many tokens a request will take. What the provider counted last comes first; only what is new since then is guessed, at four
// characters a token. Pure.

import type { History, HistoryMessage, Promoted } from './history.ts'
import type { AttemptTool } from './models/attempt.ts'

const charactersPerToken = 4
/** Images and documents are counted by the provider in ways of its own; a guess on the high side. */
const tokensPerAttachment = 1500

/** Automatic compaction begins when a request is estimated above this share of the model's context. */
export const compactAbove = 0.8

export const textTokens = (text: string) => Math.ceil(text.length / charactersPerToken)

const jsonTokens = (value: unknown) => (value === null || value === undefined ? 0 : textTokens(JSON.stringify(value)))

/** A message as it weighs in a prompt. */
export function messageTokens(message: HistoryMessage): number {
  if (message.kind === 'COMPACTION' || message.hidden) return 0
  const attachments = Array.isArray(message.attachments) ? message.attachments.length : 0
  const parts = message.parts.reduce((sum, { text }) => sum + textTokens(text), 0)
  const calls = message.toolCalls.reduce(
    (sum, { input, output, errorMessage }) =>
      sum + jsonTokens(input) + jsonTokens(output) + jsonTokens(errorMessage) + 8,
    0,
  )
  return textTokens(message.text ?? '') + attachments * tokensPerAttachment + parts + calls + 4
}

const promotedTokens = (promoted: readonly Promoted[]) =>
  promoted
    .filter(({ hidden }) => !hidden)
    .reduce((sum, { text, attachments }) => sum + textTokens(text) + attachments.length * tokensPerAttachment + 4, 0)

/** What every request carries, however short the conversation: instructions and tools. */
export const floorTokens = (history: History, tools: readonly AttemptTool[]) =>
  textTokens(history.instructions ?? '') +
  tools.reduce(
    (sum, { name, description, inputSchema }) => sum + textTokens(name + description) + jsonTokens(inputSchema),
    0,
  )

/** The estimate for the next request. */
export function estimateTokens(history: History, promoted: readonly Promoted[], tools: readonly AttemptTool[]): number {
  const { messages } = history
  const counted = messages.findLastIndex(
    // None at all are what a provider reports that does not count: no request is that short.
    ({ kind, status, inputTokens }) => kind === 'ASSISTANT' && status === 'ENDED' && Number(inputTokens) > 0,
  )
  const compacted = messages.findLastIndex(({ kind, status }) => kind === 'COMPACTION' && status === 'COMPLETED')
  const since = (from: number) => messages.slice(from).reduce((sum, message) => sum + messageTokens(message), 0)
  // A count from before the last compaction is of a longer history than the one that is sent now.
  if (counted > compacted) {
    const { inputTokens, outputTokens, toolCalls } = messages[counted]!
    const results = toolCalls.reduce(
      (sum, { output, errorMessage }) => sum + jsonTokens(output) + jsonTokens(errorMessage),
      0,
    )
    return Number(inputTokens) + Number(outputTokens ?? 0) + results + since(counted + 1) + promotedTokens(promoted)
  }
  return floorTokens(history, tools) + textTokens(history.summary ?? '') + since(0) + promotedTokens(promoted)
}
