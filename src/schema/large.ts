// The large columns. No list reads them along with its rows: they are read when a field asks for them, for all rows that are resolved at the same time
// together, in order and as far as the answer may still hold.

import { Prisma } from '../generated/prisma/client.ts'
import { jsonBytes, textBytes } from '../value-size.ts'
import { bytesLeft, mustStay, refuseLarge, repeat, smallBytes, spend } from './account.ts'
import { batched } from './batched.ts'
import type { Context } from './context.ts'

/** Names one row: the values of its key's columns. */
interface Key {
  id: string
  columns: readonly string[]
}

interface Column {
  table: string
  column: string
  kind: 'text' | 'json'
  /** The columns of the table's key, beside which type they have. */
  key: readonly { name: string; type: 'text' | 'int' }[]
}

interface Large {
  value: unknown
  bytes: number
  /** It stands in the answer already. */
  used: boolean
}

/** Rows in one statement. */
const chunkMax = 200

/** Sizes are added up by the database; what is small comes along, the rest when the process has room for it. */
async function read(context: Context, { table, column, kind, key }: Column, keys: readonly Key[]): Promise<Large[]> {
  const found: Large[] = []
  const from = Prisma.raw(`"${table}" t`)
  const value = Prisma.raw(`t."${column}"`)
  const size = kind === 'text' ? textBytes(value) : jsonBytes(value)
  const matches = Prisma.join(
    key.map(({ name, type }, n) => Prisma.raw(`t."${name}" = k.c${n}::${type}`)),
    ' AND ',
  )
  const names = Prisma.raw(key.map((_, n) => `c${n}`).join(', '))
  for (let at = 0; at < keys.length; at += chunkMax) {
    mustStay(context)
    const chunk = keys.slice(at, at + chunkMax)
    const unnested = (of: readonly Key[]) =>
      Prisma.sql`unnest(${Prisma.join(key.map((_, n) => Prisma.sql`${of.map(({ columns }) => columns[n]!)}::text[]`))}) WITH ORDINALITY AS k(${names}, n)`
    const rows = await context.db.$queryRaw<{ n: number; total: bigint; size: bigint; value: unknown }[]>`
      WITH RECURSIVE k AS MATERIALIZED (SELECT * FROM ${unnested(chunk)}),
      walk AS (
        SELECT 0::bigint AS n, 0::bigint AS total, 0::bigint AS size
        UNION ALL
        SELECT w.n + 1, w.total + s.size, s.size
          FROM walk w JOIN k ON k.n = w.n + 1
         CROSS JOIN LATERAL (SELECT COALESCE((SELECT ${size} FROM ${from} WHERE ${matches}), 0)::bigint AS size) s
         WHERE w.total <= ${Math.floor(bytesLeft(context))})
      SELECT w.n::int AS n, w.total, w.size, CASE WHEN w.total <= ${smallBytes} THEN (SELECT ${value} FROM ${from} WHERE ${matches}) END AS value
        FROM walk w JOIN k ON k.n = w.n ORDER BY w.n`
    const total = Number(rows.at(-1)?.total ?? 0)
    if (rows.length < chunk.length) refuseLarge(context)
    await spend(context, total)
    const values = new Map(rows.map((row) => [row.n, row.value]))
    const missing = rows.filter((row) => Number(row.total) > smallBytes).map(({ n }) => n)
    if (missing.length > 0) {
      mustStay(context)
      const rest = await context.db.$queryRaw<{ n: number; value: unknown }[]>`
        SELECT k.n::int AS n, ${value} AS value FROM ${unnested(missing.map((n) => chunk[n - 1]!))} JOIN ${from} ON ${matches}`
      for (const row of rest) values.set(missing[row.n - 1]!, row.value)
    }
    for (const { n, size } of rows) found.push({ value: values.get(n) ?? null, bytes: Number(size), used: false })
  }
  return found
}

/** Makes the loader of one large column. */
function large<R, V>(column: Column, columnsOf: (row: R) => readonly string[]) {
  const load = batched<Key, Large>((context, keys) => read(context, column, keys))
  return async (row: R, context: Context): Promise<V> => {
    const columns = columnsOf(row)
    const found = await load(context, { id: columns.join('\u0001'), columns }, undefined)
    if (found.used) repeat(context, found.bytes)
    found.used = true
    return found.value as V
  }
}

const byId = [{ name: 'id', type: 'text' }] as const
const ofId = <V>(table: string, column: string, kind: Column['kind']) =>
  large<{ id: string }, V>({ table, column, kind, key: byId }, ({ id }) => [id])

const inMessage = [
  { name: 'sessionId', type: 'text' },
  { name: 'messageId', type: 'text' },
] as const
interface OfMessage {
  sessionId: string
  messageId: string
}

export const largeText = (table: 'Session' | 'Input' | 'Message' | 'Interaction', column: string) =>
  ofId<string | null>(table, column, 'text')
export const largeJson = <V = unknown>(table: 'Input' | 'Message' | 'Interaction', column: string) =>
  ofId<V>(table, column, 'json')

/** The text of a part whose end has come; that of an open one stands in its chunks. */
export const partText = large<OfMessage & { index: number }, string>(
  { table: 'Part', column: 'text', kind: 'text', key: [...inMessage, { name: 'index', type: 'int' }] },
  ({ sessionId, messageId, index }) => [sessionId, messageId, String(index)],
)

export const callJson = (column: 'input' | 'output') =>
  large<OfMessage & { callId: string }, unknown>(
    { table: 'ToolCall', column, kind: 'json', key: [...inMessage, { name: 'callId', type: 'text' }] },
    ({ sessionId, messageId, callId }) => [sessionId, messageId, callId],
  )

/** The payload of an event. */
export const eventPayload = large<{ sessionId: string; seq: number }, object>(
  {
    table: 'Event',
    column: 'payload',
    kind: 'json',
    key: [
      { name: 'sessionId', type: 'text' },
      { name: 'seq', type: 'int' },
    ],
  },
  ({ sessionId, seq }) => [sessionId, String(seq)],
)
