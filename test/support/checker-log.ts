// What the log of one session must say, whatever died while it was written. Pure: events in, findings out.
import type { EventPayloads, EventType, StoredEvent } from '../../src/events.ts'

/**
 * - `lost`: something that was acknowledged, or has to have an end, is not there
 * - `doubled`: something is there twice that must be once
 * - `stuck`: owed, and nobody sees to it
 * - `broken`: the log, the tables and the world outside contradict each other
 */
export interface Finding {
  kind: 'lost' | 'doubled' | 'stuck' | 'broken'
  sessionId: string
  what: string
}

type Found = Omit<Finding, 'sessionId'>

/** Events that only end what was under way, or ask for nothing: all that may follow a stop until a person acts again. */
const endings: ReadonlySet<EventType> = new Set<EventType>([
  'interrupt.requested',
  'interaction.settled',
  'text.ended',
  'reasoning.ended',
  'tool.failed',
  'compaction.failed',
  'step.interrupted',
  'step.failed',
  'execution.settled',
  'quarantine.opened',
  'quarantine.resolved',
  'session.updated',
  'prompt.withdrawn',
  'prompt.delivery_changed',
  'prompt.admitted',
])

const payloadsOf = <T extends EventType>(events: readonly StoredEvent[], type: T) =>
  events.flatMap((each) => (each.type === type ? [each.payload as EventPayloads[T]] : []))

const counted = (keys: readonly string[]) => {
  const counts = new Map<string, number>()
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1)
  return counts
}

/** Does a person ask for work with this event? */
function isAct(each: StoredEvent): boolean {
  if (each.type === 'prompt.admitted') return each.payload.requestExecution && each.payload.inputKind !== 'CONTINUATION'
  return each.type === 'prompt.execution_requested' || each.type === 'session.resume_requested'
}

/** After an accepted stop nothing begins, is asked or is dispatched until a person acts. */
function resumedStops(events: readonly StoredEvent[]): Found[] {
  const found: Found[] = []
  // What had been received when the stop came is kept: it begins and ends in the append that ends its step.
  const cleanups = new Set(events.flatMap((each) => (each.type === 'step.interrupted' ? [each.appendId] : [])))
  const isKept = ({ type, appendId }: StoredEvent) =>
    (type === 'text.started' || type === 'reasoning.started') && cleanups.has(appendId)
  let stoppedAt: number | null = null
  for (const each of events) {
    if (each.type === 'interrupt.requested') stoppedAt = each.seq
    else if (isAct(each)) stoppedAt = null
    else if (stoppedAt !== null && !endings.has(each.type) && !isKept(each))
      found.push({ kind: 'doubled', what: `${each.type} at ${each.seq} goes on after the stop at ${stoppedAt}` })
  }
  return found
}

interface Pairing {
  what: string
  begun: readonly string[]
  ended: readonly string[]
  /** May be without an end now. */
  isOpen: (key: string) => boolean
}

/** Each begun thing has exactly one end, and nothing ends that has not begun. */
function paired({ what, begun, ended, isOpen }: Pairing): Found[] {
  const found: Found[] = []
  const ends = counted(ended)
  for (const [key, n] of counted(begun))
    if (n > 1) found.push({ kind: 'doubled', what: `${what} ${key} begins ${n} times` })
  const known = new Set(begun)
  for (const [key, n] of ends) {
    if (n > 1) found.push({ kind: 'doubled', what: `${what} ${key} has ${n} ends` })
    if (!known.has(key)) found.push({ kind: 'broken', what: `${what} ${key} ends and never began` })
  }
  for (const key of known)
    if (!ends.has(key) && !isOpen(key)) found.push({ kind: 'lost', what: `${what} ${key} has no end` })
  return found
}

/** What may be without an end at this moment, by the tables. */
export interface StillOpen {
  /** Executions with a claim. */
  executions: ReadonlySet<string>
  /** Steps and compactions that run under a claim, or wait for a person. */
  messages: ReadonlySet<string>
  /** Calls of such steps, as `messageId/callId`. */
  calls: ReadonlySet<string>
}

/** Looks at one whole log, oldest first. */
export function findInLog(events: readonly StoredEvent[], open: StillOpen): Found[] {
  const found: Found[] = []
  events.forEach(({ seq }, n) => {
    if (seq !== n + 1) found.push({ kind: 'broken', what: `event ${n + 1} of the log has seq ${seq}` })
  })
  const ids = <T extends EventType>(type: T, id: (payload: EventPayloads[T]) => string) =>
    payloadsOf(events, type).map(id)
  const once = (what: string, keys: string[]) => {
    for (const [key, n] of counted(keys))
      if (n > 1) found.push({ kind: 'doubled', what: `${key} was ${what} ${n} times` })
  }
  const byMessage = ({ messageId }: { messageId: string }) => messageId
  const byCall = ({ messageId, callId }: { messageId: string; callId: string }) => `${messageId}/${callId}`
  const byExecution = ({ executionId }: { executionId: string }) => executionId
  once('admitted', ids('prompt.admitted', byMessage))
  once('promoted', ids('prompt.promoted', byMessage))
  once('started as a tool', ids('tool.started', byCall))
  once(
    'settled as an interaction',
    ids('interaction.settled', ({ interactionId }) => interactionId),
  )
  once('recovered', ids('step.recovered', byExecution))
  found.push(
    ...paired({
      what: 'execution',
      begun: ids('execution.started', byExecution),
      ended: [...ids('execution.settled', byExecution), ...ids('step.recovered', byExecution)],
      isOpen: (id) => open.executions.has(id),
    }),
    ...paired({
      what: 'step',
      begun: ids('step.started', byMessage),
      ended: [...ids('step.ended', byMessage), ...ids('step.failed', byMessage), ...ids('step.interrupted', byMessage)],
      isOpen: (id) => open.messages.has(id),
    }),
    ...paired({
      what: 'tool call',
      begun: [...new Set([...ids('tool.input_started', byCall), ...ids('tool.called', byCall)])],
      ended: [...ids('tool.succeeded', byCall), ...ids('tool.failed', byCall)],
      isOpen: (id) => open.calls.has(id),
    }),
    ...paired({
      what: 'compaction',
      begun: ids('compaction.started', byMessage),
      ended: [...ids('compaction.ended', byMessage), ...ids('compaction.failed', byMessage)],
      isOpen: (id) => open.messages.has(id),
    }),
    ...resumedStops(events),
  )
  return found
}
