// Rebuilds the projected rows of one session from its log (design section 2, idea 2). Offline: the tables are brought to what a replay
// gives, row by row, and what was different is reported. Claims and live chunks are operational and stay as they are,
// but for steps that the log does not know; no wake is rung.

import type { Db, Tx } from './db.ts'
import { keyColumns, keyOf } from './fold.ts'
import { Prisma } from './generated/prisma/client.ts'
import type { Row, RowTable } from './project.ts'
import { replaySession, sameCell, storedRows, type Verification, verifyIn } from './verify.ts'

/** Referenced rows first; removed in the opposite order. */
const order: readonly RowTable[] = ['Input', 'Message', 'Part', 'ToolCall', 'Interaction', 'Recovery', 'Quarantine']

const jsonColumns: ReadonlySet<string> = new Set([
  'attachments',
  'state',
  'input',
  'output',
  'toolInput',
  'options',
  'answer',
  'editedInput',
])
const isJson = (table: RowTable | 'Session', column: string) =>
  jsonColumns.has(column) && !(column === 'state' && (table === 'Input' || table === 'Interaction'))

/** A value as the database takes it: JSON columns as JSON text. */
function bound(table: RowTable | 'Session', column: string, value: unknown): Prisma.Sql {
  if (value === null || value === undefined) return Prisma.sql`NULL`
  if (isJson(table, column)) return Prisma.sql`${JSON.stringify(value)}::text::jsonb`
  if (column.endsWith('At')) return Prisma.sql`${String(value)}::text::timestamptz`
  return Prisma.sql`${value}`
}

const name = (identifier: string) => Prisma.raw(`"${identifier}"`)

const whereKey = (table: RowTable, sessionId: string, row: Row) =>
  Prisma.join(
    [
      Prisma.sql`"sessionId" = ${sessionId}`,
      ...keyColumns[table].map((column) => Prisma.sql`${name(column)} = ${row[column]}`),
    ],
    ' AND ',
  )

const assignments = (table: RowTable | 'Session', row: Row, columns: readonly string[]) =>
  Prisma.join(columns.map((column) => Prisma.sql`${name(column)} = ${bound(table, column, row[column])}`))

async function rebuildTable(tx: Tx, sessionId: string, table: RowTable, wanted: Map<string, Row>, stored: Row[]) {
  const present = new Map(stored.map((row) => [keyOf(table, row), row]))
  for (const [key, row] of wanted) {
    const have = present.get(key)
    const columns = Object.keys(row)
    if (have === undefined) {
      const values = Prisma.join(columns.map((column) => bound(table, column, row[column])))
      await tx.$executeRaw`INSERT INTO ${name(table)} (${Prisma.join(columns.map(name))}) VALUES (${values})`
      continue
    }
    const differing = columns.filter((column) => !sameCell(column, row[column], have[column]))
    if (differing.length === 0) continue
    await tx.$executeRaw`
      UPDATE ${name(table)} SET ${assignments(table, row, differing)} WHERE ${whereKey(table, sessionId, row)}`
  }
}

/** Removes rows that the log does not give. */
async function prune(tx: Tx, sessionId: string, table: RowTable, wanted: Map<string, Row>, stored: Row[]) {
  for (const row of stored) {
    if (wanted.has(keyOf(table, row))) continue
    await tx.$executeRaw`DELETE FROM ${name(table)} WHERE ${whereKey(table, sessionId, row)}`
  }
}

/** A claim and live text stay as they are, but for steps that the log does not know. */
async function forgetSteps(tx: Tx, sessionId: string) {
  await tx.$executeRaw`
    UPDATE "Claim" c SET "messageId" = NULL WHERE c."sessionId" = ${sessionId}
       AND NOT EXISTS (SELECT 1 FROM "Message" m WHERE m."sessionId" = c."sessionId" AND m.id = c."messageId")`
  await tx.$executeRaw`
    DELETE FROM "Chunk" c WHERE c."sessionId" = ${sessionId}
       AND NOT EXISTS (SELECT 1 FROM "Message" m WHERE m."sessionId" = c."sessionId" AND m."assistantId" = c."messageId")`
}

/**
 * Brings the projected rows of one session to what its log gives, in one transaction under the session's lock; returns what had been
 * different (as verifySession says it), null for an unknown session. Throws what a replay throws: a log that this version cannot read
 * changes nothing.
 */
export function rebuildSession(db: Db, sessionId: string): Promise<Verification | null> {
  return db.$transaction(
    async (tx) => {
      await tx.$queryRaw`SELECT id FROM "Session" WHERE id = ${sessionId} FOR NO KEY UPDATE`
      const before = await verifyIn(tx, sessionId)
      if (before === null || before.consistent) return before
      const replayed = await replaySession(tx, sessionId)
      if (replayed.session === null) throw new Error(`the log of ${sessionId} is empty`)
      const columns = Object.keys(replayed.session).filter((column) => column !== 'id')
      await tx.$executeRaw`
        UPDATE "Session" SET ${assignments('Session', replayed.session, columns)} WHERE id = ${sessionId}`
      // Rows refer to each other, and are right together only when all of them are.
      await tx.$executeRaw`SET CONSTRAINTS ALL DEFERRED`
      const stored = await storedRows(tx, sessionId)
      for (const table of order) await rebuildTable(tx, sessionId, table, replayed.tables[table], stored[table])
      for (const table of [...order].reverse()) await prune(tx, sessionId, table, replayed.tables[table], stored[table])
      await forgetSteps(tx, sessionId)
      const after = await verifyIn(tx, sessionId)
      if (after?.consistent !== true)
        throw new Error(`the rebuild of ${sessionId} is not what its log gives: ${after?.differences[0]}`)
      return before
    },
    { isolationLevel: 'ReadCommitted', timeout: 600_000 },
  )
}
