// What a session stream consists of: the events of the log under the names of the GraphQL schema, and the items that are live only.
// One mapping for the stream and for Session.events, so that the same event cannot look different in the two.

import type { EventPayloads, EventType, JsonValue, StoredEvent } from './events.ts'

type Pascal<S extends string> = S extends `${infer A}.${infer B}`
  ? `${Capitalize<Snake<A>>}${Pascal<B>}`
  : Capitalize<Snake<S>>
type Snake<S extends string> = S extends `${infer A}_${infer B}` ? `${A}${Capitalize<Snake<B>>}` : S

/** 'prompt.execution_requested' -> 'PromptExecutionRequested'. */
export type Typename<T extends EventType> = Pascal<T>

/** The GraphQL type of an event type. */
export const typenameOf = <T extends EventType>(type: T) =>
  type.replace(/(^|[._])([a-z])/g, (_match, _before, letter: string) => letter.toUpperCase()) as Typename<T>

/** An event of the log as a stream gives it: its payload beside what every item has. */
export type LoggedItem = {
  [T in EventType]: { typename: Typename<T>; sessionId: string; seq: number; at: Date } & EventPayloads[T]
}[EventType]

export type StreamEndCause = 'SLOW_CONSUMER' | 'UNAUTHENTICATED' | 'SERVER_SHUTDOWN'

interface DeltaPayload {
  messageId: string
  index: number
  /** In UTF-16 code units from the beginning of the part. */
  offset: number
  text: string
}

interface LivePayloads {
  TextDelta: DeltaPayload
  ReasoningDelta: DeltaPayload
  ToolInputDelta: DeltaPayload & { callId: string }
  ToolProgress: { messageId: string; callId: string; progress: JsonValue }
  LogSynced: { through: number }
  StreamEnded: { cause: StreamEndCause; resumeAfter: number }
}

/** An item that is not in the log: it has no seq and no replay gives it. */
export type LiveItem = {
  [T in keyof LivePayloads]: { typename: T; sessionId: string; seq: null; at: Date } & LivePayloads[T]
}[keyof LivePayloads]

export type DeltaItem = Extract<LiveItem, { offset: number }>

export type StreamItem = LoggedItem | LiveItem

/** An event of the log as an item. The payload cannot hide what every item has: it comes first. */
export const itemOf = (event: StoredEvent): LoggedItem =>
  ({
    ...event.payload,
    typename: typenameOf(event.type),
    sessionId: event.sessionId,
    seq: event.seq,
    at: event.at,
  }) as unknown as LoggedItem
