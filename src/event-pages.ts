// Pages of a log, bounded in bytes as well as in events: an event may hold 20 MB of attachments, and so may the 200 behind it. What is small comes
// along at once; a large event comes alone, when its reader has the bytes for it.

import type { Release } from './byte-budget.ts'
import type { Tx } from './db.ts'
import { decodeEvent, type EventRow, type StoredEvent } from './events.ts'
import { Prisma } from './generated/prisma/client.ts'
import { jsonBytes } from './value-size.ts'

/** Bytes of events that are read without asking. */
export const pageBytesMax = 256 * 1024

export interface EventPage {
  events: StoredEvent[]
  /** Of these. */
  bytes: number
  /** Bytes of the event behind them, if it is what did not fit. */
  nextBytes: number | null
}

type Found = EventRow & { total: bigint; size: number }

/**
 * Events with seq > after, in order: at most `limit`, and as many as have `bytesMax` together. Throws UnknownEventError. A log has no gaps, so a page ends before one.
 */
export async function readEventPage(
  db: Tx,
  sessionId: string,
  after: number,
  limit: number,
  bytesMax = pageBytesMax,
): Promise<EventPage> {
  const rows = await db.$queryRaw<Found[]>`
    WITH RECURSIVE walk AS (
      SELECT ${after}::int AS seq, 0::bigint AS total, 0 AS size, 0 AS n
      UNION ALL
      SELECT e.seq, w.total + ${jsonBytes(Prisma.sql`e.payload`)}, ${jsonBytes(Prisma.sql`e.payload`)}, w.n + 1
        FROM walk w JOIN "Event" e ON e."sessionId" = ${sessionId} AND e.seq = w.seq + 1
       WHERE w.total <= ${bytesMax} AND w.n < ${limit}::int)
    SELECT e."sessionId", e.seq, e.type, e.at, e."appendId", e.ordinal, w.total, w.size,
           CASE WHEN w.total <= ${bytesMax} THEN e.payload END AS payload
      FROM walk w JOIN "Event" e ON e."sessionId" = ${sessionId} AND e.seq = w.seq
     WHERE w.n > 0 ORDER BY e.seq`
  const events: StoredEvent[] = []
  let bytes = 0
  for (const { total, size, ...row } of rows) {
    const event = decodeEvent(row)
    if (Number(total) > bytesMax) return { events, bytes, nextBytes: size }
    events.push(event)
    bytes = Number(total)
  }
  return { events, bytes, nextBytes: null }
}

/** How a page is kept small, and whether it was cut for it. */
export interface PageBounds {
  /** Waits until there is room for so many bytes; gives how to give them back. Throws if there is none. */
  room(bytes: number): Promise<Release>
  /** Set by a read: events follow that did not fit. */
  cut: boolean
}

/** The next small events, or the next one alone if that is large: it is read when there is room for it. */
export async function readBounded(
  db: Tx,
  sessionId: string,
  after: number,
  limit: number,
  bounds: PageBounds,
): Promise<StoredEvent[]> {
  const { events, nextBytes } = await readEventPage(db, sessionId, after, limit)
  bounds.cut = nextBytes !== null
  if (events.length > 0 || nextBytes === null) return events
  const release = await bounds.room(nextBytes)
  try {
    return [decodeEvent(await db.event.findUniqueOrThrow({ where: { sessionId_seq: { sessionId, seq: after + 1 } } }))]
  } catch (thrown) {
    release()
    throw thrown
  }
}
