// The pure leaves of a step: what the ledger derives, how a step is classified, when one is owed.
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { type EventType, event, eventTypes, type NewEvent, noUsage, type StoredEvent } from '../src/events.ts'
import { emptyReplay, replayEvent } from '../src/replay.ts'
import { atBoundary, isEligible, isOwed, type Work } from '../src/runner/eligible.ts'
import { createLedger } from '../src/runner/ledger.ts'
import { ProviderFailure } from '../src/runner/models/failure.ts'
import { classify } from '../src/runner/settlement.ts'

const failure = new ProviderFailure('PROVIDER_UNAVAILABLE', 'down')
const overflow = new ProviderFailure('CONTEXT_OVERFLOW', 'too long')

it('STEP-20: whatever came together, one tagged value comes out, and the stronger evidence wins', () => {
  const seen = new Set<string>()
  fc.assert(
    fc.property(
      fc.record({
        interrupted: fc.boolean(),
        dismissed: fc.boolean(),
        providerFailure: fc.constantFrom(null, failure),
        heldOverflow: fc.constantFrom(null, overflow),
        toolInfraFailure: fc.constantFrom(null, new Error('not stored')),
        stepError: fc.constantFrom(null, { code: 'LOOP_GUARD' as const, message: 'again' }),
        hasLocalCalls: fc.boolean(),
        isLastStep: fc.boolean(),
      }),
      (evidence) => {
        const { interrupted, dismissed, providerFailure, heldOverflow, toolInfraFailure, stepError } = evidence
        const settlement = classify(evidence)
        seen.add(settlement.kind)
        if (interrupted) return void expect(settlement).toEqual({ kind: 'Interrupted', dismissed })
        const failed = providerFailure ?? heldOverflow
        if (failed) return void expect(settlement).toEqual({ kind: 'ProviderFailed', failure: failed })
        if (toolInfraFailure)
          return void expect(settlement).toEqual({ kind: 'ToolInfraFailed', cause: toolInfraFailure })
        if (stepError) return void expect(settlement).toEqual({ kind: 'StepFailed', error: stepError })
        const continues = evidence.hasLocalCalls && !evidence.isLastStep
        expect(settlement).toEqual({ kind: 'Clean', continues })
      },
    ),
    // 2^8 combinations: far more runs than there are, and no two alike are needed.
    { numRuns: 2000 },
  )
  expect([...seen].sort()).toEqual(['Clean', 'Interrupted', 'ProviderFailed', 'StepFailed', 'ToolInfraFailed'])
})

it('STEP-18, STEP-09: the ledger closes what the provider left open, and no part begins without text', () => {
  const ledger = createLedger('msg_.a')
  expect(ledger.take({ type: 'text-start', id: 't' })).toEqual({ kind: 'none' })
  expect(ledger.hasOutput()).toBe(false)
  expect(ledger.take({ type: 'text-delta', id: 't', text: 'ab' })).toMatchObject({
    kind: 'begin',
    index: 0,
    text: 'ab',
  })
  expect(ledger.take({ type: 'text-delta', id: 't', text: 'c' })).toEqual({ kind: 'text', index: 0, text: 'c' })
  expect(ledger.hasOutput()).toBe(true)
  expect(ledger.openParts()).toEqual([
    { index: 0, events: [event('text.ended', { messageId: 'msg_.a', index: 0, text: 'abc' })] },
  ])
  expect(ledger.openParts()).toEqual([])
})

it('STEP-19, TOOL-17: stray deltas, a second call and a second result for the same id are dropped by the ledger', () => {
  const ledger = createLedger('msg_.a')
  expect(ledger.take({ type: 'text-delta', id: 'stray', text: 'x' })).toEqual({ kind: 'none' })
  expect(ledger.take({ type: 'reasoning-end', id: 'stray' })).toEqual({ kind: 'none' })
  const call = { type: 'tool-call', callId: 'c', name: 'look', input: '{}', providerExecuted: true } as const
  expect(ledger.take(call)).toMatchObject({ kind: 'call' })
  ledger.mark('c', 'called')
  expect(ledger.take(call)).toEqual({ kind: 'none' })
  const result = { type: 'tool-result', callId: 'c', output: 1, isError: false } as const
  expect(ledger.take(result)).toMatchObject({ kind: 'result' })
  expect(ledger.take(result)).toEqual({ kind: 'none' })
  expect(ledger.openCalls()).toEqual([])
  expect(ledger.hasLocalCalls()).toBe(false)
})

