export type JsonValue = null | boolean | number | string | JsonValue[] | { [key: string]: JsonValue }

/** Tokens of one attempt as the provider counted them; 0 where it says nothing. Cached ones are part of the input. */
export interface Usage {
  inputTokens: number
  outputTokens: number
  reasoningTokens: number
  cachedInputTokens: number
}

/**
 * What one provider request tells the step, in the order in which it arrives. `attempt` promises:
 * - part ids are unique within the attempt, also where the provider uses one id for several parts;
 * - a delta or end belongs to a part that is open, a `tool-call` comes once per `callId` and after its `tool-input-start`;
 * - every string can be stored in a jsonb column: no NUL, no lone surrogate;
 * - nothing but the end of the generator follows `finish`, though that end may come later: the stream is read to its
 *   real end (design section 6).
 *
 * `state` is the provider's own (signatures, encrypted reasoning) in the shape of `providerOptions`; it goes back to
 * the same model only. `input` is the raw JSON text that the model wrote, perhaps malformed; nothing at all becomes `{}`.
 */
export type ProviderEvent =
  | { type: 'text-start'; id: string }
  | { type: 'text-delta'; id: string; text: string }
  | { type: 'text-end'; id: string }
  | { type: 'reasoning-start'; id: string }
  | { type: 'reasoning-delta'; id: string; text: string }
  | { type: 'reasoning-end'; id: string; state?: JsonValue }
  | { type: 'tool-input-start'; callId: string; name: string; providerExecuted: boolean }
  | { type: 'tool-input-delta'; callId: string; text: string }
  | { type: 'tool-call'; callId: string; name: string; input: string; providerExecuted: boolean; state?: JsonValue }
  | { type: 'tool-result'; callId: string; output: JsonValue; isError: boolean }
  | { type: 'finish'; reason: FinishReason; usage: Usage }

export type FinishReason = 'stop' | 'length' | 'tool-calls' | 'content-filter' | 'error' | 'other'
