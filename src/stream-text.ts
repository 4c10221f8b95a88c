// The open parts of one stream and how much of their text it has sent. Text is never queued: it is read from where it grows, beyond
// the offset last sent, in the moment in which the reader asks. So a slow reader gets larger deltas and costs no memory (design section 10).
//
// A part is open from the moment its start event went out until its end event does. Its text stands in this process if this process
// streams it, in Chunk rows otherwise; while it moves from the one to the other (begun, ended, owner died) the rows hold a prefix.

import { joinedChunks } from './chunk-text.ts'
import type { Tx } from './db.ts'
import type { StoredEvent } from './events.ts'
import type { LivePart, LivePartKind, LiveText } from './live-text.ts'
import type { DeltaItem } from './stream-item.ts'

export interface PartAddress {
  messageId: string
  index: number
  kind: LivePartKind
  callId: string | null
}

interface OpenPart extends PartAddress {
  /** UTF-16 code units that went out. */
  sent: number
  /** Read from chunks and not sent yet, beginning at `sent`. */
  ahead: string
}

export interface StreamText {
  /** The parts that are open where the stream begins to be live. */
  begin(parts: readonly PartAddress[]): void
  /** Follows an event that went out. */
  apply(event: StoredEvent): void
  /**
   * What of a part has not been sent when its end event is about to go out: one delta, so that the deltas of a part always join to
   * its text. Null if nothing is missing. Of tool input the log has the value, not its text: there is no rest.
   */
  rest(event: StoredEvent): DeltaItem | null
  /** The next delta, null if there is no text now. `among`: only parts in it; a part whose delta was given is taken out of it. */
  next(among?: Set<string>): Promise<DeltaItem | null>
  keys(): Iterable<string>
  /** Does some part here have text to send? */
  localReady(): boolean
  /** Reads whether chunks have text to send, without keeping it. */
  remoteReady(): Promise<boolean>
  /** Chunks may have grown. */
  rung: boolean
  /** Is there an open part whose text this process does not have? Nobody rings for sure for those. */
  hasRemote(): boolean
}

export interface StreamTextOptions {
  sessionId: string
  live: Pick<LiveText, 'partsOf'>
  /** Runs a read; undefined: the database is away for the moment. */
  reading: <R>(operation: (db: Tx) => Promise<R>) => Promise<R | undefined>
  now: () => number
}

const keyOf = (part: { messageId: string; index: number }) => `${part.messageId}/${part.index}`

const typenames = { TEXT: 'TextDelta', REASONING: 'ReasoningDelta', TOOL_INPUT: 'ToolInputDelta' } as const

/** How much of the text can be sent: a pair that is only half there waits for its other half. */
function sendable(text: string): number {
  const last = text.charCodeAt(text.length - 1)
  return last >= 0xd800 && last <= 0xdbff ? text.length - 1 : text.length
}

