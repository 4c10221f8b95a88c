// What keeps a replay small, however large its session: long texts are compared by their hashes, and rows are read in pages of bytes.

import { createHash } from 'node:crypto'
import type { Tx } from './db.ts'
import { Prisma } from './generated/prisma/client.ts'
import type { Row } from './project.ts'
import { jsonBytes, textBytes } from './value-size.ts'

/** What is longer stands as its hash. Times, ids and states are shorter, and a projection looks into nothing else. */
const wholeMax = 300

/** The same value, each long text in it replaced by its length and hash. */
export function shortened<V>(value: V): V {
  if (typeof value === 'string')
    return (
      value.length <= wholeMax
        ? value
        : `${value.length} characters, sha256 ${createHash('sha256').update(value).digest('hex')}`
    ) as V
  if (Array.isArray(value)) return value.map(shortened) as V
  if (value === null || typeof value !== 'object' || value instanceof Date) return value
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, shortened(inner)])) as V
}

/** Large columns of a table, and the column by whose values its rows are read. */
const large = {
  Input: { unit: 'id', text: ['text'], json: ['attachments'] },
  Message: { unit: 'id', text: ['text', 'summary'], json: ['attachments'] },
  Part: { unit: 'messageId', text: ['text'], json: ['state'] },
  ToolCall: { unit: 'messageId', text: [], json: ['input', 'output', 'state'] },
  Interaction: { unit: 'id', text: ['prompt', 'feedback'], json: ['toolInput', 'options', 'answer', 'editedInput'] },
} as const

export type SizedTable = keyof typeof large

const column = (name: string) => Prisma.raw(`t."${name}"`)

/** The rows of a session, read page by page: those of as many units as have `bytesMax` together, at least one. */
export async function rowsInPages(
  db: Tx,
  table: SizedTable,
  sessionId: string,
  bytesMax: number,
  read: (units: string[], bytes: number) => Promise<Row[]>,
): Promise<Row[]> {
  const { unit, text, json } = large[table]
  const size = Prisma.join(
    [...text.map((name) => textBytes(column(name))), ...json.map((name) => jsonBytes(column(name)))],
    ' + ',
  )
  const units = await db.$queryRaw<{ unit: string; bytes: bigint }[]>`
    SELECT ${column(unit)} AS unit, sum(${size})::bigint AS bytes
      FROM ${Prisma.raw(`"${table}" t`)} WHERE t."sessionId" = ${sessionId} GROUP BY 1`
  const found: Row[] = []
  let page: string[] = []
  let bytes = 0
  const flush = async () => {
    if (page.length > 0) found.push(...(await read(page, bytes)))
    page = []
    bytes = 0
  }
  for (const each of units) {
    if (bytes + Number(each.bytes) > bytesMax || page.length >= 1000) await flush()
    page.push(each.unit)
    bytes += Number(each.bytes)
  }
  await flush()
  return found
}
