// The pure leaves of a step: what the ledger derives, how a step is classified, when one is owed.
import { expect, it } from 'vitest'
import { type EventType, event, eventTypes, type NewEvent, noUsage, type StoredEvent } from '../src/events.ts'
import { emptyReplay, replayEvent } from '../src/replay.ts'
import { atBoundary, isEligible, isOwed, type Work } from '../src/runner/eligible.ts'
import { createLedger } from '../src/runner/ledger.ts'
import { ProviderFailure } from '../src/runner/models/failure.ts'
import { classify, type Evidence, type Settlement } from '../src/runner/settlement.ts'

const failure = new ProviderFailure('PROVIDER_UNAVAILABLE', 'down')
const overflow = new ProviderFailure('CONTEXT_OVERFLOW', 'too long')

/** Every combination of one value of each. */
function everyOf<T extends object>(values: { [K in keyof T]: readonly T[K][] }): T[] {
  return Object.entries(values).reduce<object[]>(
    (made, [name, each]) => made.flatMap((one) => (each as unknown[]).map((value) => ({ ...one, [name]: value }))),
    [{}],
  ) as T[]
}

it('STEP-20: whatever came together, one tagged value comes out, and the stronger evidence wins', () => {
  const both = [false, true]
  const all = everyOf<Required<Evidence>>({
    interrupted: both,
    dismissed: both,
    providerFailure: [null, failure],
    heldOverflow: [null, overflow],
    toolInfraFailure: [null, new Error('not stored')],
    stepError: [null, { code: 'LOOP_GUARD', message: 'again' }],
    hasLocalCalls: both,
    isLastStep: both,
  })
  expect(new Set(all.map((each) => JSON.stringify(Object.values(each).map(Boolean)))).size).toBe(256)
  const seen: Record<string, number> = {}
  for (const evidence of all) {
    const settlement = classify(evidence)
    seen[settlement.kind] = (seen[settlement.kind] ?? 0) + 1
    expect(settlement, JSON.stringify(evidence)).toEqual(expected(evidence))
  }
  expect(seen).toEqual({ Interrupted: 128, ProviderFailed: 96, ToolInfraFailed: 16, StepFailed: 8, Clean: 8 })
})

function expected(evidence: Required<Evidence>): Settlement {
  const { interrupted, dismissed, providerFailure, heldOverflow, toolInfraFailure, stepError } = evidence
  if (interrupted) return { kind: 'Interrupted', dismissed }
  if (providerFailure) return { kind: 'ProviderFailed', failure }
  if (heldOverflow) return { kind: 'ProviderFailed', failure: overflow }
  if (toolInfraFailure) return { kind: 'ToolInfraFailed', cause: toolInfraFailure }
  if (stepError) return { kind: 'StepFailed', error: stepError }
  return { kind: 'Clean', continues: evidence.hasLocalCalls && !evidence.isLastStep }
}

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
const asked = event('interaction.requested', {
  interactionId: 'req_.1',
  kind: 'APPROVAL',
  messageId: message,
  callId: 'c',
  name: 'n',
  toolInput: {},
  prompt: 'May n run?',
  options: [],
  expiresAt: null,
})
const settled = event('interaction.settled', {
  interactionId: 'req_.1',
  state: 'APPROVED',
  answer: null,
  feedback: null,
  editedInput: null,
  remember: false,
})
indifferent['interaction.requested'] = [started, input, called, asked]
indifferent['interaction.settled'] = [started, input, called, asked, settled]
const compacting = event('compaction.started', { messageId: 'msg_.sum', automatic: true })
indifferent['compaction.started'] = [compacting]
indifferent['compaction.ended'] = [
  compacting,
  event('compaction.ended', { messageId: 'msg_.sum', summary: 'so far', usage: noUsage }),
]
indifferent['compaction.failed'] = [
  compacting,
  event('compaction.failed', { messageId: 'msg_.sum', error, usage: noUsage }),
]
const aside = event('quarantine.opened', {
  quarantineId: 'qua_.1',
  executionId: 'exe_.1',
  quarantineKind: 'EXECUTION',
  reason: 'x',
})
indifferent['quarantine.opened'] = [aside]
indifferent['quarantine.resolved'] = [
  aside,
  event('quarantine.resolved', { quarantineId: 'qua_.1', action: 'DISCARD' }),
]
indifferent['session.parked'] = [event('session.parked', { reason: 'x' })]
indifferent['tool.failed'] = [started, input, event('tool.failed', { messageId: message, callId: 'c', error })]

it.each(Object.entries(indifferent))('STEP-25: %s leaves it as it was, owed or not', (_type, events) => {
  expect(owedAfter(...owing, ...events)).toBe(true)
  expect(owedAfter(...events)).toBe(false)
})

it('STEP-25: every type of event is one of those that leave it alone or one of those that are tested to change it', () => {
  const decided = [
    'session.created',
    'prompt.promoted',
    'step.ended',
    'step.failed',
    'step.interrupted',
    'interrupt.requested',
  ]
  expect([...Object.keys(indifferent), ...decided].toSorted()).toEqual(eventTypes.toSorted())
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
