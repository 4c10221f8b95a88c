// verifySession: replays the log of one session and compares it with the tables, cell by cell (scenarios LOG-07, LOG-10).

import { isDeepStrictEqual } from 'node:util'
import type { Db, Tx } from './db.ts'
import { AppendRefusedError, OverloadedError, UnknownEventError } from './errors.ts'
import { readEventPage } from './event-pages.ts'
import { decodeEvent, type EventRow } from './events.ts'
import { keyOf } from './fold.ts'
import type { Row, RowTable } from './project.ts'
import { emptyReplay, type Replayed, replayEvent } from './replay.ts'
import { isOfDatabase, told } from './told.ts'
import { rowsInPages, type SizedTable, shortened } from './verify-rows.ts'

export interface Verification {
  consistent: boolean
  events: number
  /** Each names the table, the key and the column. At most `differencesMax`, then a line that says how many more. */
  differences: string[]
  /** What ended the replay, for the log of the server. */
  thrown?: unknown
}

class GapError extends Error {}

const differencesMax = 100
const pageSize = 1000
const pageBytes = 1024 * 1024

/** Reads rows that have so many bytes; waits for room for them before. */
export type InRoom = <R>(bytes: number, read: () => Promise<R>) => Promise<R>

/** Replays the log from 0, page by page. Throws UnknownEventError, and AppendRefusedError for a log that contradicts itself. */
export async function replaySession(db: Tx, sessionId: string, inRoom?: InRoom): Promise<Replayed> {
  const state = emptyReplay()
  let after = 0
  const replay = (row: EventRow) => {
    if (row.seq !== after + 1) throw new GapError(`the log of ${sessionId} has no event ${after + 1}`)
    replayEvent(state, decodeEvent(inRoom === undefined ? row : { ...row, payload: shortened(row.payload) }))
    after = row.seq
  }
  for (;;) {
    const before = after
    if (inRoom === undefined) {
      const where = { sessionId, seq: { gt: after } }
      const rows = await db.event.findMany({ where, orderBy: { seq: 'asc' }, take: pageSize })
      for (const row of rows) replay(row)
      if (rows.length < pageSize) return state
      continue
    }
    const { events, nextBytes } = await readEventPage(db, sessionId, after, pageSize, pageBytes)
    for (const event of events) replay(event)
    if (events.length === 0 && nextBytes !== null) {
      const where = { sessionId_seq: { sessionId, seq: after + 1 } }
      await inRoom(nextBytes, async () => replay(await db.event.findUniqueOrThrow({ where })))
    }
    if (after > before) continue
    const beyond = await db.event.findFirst({ where: { sessionId, seq: { gt: after } }, orderBy: { seq: 'asc' } })
    if (beyond !== null) replay(beyond)
    return state
  }
}

/** A value as both sides can be compared: times as ISO text, 64-bit counters as numbers, JSON as it is. */
function plain(value: unknown): unknown {
  if (value instanceof Date) return value.toISOString()
  if (typeof value === 'bigint') return Number(value)
  if (value === undefined) return null
  return value
}

/** Times inside a payload may be written with another precision than the column keeps. */
const isTime = (column: string) => column.endsWith('At')

/** Is the stored cell what the replay gives? */
export function sameCell(column: string, replayed: unknown, stored: unknown): boolean {
  const a = plain(replayed)
  const b = plain(stored)
  if (isTime(column) && typeof a === 'string' && typeof b === 'string') return Date.parse(a) === Date.parse(b)
  return isDeepStrictEqual(a, b)
}

function compareRow(what: string, replayed: Row, stored: Row, differences: string[]) {
  for (const [column, value] of Object.entries(replayed)) {
    if (sameCell(column, value, stored[column])) continue
    differences.push(`${what}.${column}: the log gives ${brief(value)}, the table holds ${brief(stored[column])}`)
  }
}

function brief(value: unknown): string {
  const text = JSON.stringify(plain(value)) ?? 'nothing'
  return text.length > 80 ? `${text.slice(0, 77)}...` : text
}

