import type {
  LanguageModelV4CallOptions,
  LanguageModelV4FunctionTool,
  LanguageModelV4Prompt,
  LanguageModelV4StreamPart,
} from '@ai-sdk/provider'
import { type Clock, realClock } from '../clock.ts'
import { classifyFailure, isProviderFailure, ProviderFailure } from './failure.ts'
import type { ProviderEvent } from './provider-event.ts'
import type { ResolvedModel } from './registry.ts'
import { translator } from './translate.ts'
import { pull } from './wire.ts'

export interface AttemptTool {
  name: string
  description: string
  inputSchema: LanguageModelV4FunctionTool['inputSchema']
}

export interface AttemptRequest {
  model: ResolvedModel
  prompt: LanguageModelV4Prompt
  tools: AttemptTool[]
  /** `none` still advertises the tools: the last step before the step limit (design section 6). */
  toolChoice: 'auto' | 'none'
  signal: AbortSignal
  /** Longest silence of the provider before the first and between chunks, in milliseconds. */
  idleMs: number
  /** Longest time of the request as a whole, in milliseconds; an hour unless said. */
  requestMs?: number
  clock?: Clock
}

// After a streamed error only the usage is still of interest; a server that keeps the line open is not waited for.
const AFTER_ERROR_MS = 1000

/**
 * Characters that one answer may have, with everything that comes in it. Its parts go into the log whole, perhaps in one append, and the
 * database takes 256 MB at once: what no append can hold could not even be settled.
 */
const answerMax = 32 * 1024 * 1024
/**
 * Parts and calls that one answer may have. Each that is still open when a step ends has its end in that one append, with two
 * events for a call that asks, and an append counts its events in 16 bits.
 */
const partsMax = 4096

/** What of an event has a length that the provider decides. */
function lengthOf(event: ProviderEvent): number {
  const state = 'state' in event ? JSON.stringify(event.state).length : 0
  if ('text' in event) return event.text.length
  if (event.type === 'tool-result') return JSON.stringify(event.output).length
  if (event.type === 'tool-call') return event.input.length + state
  return state
}

const begins: ReadonlySet<ProviderEvent['type']> = new Set(['text-start', 'reasoning-start', 'tool-input-start'])

/**
 * One attempt (design section 1): exactly one provider request, no retry, no tool loop. Yields what it says as it comes
 * and returns at the real end of the stream. A failure that the provider streams is thrown after its `finish` with
 * reason `error`, if there is one, so that usage is not lost; nothing else of what follows the error is yielded.
 * Leaving the loop early aborts the request; to end a wait from outside, abort the signal.
 *
 * @throws the signal's reason when it is aborted, else a `ProviderFailure`
 */
export async function* attempt(request: AttemptRequest): AsyncGenerator<ProviderEvent> {
  const { signal, requestMs = 3_600_000, clock = realClock } = request
  const translate = translator()
  let failure: ProviderFailure | undefined
  let finished = false
  let length = 0
  let parts = 0
  const idleMs = () => (failure === undefined ? request.idleMs : Math.min(request.idleMs, AFTER_ERROR_MS))
  try {
    for await (const part of pull({
      model: request.model.model,
      options: callOptions(request),
      signal,
      idleMs,
      requestMs,
      clock,
    })) {
      if (part.type === 'error') failure ??= classifyFailure(part.error, clock.now())
      if (finished || (failure !== undefined && part.type !== 'finish')) continue
      for (const event of translated(translate, part)) {
        if (event.type === 'finish') {
          finished = true
          if (failure !== undefined) event.reason = 'error'
          else if (event.reason === 'error') failure = new ProviderFailure('PROVIDER_UNAVAILABLE', ENDED_IN_ERROR)
        }
        length += lengthOf(event)
        if (length > answerMax)
          throw new ProviderFailure('PROVIDER_INVALID', `The answer has more than ${answerMax} characters.`)
        if (begins.has(event.type) && ++parts > partsMax)
          throw new ProviderFailure('PROVIDER_INVALID', `The answer has more than ${partsMax} parts and tool calls.`)
        yield event
      }
    }
  } catch (error) {
    if (signal.aborted) throw signal.reason
    throw failure ?? classifyFailure(error, clock.now())
  }
  if (failure !== undefined) throw failure
  if (!finished) throw new ProviderFailure('PROVIDER_UNAVAILABLE', "The provider's stream ended without a finish.")
}

/** What a model of the user's own sends may have the right type and nothing else right. */
function translated(translate: ReturnType<typeof translator>, part: LanguageModelV4StreamPart): ProviderEvent[] {
  try {
    return translate(part)
  } catch (thrown) {
    if (isProviderFailure(thrown)) throw thrown
    const type = /^[\w-]{1,40}$/.test(part.type) ? ` ${part.type}` : ''
    const message = `The provider's stream is broken: it sent a${type} part that is not as the specification asks.`
    throw new ProviderFailure('PROVIDER_UNAVAILABLE', message)
  }
}

const ENDED_IN_ERROR = "The provider's stream ended before the answer was complete."

function callOptions({ prompt, tools, toolChoice }: AttemptRequest): LanguageModelV4CallOptions {
  if (tools.length === 0) return { prompt }
  return { prompt, tools: tools.map((tool) => ({ type: 'function', ...tool })), toolChoice: { type: toolChoice } }
}
