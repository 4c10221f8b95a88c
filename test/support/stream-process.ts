// One Holdfast process as far as streams see it: log, doorbell and live text over a real database, without server and runner.

import { connect, type Db } from '../../src/db.ts'
import { createDoorbell, type Doorbell } from '../../src/doorbell.ts'
import { createEventLog, type EventLog } from '../../src/event-log.ts'
import { event, type NewEvent, noUsage } from '../../src/events.ts'
import { newExecutionId, newMessageId } from '../../src/ids.ts'
import { createLiveText, type LiveText } from '../../src/live-text.ts'
import { realTimers, type Timers } from '../../src/pull.ts'
import { type SessionStreamOptions, type StreamSources, sessionStream } from '../../src/session-stream.ts'
import type { StreamItem } from '../../src/stream-item.ts'
import { eventually } from './eventually.ts'

export interface StreamProcess extends StreamSources {
  db: Db
  eventLog: EventLog
  doorbell: Doorbell
  live: LiveText
  owner: string
  stop: AbortController
  counts: { slowConsumers: number; streams: number }
  stream(sessionId: string, after?: number, options?: Partial<SessionStreamOptions>): ReturnType<typeof sessionStream>
  close(): Promise<void>
}

let processes = 0

export function streamProcess(
  url: string,
  options: { pollMs?: number; stallMs?: number; clock?: Timers; deaf?: boolean; pool?: number; flushMs?: number } = {},
): StreamProcess {
  const owner = `own_.test${++processes}`
  const db = connect(url, options.pool ?? 5)
  const doorbell = createDoorbell({ db, url: options.deaf ? null : url, origin: owner, pollMs: options.pollMs ?? 1000 })
  const eventLog = createEventLog({ db, doorbell, origin: owner })
  const live = createLiveText({ db, owner, flushMs: options.flushMs ?? 100 })
  const stop = new AbortController()
  const counts = { slowConsumers: 0, streams: 0 }
  const self: StreamProcess = {
    db,
    eventLog,
    doorbell,
    live,
    owner,
    stop,
    counts,
    stopping: stop.signal,
    config: { pollMs: options.pollMs ?? 1000, stallMs: options.stallMs ?? 60_000 },
    clock: options.clock ?? realTimers,
    metrics: {
      streamsOpened: { inc() {} },
      streamsEnded: { inc() {} },
      slowConsumers: { inc: () => void counts.slowConsumers++ },
      streams: { inc: () => void counts.streams++, dec: () => void counts.streams-- },
    },
    stream: (sessionId, after = 0, more = {}) => sessionStream(self, { sessionId, after, ...more }),
    async close() {
      await live.close()
      await doorbell.close()
      await db.$disconnect()
    },
  }
  return self
}

let sessions = 0
export const newSessionId = () => `ses_stream-test-${++sessions}`

export async function append(process: StreamProcess, sessionId: string, ...events: NewEvent[]): Promise<number> {
  const outcome = await process.eventLog.append({ sessionId, events })
  if (outcome.kind !== 'appended') throw new Error(`append: ${outcome.kind}`)
  return outcome.lastSeq
}

export async function createSession(process: StreamProcess, tenant = 'default'): Promise<string> {
  const sessionId = newSessionId()
  await append(
    process,
    sessionId,
    event('session.created', { tenant, title: null, instructions: null, model: 'demo/echo' }),
  )
  return sessionId
}

export const titled = (title: string) =>
  event('session.updated', { title, instructions: null, model: 'demo/echo', archived: false })

export interface RunningStep {
  sessionId: string
  messageId: string
  executionId: string
  append(...events: NewEvent[]): Promise<number>
  /** Commits the start event, then begins the part, as a runner does. */
  begin(kind?: 'TEXT' | 'REASONING', index?: number): Promise<void>
  add(text: string, index?: number): void
  /** Ends the part, then commits its end event. */
  end(text: string, kind?: 'TEXT' | 'REASONING', index?: number): Promise<void>
  settle(): Promise<void>
}

/** A session whose first step is under way in `process`, with a claim in phase UNKNOWN. Five events. */
export async function runningStep(process: StreamProcess, sessionId = newSessionId()): Promise<RunningStep> {
  const executionId = newExecutionId()
  const messageId = newMessageId()
  const prompt = `msg_${messageId.slice(5)}`
  const input = { messageId: prompt, inputKind: 'PROMPT' as const, text: 'hello', attachments: [] }
  await append(
    process,
    sessionId,
    event('session.created', { tenant: 'default', title: null, instructions: null, model: 'demo/echo' }),
  )
  await append(process, sessionId, event('prompt.admitted', { ...input, delivery: 'STEER', requestExecution: true }))
  await process.eventLog.append({
    sessionId,
    events: [event('execution.started', { executionId })],
    claim: { kind: 'acquire', executionId, owner: process.owner, leaseMs: 600_000 },
  })
  await process.eventLog.append({
    sessionId,
    fence: { executionId, owner: process.owner, phases: ['READY'] },
    claim: { kind: 'move', to: 'UNKNOWN' },
    events: [
      event('prompt.promoted', { ...input, hidden: false }),
      event('step.started', { messageId, model: 'demo/echo', executionId }),
    ],
  })
  return {
    sessionId,
    messageId,
    executionId,
    append: (...events) => append(process, sessionId, ...events),
    async begin(kind = 'TEXT', index = 0) {
      await append(
        process,
        sessionId,
        event(kind === 'TEXT' ? 'text.started' : 'reasoning.started', { messageId, index }),
      )
      process.live.begin({ sessionId, messageId, index, kind, callId: null }, executionId)
    },
    add: (text, index = 0) => process.live.add(sessionId, messageId, index, text),
    async end(text, kind = 'TEXT', index = 0) {
      await process.live.end(sessionId, messageId, index)
      await append(
        process,
        sessionId,
        event(kind === 'TEXT' ? 'text.ended' : 'reasoning.ended', { messageId, index, text }),
      )
    },
    async settle() {
      await append(
        process,
        sessionId,
        event('step.streamed', { messageId }),
        event('step.ended', { messageId, finish: 'stop', usage: noUsage, continues: false }),
      )
    },
  }
}

/** Takes items until one satisfies `last`; the test's own time limit bounds it. */
export async function takeUntil(
  stream: AsyncIterator<StreamItem>,
  last: (item: StreamItem) => boolean,
): Promise<StreamItem[]> {
  const items: StreamItem[] = []
  for (;;) {
    const { done, value } = await stream.next()
    if (done) throw new Error(`the stream ended after ${items.map((item) => item.typename).join(', ')}`)
    items.push(value)
    if (last(value)) return items
  }
}

export const is = (typename: StreamItem['typename']) => (item: StreamItem) => item.typename === typename
export const seqs = (items: StreamItem[]) => items.flatMap((item) => (item.seq === null ? [] : [item.seq]))
export const names = (items: StreamItem[]) => items.map((item) => item.typename)

/** Joins the deltas of one part by offset; throws at a hole. Applying them twice must give the same. */
export function joined(items: StreamItem[], index = 0): string {
  let text = ''
  for (const item of items) {
    if (!('offset' in item) || item.index !== index) continue
    if (item.offset > text.length) throw new Error(`hole: ${text.length} received, next offset ${item.offset}`)
    text = text.slice(0, item.offset) + item.text + text.slice(item.offset + item.text.length)
  }
  return text
}

/** Waits for a condition, not for time. */
export const until = (condition: () => boolean | Promise<boolean>, what = 'the condition', ms = 15_000) =>
  eventually(what, condition, { ms, every: 5 })