/** Every projected row of the session, as the tables hold them, its long texts shortened; read in pages of so many bytes. */
async function shortRows(db: Tx, sessionId: string, inRoom: InRoom): Promise<Record<RowTable, Row[]>> {
  const where = { sessionId }
  const read = (table: SizedTable, of: (units: string[]) => Promise<Row[]>) =>
    rowsInPages(db, table, sessionId, pageBytes, (units, bytes) =>
      inRoom(bytes, async () => (await of(units)).map(shortened)),
    )
  return {
    Input: await read('Input', (ids) => db.input.findMany({ where: { ...where, id: { in: ids } } })),
    Message: await read('Message', (ids) => db.message.findMany({ where: { ...where, id: { in: ids } } })),
    Part: await read('Part', (ids) => db.part.findMany({ where: { ...where, messageId: { in: ids } } })),
    ToolCall: await read('ToolCall', (ids) => db.toolCall.findMany({ where: { ...where, messageId: { in: ids } } })),
    Interaction: await read('Interaction', (ids) => db.interaction.findMany({ where: { ...where, id: { in: ids } } })),
    Recovery: await db.recovery.findMany({ where }),
    Quarantine: await db.quarantine.findMany({ where }),
  }
}

/** Every projected row of the session, as the tables hold them. */
export async function storedRows(db: Tx, sessionId: string): Promise<Record<RowTable, Row[]>> {
  const where = { sessionId }
  return {
    Input: await db.input.findMany({ where }),
    Message: await db.message.findMany({ where }),
    Part: await db.part.findMany({ where }),
    ToolCall: await db.toolCall.findMany({ where }),
    Interaction: await db.interaction.findMany({ where }),
    Recovery: await db.recovery.findMany({ where }),
    Quarantine: await db.quarantine.findMany({ where }),
  }
}

/**
 * Compares the replayed log with the tables inside the given transaction, which should be REPEATABLE READ so that both are of one
 * moment. With `inRoom` it reads in small pages and keeps hashes of long texts. Returns null for an unknown session; a log that cannot be replayed is one difference.
 */
export async function verifyIn(tx: Tx, sessionId: string, inRoom?: InRoom): Promise<Verification | null> {
  const session = await tx.session.findUnique({ where: { id: sessionId } })
  if (session === null) return null
  const differences: string[] = []
  let replayed: Replayed
  try {
    replayed = await replaySession(tx, sessionId, inRoom)
  } catch (thrown) {
    // That it could not be read says nothing about the log.
    if (isOfDatabase(thrown) || thrown instanceof OverloadedError) throw thrown
    const isOfTheLog = thrown instanceof UnknownEventError || thrown instanceof AppendRefusedError
    const why = isOfTheLog || thrown instanceof GapError ? thrown.message : told(thrown, 'session id').message
    return { consistent: false, events: session.seq, differences: [`it cannot be replayed: ${why}`], thrown }
  }
  if (replayed.session === null)
    return { consistent: false, events: 0, differences: [`Session ${sessionId}: no events`] }
  compareRow(`Session ${sessionId}`, replayed.session, inRoom === undefined ? session : shortened(session), differences)
  const stored = inRoom === undefined ? await storedRows(tx, sessionId) : await shortRows(tx, sessionId, inRoom)
  for (const [table, rows] of Object.entries(stored) as [RowTable, Row[]][]) {
    const expected = new Map(replayed.tables[table])
    for (const row of rows) {
      const key = keyOf(table, row)
      const match = expected.get(key)
      expected.delete(key)
      const what = `${table} ${key.replaceAll('\u0001', '/')}`
      if (match === undefined) differences.push(`${what}: the table has a row that the log does not give`)
      else compareRow(what, match, row, differences)
    }
    for (const key of expected.keys())
      differences.push(`${table} ${key.replaceAll('\u0001', '/')}: the log gives a row that the table lacks`)
  }
  const events = replayed.session.seq as number
  const shown = differences.slice(0, differencesMax)
  if (differences.length > differencesMax) shown.push(`and ${differences.length - differencesMax} more`)
  return { consistent: differences.length === 0, events, differences: shown }
}

/** verifyIn in a snapshot of its own. */
export function verifySession(db: Db, sessionId: string): Promise<Verification | null> {
  return db.$transaction((tx) => verifyIn(tx, sessionId), { isolationLevel: 'RepeatableRead', timeout: 120_000 })
}
