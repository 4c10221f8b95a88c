import { decodeEvent, type EventRow } from '../../events.ts'
import { itemOf, type LoggedItem } from '../../stream-item.ts'
import { batched, grouped } from '../batched.ts'
import { refusal } from '../refusal.ts'

export const eventsMax = 1000

interface Range {
  after: number
  first: number
}

const read = batched<string, LoggedItem[], Range>(async ({ db }, ids, { after, first }) => {
  const rows = await db.$queryRaw<EventRow[]>`
    SELECT e.* FROM unnest(${ids}::text[]) k(id) CROSS JOIN LATERAL (
      SELECT * FROM "Event" e WHERE e."sessionId" = k.id AND e.seq > ${after} ORDER BY e.seq LIMIT ${first}) e
    ORDER BY e.seq`
  return grouped(
    ids,
    rows.map((row) => itemOf(decodeEvent(row))),
    (id) => id,
    (item) => item.sessionId,
  )
})

/** Events of a session's log behind `after`. Throws BAD_USER_INPUT for a range that makes no sense. */
export function eventsOf(
  ...[context, sessionId, range]: [Parameters<typeof read>[0], string, { after?: number | null; first?: number | null }]
): Promise<LoggedItem[]> {
  const after = range.after ?? 0
  const first = range.first ?? 100
  if (after < 0) throw refusal('BAD_USER_INPUT', `after must be 0 or more, not ${after}`)
  if (first < 0 || first > eventsMax)
    throw refusal('BAD_USER_INPUT', `first must be between 0 and ${eventsMax}, not ${first}`)
  return read(context, sessionId, { after, first })
}