const s = 'ses_owed'
const message = 'msg_.step'
const error = { code: 'PROVIDER_UNAVAILABLE', message: 'down' } as const
const created = event('session.created', { tenant: 'default', title: null, instructions: null, model: 'demo/echo' })
const admitted = (messageId: string, inputKind: 'PROMPT' | 'CONTINUATION' | 'COMPACTION' = 'PROMPT') =>
  event('prompt.admitted', {
    messageId,
    inputKind,
    text: 'x',
    attachments: [],
    delivery: 'STEER',
    requestExecution: true,
  })
const promoted = (messageId: string, inputKind: 'PROMPT' | 'CONTINUATION', hidden = false) =>
  event('prompt.promoted', { messageId, inputKind, text: 'x', attachments: [], hidden })
const started = event('step.started', { messageId: message, model: 'demo/echo', executionId: 'exe_.1' })
const recovered = (phase: 'READY' | 'UNKNOWN' | 'CONTINUE') =>
  event('step.recovered', {
    executionId: 'exe_.1',
    assistantMessageId: null,
    continuationMessageId: 'msg_.continue',
    phase,
    handover: false,
  })

/** stepOwed after these events. */
function owedAfter(...events: NewEvent[]): boolean {
  const state = emptyReplay()
  for (const [n, each] of [created, ...events].entries())
    replayEvent(state, { ...each, sessionId: s, seq: n + 1, at: new Date(n), appendId: 'a' } as StoredEvent)
  return state.session!.stepOwed as boolean
}

const owing = [admitted('msg_first'), promoted('msg_first', 'PROMPT')]
const running = [...owing, started]

it('STEP-25: a step is owed after a promotion that asks and after a terminal that continues, and after nothing else', () => {
  expect(owedAfter(admitted('msg_first'))).toBe(false)
  expect(owedAfter(...owing)).toBe(true)
  expect(owedAfter(recovered('UNKNOWN'))).toBe(false)
  expect(owedAfter(recovered('UNKNOWN'), promoted('msg_.continue', 'CONTINUATION'))).toBe(true)
  for (const phase of ['READY', 'CONTINUE'] as const)
    expect(owedAfter(recovered(phase), promoted('msg_.continue', 'CONTINUATION', true)), phase).toBe(false)

  const terminals: [NewEvent, boolean][] = [
    [event('step.ended', { messageId: message, finish: 'stop', usage: noUsage, continues: false }), false],
    [event('step.ended', { messageId: message, finish: 'tool-calls', usage: noUsage, continues: true }), true],
    [event('step.failed', { messageId: message, error, usage: noUsage, continues: false }), false],
    [event('step.failed', { messageId: message, error, usage: noUsage, continues: true }), true],
    [event('step.interrupted', { messageId: message, error, usage: noUsage }), false],
  ]
  for (const [terminal, owed] of terminals) expect(owedAfter(...running, terminal), terminal.type).toBe(owed)
  expect(owedAfter(...owing, event('interrupt.requested', { interruptedExecutionId: null }))).toBe(false)
})

