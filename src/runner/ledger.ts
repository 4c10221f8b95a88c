// The step ledger: owner of all evidence of one attempt (design section 1). It turns provider events into what has to be written and
// keeps what settlement asks for. A leaf: no database, no clock, no effect; step.ts carries out what it says.
//
// It records: parts in the order in which they started, their text, calls and how far they got, finish and usage. It derives: whether
// anything was output, which parts and calls are still open, whether the step goes on (docs/decisions).

import { event, type JsonValue, type NewEvent, noUsage, type StepError, type Usage } from '../events.ts'
import type { LivePartKind } from '../live-text.ts'
import type { FinishReason, ProviderEvent } from './models/provider-event.ts'
import type { Received } from './settle-open.ts'

export interface CallRequest {
  callId: string
  index: number
  name: string
  /** Raw JSON text as the model wrote it. */
  input: string
  providerExecuted: boolean
  state?: JsonValue
}

/** What step.ts does about one provider event. */
export type LedgerMove =
  | { kind: 'none' }
  | { kind: 'begin'; event: NewEvent; index: number; part: LivePartKind; callId: string | null; text: string }
  | { kind: 'text'; index: number; text: string }
  | { kind: 'end'; index: number; events: NewEvent[] }
  | { kind: 'call'; call: CallRequest; begins: NewEvent | null }
  | { kind: 'result'; event: NewEvent }

interface LedgerPart {
  index: number
  kind: 'TEXT' | 'REASONING'
  text: string
  started: boolean
  ended: boolean
  /** Came with its end. */
  state?: JsonValue
  /** Its end is in the log. */
  written: boolean
}

type CallState = 'streaming' | 'called' | 'running' | 'settled'

interface LedgerCall {
  index: number
  name: string
  state: CallState
  providerExecuted: boolean
}

export interface Ledger {
  readonly messageId: string
  /** Takes one provider event in; what comes back has to be written before the next event is taken. */
  take(event: ProviderEvent): LedgerMove
  mark(callId: string, state: Exclude<CallState, 'streaming'>): void
  /** These events have been committed. */
  written(events: readonly NewEvent[]): void
  /** What the log may not have yet. */
  received(): Received
  /** Has anything of the attempt been written? Decides between retrying under the same message and under a new one. */
  hasOutput(): boolean
  /** Local calls of the step, whatever became of them: with one the step continues. */
  hasLocalCalls(): boolean
  openParts(): { index: number; events: NewEvent[] }[]
  openCalls(): { callId: string; name: string; state: CallState; index: number; providerExecuted: boolean }[]
  readonly finish: FinishReason | null
  readonly usage: Usage
}

