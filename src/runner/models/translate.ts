import type { LanguageModelV4StreamPart, LanguageModelV4Usage, SharedV4ProviderMetadata } from '@ai-sdk/provider'
import { kindOf } from '../../thrown.ts'
import { tokenCount } from '../../tokens.ts'
import { plainJson } from '../plain-json.ts'
import { keptCallId, keptName } from './call-text.ts'
import { ProviderFailure } from './failure.ts'
import type { FinishReason, JsonValue, ProviderEvent, Usage } from './provider-event.ts'
import { holdHalf, safeJsonText, safeText } from './safe-text.ts'

interface OpenPart {
  id: string
  held: string
  state?: SharedV4ProviderMetadata
}
interface OpenCall {
  stage: 'input' | 'called' | 'answered'
  held: string
}

/**
 * The memory of one attempt that turns a model's stream parts into provider events: fresh part ids, safe text, and the
 * order that `ProviderEvent` promises. Parts that have no event (sources, files, metadata, pings) give none.
 *
 * @throws a retryable `ProviderFailure` where the stream breaks its own protocol: a delta for a part that is not open,
 * a part started twice, a second call with the same id
 */
export function translator(): (part: LanguageModelV4StreamPart) => ProviderEvent[] {
  const open = new Map<string, OpenPart>()
  const calls = new Map<string, OpenCall>()
  let parts = 0

  function start(kind: 'text' | 'reasoning', id: string, state?: SharedV4ProviderMetadata): ProviderEvent[] {
    const key = `${kind} ${id}`
    if (open.has(key)) throw broken(`started a ${kind} part twice`)
    // Providers use one id again for a later part; a consumer that keys by id must not mix them.
    const part: OpenPart = { id: `${kind}-${parts++}`, held: '', state }
    open.set(key, part)
    return [{ type: `${kind}-start`, id: part.id }]
  }

  function delta(
    kind: 'text' | 'reasoning',
    id: string,
    text: string,
    state?: SharedV4ProviderMetadata,
  ): ProviderEvent[] {
    const part = open.get(`${kind} ${id}`)
    if (part === undefined) throw broken(`sent ${kind} for a part that is not open`)
    part.state = state ?? part.state
    const [ready, held] = holdHalf(part.held + textOf(text))
    part.held = held
    return ready === '' ? [] : [{ type: `${kind}-delta`, id: part.id, text: safeText(ready) }]
  }

  function end(kind: 'text' | 'reasoning', id: string, state?: SharedV4ProviderMetadata): ProviderEvent[] {
    const part = open.get(`${kind} ${id}`)
    if (part === undefined) return []
    open.delete(`${kind} ${id}`)
    const rest: ProviderEvent[] =
      part.held === '' ? [] : [{ type: `${kind}-delta`, id: part.id, text: safeText(part.held) }]
    // Signatures come with the start, a delta or the end, depending on the provider; the latest one is whole.
    if (kind === 'text') return [...rest, { type: 'text-end', id: part.id }]
    return [...rest, { type: 'reasoning-end', id: part.id, ...withState(state ?? part.state) }]
  }

  function startInput(callId: string, name: string, providerExecuted: boolean): ProviderEvent[] {
    if (calls.has(callId)) throw broken('started a tool call twice')
    calls.set(callId, { stage: 'input', held: '' })
    return [{ type: 'tool-input-start', callId: keptCallId(callId), name: keptName(name), providerExecuted }]
  }

  function inputDelta(callId: string, text: string): ProviderEvent[] {
    const call = calls.get(callId)
    if (call?.stage !== 'input') throw broken('sent input for a tool call that is not open')
    const [ready, held] = holdHalf(call.held + textOf(text))
    call.held = held
    return ready === '' ? [] : [{ type: 'tool-input-delta', callId: keptCallId(callId), text: safeText(ready) }]
  }

  return (part) => {
    switch (part.type) {
      case 'text-start':
        return start('text', part.id)
      case 'text-delta':
        return delta('text', part.id, part.delta)
      case 'text-end':
        return end('text', part.id)
      case 'reasoning-start':
        return start('reasoning', part.id, part.providerMetadata)
      case 'reasoning-delta':
        return delta('reasoning', part.id, part.delta, part.providerMetadata)
      case 'reasoning-end':
        return end('reasoning', part.id, part.providerMetadata)
      case 'tool-input-start':
        return startInput(part.id, part.toolName, part.providerExecuted === true)
      case 'tool-input-delta':
        return inputDelta(part.id, part.delta)
      case 'tool-call': {
        const providerExecuted = part.providerExecuted === true
        const before = calls.has(part.toolCallId) ? [] : startInput(part.toolCallId, part.toolName, providerExecuted)
        const call = calls.get(part.toolCallId)
        if (call === undefined || call.stage !== 'input') throw broken('made the same tool call twice')
        call.stage = 'called'
        return [
          ...before,
          {
            type: 'tool-call',
            callId: keptCallId(part.toolCallId),
            name: keptName(part.toolName),
            // Servers send no arguments at all for a tool without parameters.
            input: part.input.trim() === '' ? '{}' : safeJsonText(part.input),
            providerExecuted,
            ...withState(part.providerMetadata),
          },
        ]
      }
      case 'tool-result': {
        if (part.preliminary === true) return []
        const call = calls.get(part.toolCallId)
        if (call?.stage !== 'called') throw broken('sent a result for a tool call that is not open')
        call.stage = 'answered'
        const output = kept(part.result)
        return [{ type: 'tool-result', callId: keptCallId(part.toolCallId), output, isError: part.isError === true }]
      }
      case 'finish': {
        const { unified } = part.finishReason ?? {}
        const reason = unified === 'interrupted' ? 'error' : finishReasons.find((known) => known === unified)
        return [{ type: 'finish', reason: reason ?? 'other', usage: usageOf(part.usage) }]
      }
      default:
        return []
    }
  }
}

const finishReasons: readonly FinishReason[] = ['stop', 'length', 'tool-calls', 'content-filter', 'error', 'other']

/** Joined to a text anything would become one, as `[object Object]`. */
function textOf(given: unknown): string {
  if (typeof given !== 'string') throw broken(`sent ${kindOf(given)} where a text has to be`)
  return given
}

/** A model of the config file may leave any of it out. */
function usageOf(usage: Partial<LanguageModelV4Usage> | undefined): Usage {
  const { inputTokens, outputTokens } = usage ?? {}
  return {
    inputTokens: tokenCount(inputTokens?.total),
    outputTokens: tokenCount(outputTokens?.total),
    reasoningTokens: tokenCount(outputTokens?.reasoning),
    cachedInputTokens: tokenCount(inputTokens?.cacheRead),
  }
}

function withState(state: SharedV4ProviderMetadata | undefined): { state?: JsonValue } {
  return state === undefined || Object.keys(state).length === 0 ? {} : { state: kept(state) }
}

function kept(value: unknown): JsonValue {
  try {
    return plainJson(value) ?? null
  } catch {
    throw broken('sent a value that is not JSON')
  }
}

function broken(what: string): ProviderFailure {
  return new ProviderFailure('PROVIDER_UNAVAILABLE', `The provider's stream is broken: it ${what}.`)
}