export function createStreamText({ sessionId, live, reading, now }: StreamTextOptions): StreamText {
  const open = new Map<string, OpenPart>()

  const begin = (part: PartAddress) => open.set(keyOf(part), { ...part, sent: 0, ahead: '' })

  function close(messageId: string, matches: (part: OpenPart) => boolean) {
    for (const [key, part] of open) if (part.messageId === messageId && matches(part)) open.delete(key)
  }

  function delta(part: OpenPart, text: string): DeltaItem {
    const { messageId, index, kind, callId, sent } = part
    part.sent += text.length
    part.ahead = ''
    // Behind the others, so that one busy part does not hold back its siblings.
    open.delete(keyOf(part))
    open.set(keyOf(part), part)
    const item = {
      typename: typenames[kind],
      sessionId,
      seq: null,
      at: new Date(now()),
      messageId,
      index,
      offset: sent,
      text,
    }
    return (kind === 'TOOL_INPUT' ? { ...item, callId } : item) as DeltaItem
  }

  function localOf(): Map<string, LivePart> {
    const local = new Map<string, LivePart>()
    if (open.size > 0) for (const part of live.partsOf(sessionId)) local.set(keyOf(part), part)
    return local
  }

  /** Reads what chunks hold beyond what was sent. A chunk that begins beyond it waits for the one in between: never a hole. */
  async function readAhead(parts: OpenPart[]): Promise<boolean> {
    const rows = await reading(
      (db) => db.$queryRaw<{ messageId: string; index: number; offset: number; text: string }[]>`
        SELECT c."messageId", c.index, c."offset", c.text
          FROM unnest(${parts.map((part) => part.messageId)}::text[], ${parts.map((part) => part.index)}::int[],
                      ${parts.map((part) => part.sent)}::int[]) AS k(message, index, sent)
         CROSS JOIN LATERAL (
           SELECT max(b."offset") AS at FROM "Chunk" b
            WHERE b."sessionId" = ${sessionId} AND b."messageId" = k.message AND b.index = k.index AND b."offset" <= k.sent) b
          JOIN "Chunk" c ON c."sessionId" = ${sessionId} AND c."messageId" = k.message AND c.index = k.index
                        AND c."offset" >= COALESCE(b.at, 0)
         ORDER BY c."messageId", c.index, c."offset"`,
    )
    if (rows === undefined) return false
    const chunksOf = new Map<string, typeof rows>(parts.map((part) => [keyOf(part), []]))
    for (const row of rows) chunksOf.get(keyOf(row))?.push(row)
    for (const part of parts) part.ahead = joinedChunks(chunksOf.get(keyOf(part))!, part.sent)
    return true
  }

  const remoteParts = (local = localOf()) => [...open.values()].filter((part) => !local.has(keyOf(part)))

  const text: StreamText = {
    rung: true,
    begin(parts) {
      for (const part of parts) begin(part)
    },
    apply(event) {
      switch (event.type) {
        case 'text.started':
          return void begin({ ...event.payload, kind: 'TEXT', callId: null })
        case 'reasoning.started':
          return void begin({ ...event.payload, kind: 'REASONING', callId: null })
        case 'tool.input_started': {
          const { messageId, index, callId } = event.payload
          return void begin({ messageId, index, callId, kind: 'TOOL_INPUT' })
        }
        case 'text.ended':
        case 'reasoning.ended':
        case 'tool.called':
          return void open.delete(keyOf(event.payload))
        // Input that was no JSON: the call fails without ever being made.
        case 'tool.succeeded':
        case 'tool.failed':
          return close(event.payload.messageId, (part) => part.callId === event.payload.callId)
        case 'step.ended':
        case 'step.failed':
        case 'step.interrupted':
          return close(event.payload.messageId, () => true)
      }
    },
    rest(event) {
      if (event.type !== 'text.ended' && event.type !== 'reasoning.ended') return null
      const part = open.get(keyOf(event.payload))
      if (part === undefined || event.payload.text.length <= part.sent) return null
      return delta(part, event.payload.text.slice(part.sent))
    },
    async next(among) {
      const mayGive = (part: OpenPart) => among === undefined || among.has(keyOf(part))
      const give = (part: OpenPart, length: string) => {
        among?.delete(keyOf(part))
        return delta(part, length)
      }
      const local = localOf()
      for (const part of open.values()) {
        const grown = local.get(keyOf(part))?.text
        if (grown === undefined || !mayGive(part)) continue
        const end = sendable(grown)
        if (end > part.sent) return give(part, grown.slice(part.sent, end))
      }
      if (text.rung) {
        text.rung = false
        const remote = remoteParts(local)
        if (remote.length > 0 && !(await readAhead(remote))) text.rung = true
      }
      // Only what is still remote: a part may have begun here while the rows were read, and then its text here is the newer one.
      for (const part of open.values()) {
        if (part.ahead === '' || !mayGive(part)) continue
        const end = sendable(part.ahead)
        if (end > 0) return give(part, part.ahead.slice(0, end))
      }
      return null
    },
    keys: () => open.keys(),
    localReady() {
      const local = localOf()
      for (const [key, part] of open) {
        const grown = local.get(key)?.text
        if (grown !== undefined && sendable(grown) > part.sent) return true
      }
      return false
    },
    async remoteReady() {
      const remote = remoteParts()
      if (remote.length === 0) return false
      const read = await readAhead(remote)
      const ready = remote.some((part) => sendable(part.ahead) > 0)
      for (const part of remote) part.ahead = ''
      text.rung = ready || !read
      return ready
    },
    hasRemote: () => remoteParts().length > 0,
  }
  return text
}
