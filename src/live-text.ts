// Live text of the parts that this process is streaming: what has arrived and is not in the log yet. Streams in this process read it
// directly; a background flush writes it to Chunk rows, so that other processes and a crash keep the partial answer (design section 10).
// Order that closes the race with a part's end: `end` drops what is buffered and waits for a flush under way, and only then is the
// end event appended, whose commit removes the part's chunks. So no chunk is written behind its end.

import type { Db } from './db.ts'
import { asError } from './errors.ts'
import type { JsonValue } from './events.ts'

export type LivePartKind = 'TEXT' | 'REASONING' | 'TOOL_INPUT'

export interface LivePart {
  sessionId: string
  messageId: string
  index: number
  kind: LivePartKind
  callId: string | null
  /** All text so far; offsets count its UTF-16 code units. */
  text: string
}

export interface ToolProgressNote {
  messageId: string
  callId: string
  progress: JsonValue
}

export interface LiveText {
  /** Begins a part, after its start event has committed. */
  begin(part: Omit<LivePart, 'text'>, executionId: string): void
  add(sessionId: string, messageId: string, index: number, text: string): void
  /** Ends a part before its end event is appended: no chunk of it is written after this resolves. */
  end(sessionId: string, messageId: string, index: number): Promise<void>
  /** Drops every part of a session whose step is over or lost; resolves when no flush of it is under way. */
  drop(sessionId: string): Promise<void>
  /** The parts that are open in this process, in no special order; the objects are live. */
  partsOf(sessionId: string): Iterable<LivePart>
  /** Passes a tool's progress on to the streams that are open here, and to nobody later. */
  progress(sessionId: string, note: ToolProgressNote): void
  /** Calls `moved` when text or progress arrives; `note` is null for text. Returns how to stop. */
  listen(sessionId: string, moved: (note: ToolProgressNote | null) => void): () => void
  /** How many listen. A session to which nobody listens any more is not kept; if one were, it would count as well. */
  listeners(): number
  /** Writes what is buffered now; used at shutdown and by tests. */
  flush(): Promise<void>
  close(): Promise<void>
}

interface Buffered extends LivePart {
  executionId: string
  /** Up to here the text is in Chunk rows, as far as an answer has said so. */
  written: number
  /** Where the last of those chunks begins; null: there is none. */
  lastChunk: number | null
}

export interface LiveTextOptions {
  db: Db
  owner: string
  /** The longest time that text stays unwritten, in ms. */
  flushMs?: number
  warn?: (error: Error, what: string) => void
  /** Text of these executions was refused: their claims do not let them write, so each owner has to look. */
  refused?: (of: readonly { sessionId: string; executionId: string }[]) => void
}

/** Parts whose chunks go into one statement. */
const flushPartsMax = 2000

export function createLiveText({ db, owner, flushMs = 100, warn, refused }: LiveTextOptions): LiveText {
  const parts = new Map<string, Map<string, Buffered>>()
  const heards = new Map<string, Set<(note: ToolProgressNote | null) => void>>()
  let timer: NodeJS.Timeout | undefined
  let flushing: Promise<void> | null = null
  let closed = false

  const keyOf = (messageId: string, index: number) => `${messageId}/${index}`
  const isOpen = (part: Buffered) => parts.get(part.sessionId)?.get(keyOf(part.messageId, part.index)) === part
  const tell = (sessionId: string, note: ToolProgressNote | null) => {
    for (const moved of [...(heards.get(sessionId) ?? [])]) moved(note)
  }

  function schedule() {
    if (timer !== undefined || closed) return
    timer = setTimeout(() => {
      timer = undefined
      void flush()
    }, flushMs)
    timer.unref()
  }

  function unwritten(): Buffered[] {
    const found: Buffered[] = []
    for (const ofSession of parts.values())
      for (const part of ofSession.values()) {
        if (part.text.length > part.written) found.push(part)
        if (found.length >= flushPartsMax) return found
      }
    return found
  }

  /**
   * One statement for all sessions of the process (STREAM-12). A refused or failed write is tried again with the next flush: after a lost
   * answer from the same offset, so that it makes no difference whether it was written; a refused one from the beginning, as the chunk that
   * it goes on from may be gone.
   */
  async function writeOnce(): Promise<void> {
    const batch = unwritten().map((part) => ({ part, from: part.written, text: part.text.slice(part.written) }))
    if (batch.length === 0) return
    const parameter = JSON.stringify(
      batch.map(({ part, from, text }) => ({
        s: part.sessionId,
        x: part.executionId,
        o: owner,
        m: part.messageId,
        i: part.index,
        f: from,
        t: text,
        ...(part.lastChunk === null ? {} : { p: part.lastChunk }),
      })),
    )
    try {
      const rows = await db.$queryRaw<{ written: number[] }[]>`
        SELECT holdfast_write_chunks(${parameter}::text::jsonb) AS written`
      const written = new Set(rows[0]!.written)
      for (const [n, { part, from, text }] of batch.entries()) {
        part.written = written.has(n) ? from + text.length : 0
        part.lastChunk = written.has(n) ? from : null
      }
      // One that has ended here meanwhile is nobody's loss.
      const denied = batch.filter(({ part }, n) => !written.has(n) && isOpen(part)).map(({ part }) => part)
      if (denied.length > 0) refused?.([...new Map(denied.map((part) => [part.executionId, part])).values()])
    } catch (thrown) {
      // Chunks are a courtesy to other processes; the part's end event carries the whole text.
      if (!closed) warn?.(asError(thrown), 'chunk flush')
    }
    if (unwritten().length > 0) schedule()
  }

  async function flush(): Promise<void> {
    while (flushing !== null) await flushing
    const run = writeOnce()
    flushing = run
    try {
      await run
    } finally {
      flushing = null
    }
  }

  return {
    begin(part, executionId) {
      const ofSession = parts.get(part.sessionId) ?? new Map<string, Buffered>()
      parts.set(part.sessionId, ofSession)
      ofSession.set(keyOf(part.messageId, part.index), { ...part, text: '', executionId, written: 0, lastChunk: null })
    },
    add(sessionId, messageId, index, text) {
      const part = parts.get(sessionId)?.get(keyOf(messageId, index))
      if (part === undefined || text === '') return
      part.text += text
      schedule()
      tell(sessionId, null)
    },
    async end(sessionId, messageId, index) {
      const ofSession = parts.get(sessionId)
      const key = keyOf(messageId, index)
      if (ofSession === undefined || !ofSession.delete(key)) return
      if (ofSession.size === 0) parts.delete(sessionId)
      if (flushing !== null) await flushing
    },
    async drop(sessionId) {
      if (!parts.delete(sessionId)) return
      if (flushing !== null) await flushing
    },
    partsOf: (sessionId) => parts.get(sessionId)?.values() ?? [],
    progress: (sessionId, note) => tell(sessionId, note),
    listen(sessionId, moved) {
      const ofSession = heards.get(sessionId) ?? new Set()
      heards.set(sessionId, ofSession)
      ofSession.add(moved)
      return () => {
        ofSession.delete(moved)
        if (ofSession.size === 0 && heards.get(sessionId) === ofSession) heards.delete(sessionId)
      }
    },
    listeners: () => [...heards.values()].reduce((sum, ofSession) => sum + Math.max(1, ofSession.size), 0),
    flush,
    async close() {
      closed = true
      clearTimeout(timer)
      if (flushing !== null) await flushing
    },
  }
}
