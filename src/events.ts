// The facts of a session. One entry per event type of contract.graphql ("In the log"), named noun.deed; the payload is what the
// GraphQL type of the same name shows, plus what the projection needs. Payloads never change once released: fields may only be added,
// and then optional, so that logs of older releases replay (docs/decisions). Pure: no imports from other rooms, no clock, no ids.

import { UnknownEventError } from './errors.ts'

export type JsonValue = string | number | boolean | null | JsonValue[] | { [key: string]: JsonValue }

export type Delivery = 'STEER' | 'QUEUE'
export type InputKind = 'PROMPT' | 'CONTINUATION' | 'COMPACTION'
export type InputState = 'PENDING' | 'PROMOTED' | 'WITHDRAWN'
export type InteractionKind = 'APPROVAL' | 'QUESTION'
export type InteractionState = 'OPEN' | 'APPROVED' | 'DECLINED' | 'ANSWERED' | 'DISMISSED' | 'EXPIRED' | 'CANCELLED'
export type RecoveryPhase = 'READY' | 'UNKNOWN' | 'CONTINUE'
export type ExecutionPhase = 'READY' | 'UNKNOWN' | 'SAFE' | 'CONTINUE' | 'CANCELLING' | 'CANCELLED'
export type ExecutionOutcome = 'SUCCEEDED' | 'FAILED' | 'INTERRUPTED' | 'WAITING' | 'CLEARED' | 'RELEASED'
export type QuarantineKind = 'EXECUTION' | 'RECOVERY'
export type QuarantineAction = 'RETRY' | 'DISCARD'

/** The codes a StepError can carry (contract.graphql, StepError). */
export type StepErrorCode =
  | 'ABORTED'
  | 'OUTCOME_UNKNOWN'
  | 'NOT_STARTED'
  | 'DECLINED'
  | 'EXPIRED'
  | 'LOOP_GUARD'
  | 'TOOL_ERROR'
  | 'TOOL_INPUT'
  | 'TOOL_TIMEOUT'
  | 'UNKNOWN_TOOL'
  | 'STEP_LIMIT'
  | 'CONTEXT_OVERFLOW'
  | 'UNKNOWN_MODEL'
  | 'PROVIDER_AUTH'
  | 'PROVIDER_QUOTA'
  | 'PROVIDER_RATE_LIMIT'
  | 'PROVIDER_CONTENT'
  | 'PROVIDER_INVALID'
  | 'PROVIDER_UNAVAILABLE'

export interface StepError {
  code: StepErrorCode
  message: string
}

export interface Attachment {
  name: string
  mediaType: string
  url: string
}

/** Tokens of one provider request, or a sum of them. */
export interface Usage {
  inputTokens: number
  outputTokens: number
  reasoningTokens: number
  cachedInputTokens: number
}

export const noUsage: Usage = { inputTokens: 0, outputTokens: 0, reasoningTokens: 0, cachedInputTokens: 0 }

