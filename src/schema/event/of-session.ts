import { type GraphQLResolveInfo, Kind, type SelectionSetNode } from 'graphql'
import { decodeEvent, type EventRow } from '../../events.ts'
import { itemOf, type LoggedItem } from '../../stream-item.ts'
import { answerItemsMax, batched, grouped } from '../batched.ts'
import type { Context } from '../context.ts'
import { eventPayload } from '../large.ts'
import { refusal } from '../refusal.ts'

export const eventsMax = 1000

interface Range {
  after: number
  first: number
}

/** Without their payloads. */
const read = batched<string, EventRow[], Range>(async ({ db }, ids, { after, first }) => {
  const rows = await db.$queryRaw<EventRow[]>`
    SELECT e.* FROM unnest(${ids}::text[]) k(id) CROSS JOIN LATERAL (
      SELECT "sessionId", seq, type, at, "appendId" FROM "Event" e
      WHERE e."sessionId" = k.id AND e.seq > ${after} ORDER BY e.seq LIMIT ${first}) e
    ORDER BY e.seq LIMIT ${answerItemsMax + 1}`
  return grouped(
    ids,
    rows,
    (id) => id,
    (row) => row.sessionId,
  )
})

/** What every event has without its payload. */
const envelope = new Set(['sessionId', 'seq', 'at', '__typename'])

/** Does a field of these need more of an event than its place in the log? */
function needsPayload(set: SelectionSetNode | undefined, info: GraphQLResolveInfo): boolean {
  return (set?.selections ?? []).some((selection) => {
    if (selection.kind === Kind.FIELD) return !envelope.has(selection.name.value)
    const inner = selection.kind === Kind.FRAGMENT_SPREAD ? info.fragments[selection.name.value] : selection
    return needsPayload(inner?.selectionSet, info)
  })
}

/** Events of a session's log behind `after`. Throws BAD_USER_INPUT for a range that makes no sense. */
export async function eventsOf(
  context: Context,
  sessionId: string,
  range: { after?: number | null; first?: number | null },
  info: GraphQLResolveInfo,
): Promise<LoggedItem[]> {
  const after = range.after ?? 0
  const first = range.first ?? 100
  if (after < 0) throw refusal('BAD_USER_INPUT', `after must be 0 or more, not ${after}`)
  if (first < 0 || first > eventsMax)
    throw refusal('BAD_USER_INPUT', `first must be between 0 and ${eventsMax}, not ${first}`)
  const rows = await read(context, sessionId, { after, first })
  const whole = info.fieldNodes.some(({ selectionSet }) => needsPayload(selectionSet, info))
  const payloads = whole ? await Promise.all(rows.map((row) => eventPayload(row, context))) : []
  return rows.map((row, n) => itemOf(decodeEvent({ ...row, payload: payloads[n] ?? {} })))
}
