// The log: append, the only door into history, and read (design section 2, idea 1).

import type { AppendOutcome, AppendRequest } from './append.ts'
import { createAppendQueue } from './append-queue.ts'
import type { Db, Tx } from './db.ts'
import type { Doorbell } from './doorbell.ts'
import { type PageBounds, readBounded } from './event-pages.ts'
import { decodeEvent, type StoredEvent } from './events.ts'
import type { Writes } from './writes.ts'

export type { AppendOutcome, AppendRequest, ClaimMove, Fence } from './append.ts'
export { appendGroupIn, appendIn } from './append.ts'

export interface EventLog {
  /**
   * Appends events to one session: checks fence and expected seq under the session's lock, numbers and inserts the events, applies
   * their projection and the claim's move, all in one commit, and rings the doorbell after it. What a caller can act on comes back as
   * an outcome; throws AppendRefusedError (nothing written) and UnavailableError (try again).
   */
  append(request: AppendRequest): Promise<AppendOutcome>
  /**
   * Events with seq > after, in order, at most `limit`. Throws UnknownEventError. `db`: read inside this transaction. With `bounds` a page holds small
   * events only, or one large one for which there was room.
   */
  read(sessionId: string, after: number, limit: number, db?: Tx, bounds?: PageBounds): Promise<StoredEvent[]>
  /** Resolves when no append waits or is under way. */
  idle(): Promise<void>
}

export interface EventLogOptions {
  db: Db
  doorbell: Doorbell
  /** This process, so that it does not hear its own notifications twice. */
  origin: string
  observe?: (what: { groupSize: number; seconds: number }) => void
  writes?: Writes
}

export function createEventLog({ db, doorbell, origin, observe, writes }: EventLogOptions): EventLog {
  const queue = createAppendQueue({ db, origin, committed: (sessionIds) => doorbell.ring(sessionIds), observe, writes })

  async function read(sessionId: string, after: number, limit: number, tx: Tx = db, bounds?: PageBounds) {
    if (bounds !== undefined) return readBounded(tx, sessionId, after, limit, bounds)
    const rows = await tx.event.findMany({
      where: { sessionId, seq: { gt: after } },
      orderBy: { seq: 'asc' },
      take: limit,
    })
    return rows.map(decodeEvent)
  }

  return { append: (request) => queue.append(request), read, idle: () => queue.idle() }
}
