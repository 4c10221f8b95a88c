import { Prisma } from '../generated/prisma/client.ts'
import { answerItemsMax, batched, grouped } from './batched.ts'
import { columnsOf } from './columns.ts'

/** How many entries a list without pages shows at most. */
export const latestMax = 1000

/**
 * Loads the latest rows of a table for each of many sessions, oldest first; `where` narrows them by the arguments, in terms of the row `r`. Prisma's own `take`
 * would read all rows of all sessions and cut them here. `bounded`: whether these arguments leave few rows by themselves, so that all are to be shown. Beyond the size of an answer nothing is read; that
 * answer is refused.
 */
export function latest<R extends { sessionId: string }, A>(options: {
  table: 'Input' | 'Interaction' | 'Recovery' | 'Quarantine'
  order: Prisma.Sql
  where: (args: A) => Prisma.Sql
  bounded?: (args: A) => boolean
}) {
  const { table, order, where, bounded = () => false } = options
  return batched<string, R[], A>(async ({ db }, ids, args) => {
    const limit = bounded(args) ? Prisma.empty : Prisma.sql`LIMIT ${latestMax}`
    const rows = await db.$queryRaw<R[]>`
      SELECT l.* FROM unnest(${ids}::text[]) k(id) CROSS JOIN LATERAL (
        SELECT ${columnsOf(table, 'r')} FROM ${Prisma.raw(`"${table}"`)} r WHERE r."sessionId" = k.id AND ${where(args)}
        ORDER BY r.${order} DESC, r.id DESC ${limit}) l
      ORDER BY l.${order}, l.id LIMIT ${answerItemsMax + 1}`
    return grouped(
      ids,
      rows,
      (id) => id,
      (row) => row.sessionId,
    )
  })
}