/** Events that leave stepOwed alone, each with what has to stand before it. */
const indifferent: Partial<Record<EventType, NewEvent[]>> = {
  'session.updated': [
    event('session.updated', { title: 't', instructions: null, model: 'demo/echo', archived: false }),
  ],
  'prompt.admitted': [admitted('msg_other')],
  'prompt.execution_requested': [
    admitted('msg_other'),
    event('prompt.execution_requested', { messageId: 'msg_other' }),
  ],
  'prompt.delivery_changed': [
    admitted('msg_other'),
    event('prompt.delivery_changed', { messageId: 'msg_other', delivery: 'QUEUE' }),
  ],
  'prompt.withdrawn': [admitted('msg_other'), event('prompt.withdrawn', { messageId: 'msg_other' })],
  'execution.started': [event('execution.started', { executionId: 'exe_.2' })],
  'step.started': [started],
  'step.retry_scheduled': [
    started,
    event('step.retry_scheduled', { messageId: message, attempt: 2, retryAt: new Date(0).toISOString(), error }),
  ],
  'text.started': [started, event('text.started', { messageId: message, index: 0 })],
  'text.ended': [
    started,
    event('text.started', { messageId: message, index: 0 }),
    event('text.ended', { messageId: message, index: 0, text: 'x' }),
  ],
  'reasoning.started': [started, event('reasoning.started', { messageId: message, index: 0 })],
  'reasoning.ended': [
    started,
    event('reasoning.started', { messageId: message, index: 0 }),
    event('reasoning.ended', { messageId: message, index: 0, text: 'x' }),
  ],
  'tool.input_started': [
    started,
    event('tool.input_started', { messageId: message, index: 0, callId: 'c', name: 'n' }),
  ],
  'step.streamed': [started, event('step.streamed', { messageId: message })],
  'synthetic.appended': [event('synthetic.appended', { messageId: 'msg_.syn', text: 'continue', hidden: false })],
  'step.recovered': [recovered('UNKNOWN')],
  'session.resume_requested': [event('session.resume_requested', {})],
  'execution.settled': [
    event('execution.started', { executionId: 'exe_.2' }),
    event('execution.settled', { executionId: 'exe_.2', outcome: 'SUCCEEDED', retryAt: null }),
  ],
}
const input = event('tool.input_started', { messageId: message, index: 0, callId: 'c', name: 'n' })
const called = event('tool.called', { messageId: message, index: 0, callId: 'c', name: 'n', toolInput: {} })
const ran = event('tool.started', { messageId: message, callId: 'c' })
indifferent['tool.called'] = [started, input, called]
indifferent['tool.started'] = [started, input, called, ran]
indifferent['tool.succeeded'] = [
  started,
  input,
  called,
  ran,
  event('tool.succeeded', { messageId: message, callId: 'c', output: 1 }),
]
indifferent['tool.failed'] = [started, input, event('tool.failed', { messageId: message, callId: 'c', error })]

it.each(Object.entries(indifferent))('STEP-25: %s leaves it as it was, owed or not', (_type, events) => {
  expect(owedAfter(...owing, ...events)).toBe(true)
  expect(owedAfter(...events)).toBe(false)
})

it('STEP-25: of all other types those are tested that change it; of people, compaction and quarantine none is expected to', () => {
  const decided = [
    'session.created',
    'prompt.promoted',
    'step.ended',
    'step.failed',
    'step.interrupted',
    'interrupt.requested',
  ]
  const left = eventTypes.filter((type) => !(type in indifferent) && !decided.includes(type))
  expect(left.filter((type) => !/^(interaction|compaction|quarantine)\.|^session\.parked$/.test(type))).toEqual([])
})

it('STEP-25: eligible asks for a step only if one is owed', () => {
  const idle: Work = {
    seq: 1,
    model: 'demo/echo',
    stepOwed: false,
    parked: false,
    quarantined: false,
    backingOff: false,
    pending: [],
    openInteractions: 0,
    armedInteractions: 0,
    open: null,
    claim: null,
  } as Work
  expect(isOwed(idle)).toBe(false)
  expect(isEligible(idle)).toBe(false)
  expect(atBoundary(idle)).toEqual({ kind: 'rest', promote: [] })
  const owed = { ...idle, stepOwed: true }
  expect(isEligible(owed)).toBe(true)
  expect(atBoundary(owed)).toEqual({ kind: 'step', promote: [] })
  for (const over of [{ parked: true }, { quarantined: true }, { backingOff: true }])
    expect(isEligible({ ...owed, ...over })).toBe(false)
})
