// Tool progress for one stream: of each call the latest note, until the reader takes it. Progress is neither stored nor sent to other
// processes: a stream shows it if it is open in the process that runs the tool (TOOL-13).

import type { StoredEvent } from './events.ts'
import type { ToolProgressNote } from './live-text.ts'

/** Notes kept for calls of which no start has gone out yet; the oldest one makes room. */
const notesMax = 256

export interface StreamProgress {
  /** Calls that run where the stream begins to be live. */
  begin(calls: readonly { messageId: string; callId: string }[]): void
  note(note: ToolProgressNote): void
  /** Follows an event that went out: behind a call's terminal nothing of it is shown. */
  apply(event: StoredEvent): void
  /** Takes the next note of a call that runs as far as the reader knows. */
  next(): ToolProgressNote | null
  ready(): boolean
}

export function createStreamProgress(): StreamProgress {
  const running = new Set<string>()
  const notes = new Map<string, ToolProgressNote>()
  const keyOf = (call: { messageId: string; callId: string }) => `${call.messageId}/${call.callId}`

  function firstReady(): ToolProgressNote | null {
    for (const [key, note] of notes) if (running.has(key)) return note
    return null
  }

  function forget(key: string) {
    running.delete(key)
    notes.delete(key)
  }

  return {
    begin(calls) {
      for (const call of calls) running.add(keyOf(call))
    },
    note(note) {
      notes.set(keyOf(note), note)
      if (notes.size > notesMax) notes.delete(notes.keys().next().value!)
    },
    apply(event) {
      switch (event.type) {
        case 'tool.started':
          return void running.add(keyOf(event.payload))
        case 'tool.succeeded':
        case 'tool.failed':
          return forget(keyOf(event.payload))
        case 'step.ended':
        case 'step.failed':
        case 'step.interrupted':
          for (const key of [...running, ...notes.keys()])
            if (key.startsWith(`${event.payload.messageId}/`)) forget(key)
      }
    },
    next() {
      const note = firstReady()
      if (note !== null) notes.delete(keyOf(note))
      return note
    },
    ready: () => firstReady() !== null,
  }
}