export interface EventPayloads {
  // requestedModel: what the caller sent (null: the default was taken), so that an honest retry compares equal later.
  'session.created': {
    tenant: string
    title: string | null
    instructions: string | null
    model: string
    requestedModel?: string | null
  }
  // archivedAt: since when, if the session had been archived before this update (else the event's own time counts).
  'session.updated': {
    title: string | null
    instructions: string | null
    model: string
    archived: boolean
    archivedAt?: string
  }
  'prompt.admitted': {
    messageId: string
    inputKind: InputKind
    text: string
    attachments: Attachment[]
    delivery: Delivery
    requestExecution: boolean
  }
  'prompt.execution_requested': { messageId: string }
  'prompt.delivery_changed': { messageId: string; delivery: Delivery }
  'prompt.withdrawn': { messageId: string }
  'interrupt.requested': { interruptedExecutionId: string | null }
  'execution.started': { executionId: string }
  'prompt.promoted': {
    messageId: string
    inputKind: InputKind
    text: string
    attachments: Attachment[]
    hidden: boolean
  }
  'step.started': { messageId: string; model: string; executionId: string }
  'step.retry_scheduled': { messageId: string; attempt: number; retryAt: string; error: StepError }
  'text.started': { messageId: string; index: number }
  'text.ended': { messageId: string; index: number; text: string; state?: JsonValue }
  'reasoning.started': { messageId: string; index: number }
  'reasoning.ended': { messageId: string; index: number; text: string; state?: JsonValue }
  'tool.input_started': {
    messageId: string
    index: number
    callId: string
    name: string
    providerExecuted?: boolean
  }
  'tool.called': {
    messageId: string
    index: number
    callId: string
    name: string
    toolInput: JsonValue
    providerExecuted?: boolean
    state?: JsonValue
  }
  'interaction.requested': {
    interactionId: string
    kind: InteractionKind
    messageId: string
    callId: string
    name: string
    toolInput: JsonValue
    prompt: string
    options: string[]
    expiresAt: string | null
    /** The tool's definition that was shown, so that a remembered approval ends when it changes. */
    definition?: string
  }
  'interaction.settled': {
    interactionId: string
    state: Exclude<InteractionState, 'OPEN'>
    answer: JsonValue
    feedback: string | null
    editedInput: JsonValue
    remember: boolean
    /** The decision also ends the activity (DECLINE_AND_STOP, a dismissed question). */
    stops?: boolean
  }
  'tool.started': { messageId: string; callId: string; toolInput?: JsonValue }
  'tool.succeeded': { messageId: string; callId: string; output: JsonValue }
  'tool.failed': { messageId: string; callId: string; error: StepError }
  // finish and usage: so that a step that waits for a person can be ended by another process.
  'step.streamed': { messageId: string; finish?: string; usage?: Usage }
  'step.ended': { messageId: string; finish: string; usage: Usage; continues: boolean }
  'step.failed': { messageId: string; error: StepError; usage: Usage; continues: boolean }
  'step.interrupted': { messageId: string; error: StepError; usage: Usage }
  'step.recovered': {
    executionId: string
    assistantMessageId: string | null
    continuationMessageId: string
    phase: RecoveryPhase
    handover: boolean
  }
  'quarantine.opened': { quarantineId: string; executionId: string; quarantineKind: QuarantineKind; reason: string }
  'quarantine.resolved': { quarantineId: string; action: QuarantineAction }
  'session.parked': { reason: string }
  'session.resume_requested': Record<string, never>
  'synthetic.appended': { messageId: string; text: string; hidden: boolean }
  'compaction.started': { messageId: string; automatic: boolean }
  'compaction.ended': { messageId: string; summary: string; usage: Usage; tailSeq?: number }
  'compaction.failed': { messageId: string; error: StepError; usage: Usage }
  'execution.settled': { executionId: string; outcome: ExecutionOutcome; retryAt: string | null }
}

export type EventType = keyof EventPayloads

/** An event that has not been appended yet. */
export type NewEvent = { [T in EventType]: { type: T; payload: EventPayloads[T] } }[EventType]

/** An event as the log holds it. */
export type StoredEvent = NewEvent & { sessionId: string; seq: number; at: Date; appendId: string }

const known: Record<EventType, true> = {
  'session.created': true,
  'session.updated': true,
  'prompt.admitted': true,
  'prompt.execution_requested': true,
  'prompt.delivery_changed': true,
  'prompt.withdrawn': true,
  'interrupt.requested': true,
  'execution.started': true,
  'prompt.promoted': true,
  'step.started': true,
  'step.retry_scheduled': true,
  'text.started': true,
  'text.ended': true,
  'reasoning.started': true,
  'reasoning.ended': true,
  'tool.input_started': true,
  'tool.called': true,
  'interaction.requested': true,
  'interaction.settled': true,
  'tool.started': true,
  'tool.succeeded': true,
  'tool.failed': true,
  'step.streamed': true,
  'step.ended': true,
  'step.failed': true,
  'step.interrupted': true,
  'step.recovered': true,
  'quarantine.opened': true,
  'quarantine.resolved': true,
  'session.parked': true,
  'session.resume_requested': true,
  'synthetic.appended': true,
  'compaction.started': true,
  'compaction.ended': true,
  'compaction.failed': true,
  'execution.settled': true,
}

export const eventTypes = Object.keys(known) as EventType[]

/** A row of the log, as any client of the database returns it. */
export interface EventRow {
  sessionId: string
  seq: number
  type: string
  payload: unknown
  at: Date
  appendId: string
}

/** Types one row of the log. Throws UnknownEventError for a type that this version does not know: never skipped in silence. */
export function decodeEvent(row: EventRow): StoredEvent {
  if (!Object.hasOwn(known, row.type)) throw new UnknownEventError(row.sessionId, row.seq, row.type)
  return row as unknown as StoredEvent
}

/** Builds one event; the payload's type follows from the event's. */
export function event<T extends EventType>(type: T, payload: EventPayloads[T]): NewEvent {
  return { type, payload } as NewEvent
}