export function createLedger(messageId: string): Ledger {
  const parts = new Map<string, LedgerPart>()
  const calls = new Map<string, LedgerCall>()
  let nextIndex = 0
  let finish: FinishReason | null = null
  let usage: Usage = noUsage

  function begin(part: LedgerPart): NewEvent {
    part.index = nextIndex++
    part.started = true
    return event(part.kind === 'TEXT' ? 'text.started' : 'reasoning.started', { messageId, index: part.index })
  }

  function endOf(part: LedgerPart, state?: JsonValue): NewEvent {
    part.ended = true
    if (state !== undefined) part.state = state
    const payload = { messageId, index: part.index, text: part.text, ...(state === undefined ? {} : { state }) }
    return event(part.kind === 'TEXT' ? 'text.ended' : 'reasoning.ended', payload)
  }

  /** A part starts with its first text, so that no empty part is stored. */
  function delta(id: string, text: string): LedgerMove {
    const part = parts.get(id)
    if (part === undefined || part.ended || text === '') return { kind: 'none' }
    part.text += text
    if (part.started) return { kind: 'text', index: part.index, text }
    return { kind: 'begin', event: begin(part), index: part.index, part: part.kind, callId: null, text }
  }

  function end(id: string, state?: JsonValue): LedgerMove {
    const part = parts.get(id)
    if (part === undefined || part.ended) return { kind: 'none' }
    if (part.started) return { kind: 'end', index: part.index, events: [endOf(part, state)] }
    part.ended = true
    // Reasoning without text can still carry state that the model needs back.
    if (state === undefined) return { kind: 'none' }
    const started = begin(part)
    return { kind: 'end', index: part.index, events: [started, endOf(part, state)] }
  }

  function callStarted(
    callId: string,
    name: string,
    providerExecuted: boolean,
  ): { call: LedgerCall; begins: NewEvent } {
    const call: LedgerCall = { index: nextIndex++, name, state: 'streaming', providerExecuted }
    calls.set(callId, call)
    const payload = { messageId, index: call.index, callId, name, ...(providerExecuted ? { providerExecuted } : {}) }
    return { call, begins: event('tool.input_started', payload) }
  }

  return {
    messageId,
    take(from) {
      switch (from.type) {
        case 'text-start':
        case 'reasoning-start': {
          const kind = from.type === 'text-start' ? 'TEXT' : 'REASONING'
          parts.set(from.id, { index: -1, kind, text: '', started: false, ended: false, written: false })
          return { kind: 'none' }
        }
        case 'text-delta':
        case 'reasoning-delta':
          return delta(from.id, from.text)
        case 'text-end':
          return end(from.id)
        case 'reasoning-end':
          return end(from.id, from.state)
        case 'tool-input-start': {
          if (calls.has(from.callId)) return { kind: 'none' }
          const { call, begins } = callStarted(from.callId, from.name, from.providerExecuted)
          return { kind: 'begin', event: begins, index: call.index, part: 'TOOL_INPUT', callId: from.callId, text: '' }
        }
        case 'tool-input-delta': {
          const call = calls.get(from.callId)
          if (call?.state !== 'streaming') return { kind: 'none' }
          return { kind: 'text', index: call.index, text: from.text }
        }
        case 'tool-call': {
          const known = calls.get(from.callId)
          if (known !== undefined && known.state !== 'streaming') return { kind: 'none' }
          const started = known === undefined ? callStarted(from.callId, from.name, from.providerExecuted) : null
          const { index } = known ?? started!.call
          const { callId, name, input, providerExecuted, state } = from
          const call = { callId, index, name, input, providerExecuted, ...(state === undefined ? {} : { state }) }
          return { kind: 'call', call, begins: started?.begins ?? null }
        }
        case 'tool-result': {
          const call = calls.get(from.callId)
          if (call === undefined || call.state === 'settled') return { kind: 'none' }
          call.state = 'settled'
          const { callId, output } = from
          if (!from.isError)
            return { kind: 'result', event: event('tool.succeeded', { messageId, callId, output: output ?? '' }) }
          const message = typeof output === 'string' ? output : JSON.stringify(output)
          const error: StepError = { code: 'TOOL_ERROR', message }
          return { kind: 'result', event: event('tool.failed', { messageId, callId, error }) }
        }
        case 'finish':
          finish = from.reason
          usage = from.usage
          return { kind: 'none' }
      }
    },
    mark(callId, state) {
      const call = calls.get(callId)
      if (call !== undefined) call.state = state
    },
    written(events) {
      for (const { type, payload } of events) {
        if (type !== 'text.ended' && type !== 'reasoning.ended') continue
        for (const part of parts.values()) if (part.index === payload.index) part.written = true
      }
    },
    received: () => ({
      messageId,
      parts: [...parts.values()]
        .filter(({ started, written }) => started && !written)
        .map(({ index, kind, text, state }) => ({ index, kind, text, ...(state === undefined ? {} : { state }) })),
      usage,
    }),
    hasOutput: () => nextIndex > 0,
    hasLocalCalls: () => [...calls.values()].some(({ providerExecuted }) => !providerExecuted),
    openParts: () =>
      [...parts.values()]
        .filter(({ started, ended }) => started && !ended)
        .map((part) => ({ index: part.index, events: [endOf(part)] })),
    openCalls: () =>
      [...calls]
        .filter(([, { state }]) => state !== 'settled')
        .map(([callId, { name, state, index, providerExecuted }]) => ({
          callId,
          name,
          state,
          index,
          providerExecuted,
        })),
    get finish() {
      return finish
    },
    get usage() {
      return usage
    },
  }
}
