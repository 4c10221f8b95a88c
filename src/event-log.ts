// The log: append (the only door into history), read, follow (design section 2, idea 1; section 10).

import type { AppendOutcome, AppendRequest } from './append.ts'
import { createAppendQueue } from './append-queue.ts'
import type { Db, Tx } from './db.ts'
import type { Doorbell } from './doorbell.ts'
import { decodeEvent, type StoredEvent } from './events.ts'

export type { AppendOutcome, AppendRequest, ClaimMove, Fence } from './append.ts'
export { appendGroupIn, appendIn } from './append.ts'

export interface EventLog {
  /**
   * Appends events to one session: checks fence and expected seq under the session's lock, numbers and inserts the events, applies
   * their projection and the claim's move, all in one commit, and rings the doorbell after it. What a caller can act on comes back as
   * an outcome; throws AppendRefusedError (nothing written) and UnavailableError (try again).
   */
  append(request: AppendRequest): Promise<AppendOutcome>
  /** Events with seq > after, in order, at most `limit`. Throws UnknownEventError. `db`: read inside this transaction. */
  read(sessionId: string, after: number, limit: number, db?: Tx): Promise<StoredEvent[]>
  /**
   * Every event after `after`, exactly once and in order, then each new one as it commits; never ends by itself. A hand-written
   * pull iterator: `return()` (or the signal) ends a pending wait at once and leaves no listener behind.
   */
  follow(
    sessionId: string,
    after: number,
    options?: { signal?: AbortSignal; pageSize?: number },
  ): AsyncIterableIterator<StoredEvent>
  /** Resolves when no append waits or is under way. */
  idle(): Promise<void>
}

export interface EventLogOptions {
  db: Db
  doorbell: Doorbell
  /** This process, so that it does not hear its own notifications twice. */
  origin: string
  observe?: (what: { groupSize: number; seconds: number }) => void
}

export const pageSizeDefault = 200

export function createEventLog({ db, doorbell, origin, observe }: EventLogOptions): EventLog {
  const queue = createAppendQueue({ db, origin, committed: (sessionIds) => doorbell.ring(sessionIds), observe })

  async function read(sessionId: string, after: number, limit: number, tx: Tx = db): Promise<StoredEvent[]> {
    const rows = await tx.event.findMany({
      where: { sessionId, seq: { gt: after } },
      orderBy: { seq: 'asc' },
      take: limit,
    })
    return rows.map(decodeEvent)
  }

  function follow(
    sessionId: string,
    after: number,
    { signal, pageSize = pageSizeDefault }: { signal?: AbortSignal; pageSize?: number } = {},
  ): AsyncIterableIterator<StoredEvent> {
    let cursor = after
    let page: StoredEvent[] = []
    let rung = true
    let ended = false
    let wake: (() => void) | null = null
    // Armed before the first read: what commits between a read and the wait after it has rung already.
    const stop = doorbell.listen(sessionId, () => {
      rung = true
      wake?.()
    })
    const end = () => {
      ended = true
      stop()
      signal?.removeEventListener('abort', end)
      wake?.()
    }
    if (signal?.aborted) end()
    else signal?.addEventListener('abort', end)

    async function next(): Promise<IteratorResult<StoredEvent>> {
      while (!ended) {
        const ready = page.shift()
        if (ready !== undefined) {
          cursor = ready.seq
          return { done: false, value: ready }
        }
        if (rung) {
          rung = false
          page = await read(sessionId, cursor, pageSize)
          if (page.length === pageSize) rung = true
          continue
        }
        await new Promise<void>((resolve) => {
          wake = resolve
          if (rung || ended) resolve()
        })
        wake = null
      }
      return { done: true, value: undefined }
    }

    return {
      next,
      async return() {
        end()
        return { done: true, value: undefined }
      },
      [Symbol.asyncIterator]() {
        return this
      },
    }
  }

  return { append: (request) => queue.append(request), read, follow, idle: () => queue.idle() }
}
