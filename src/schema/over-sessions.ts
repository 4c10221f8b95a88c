import { Prisma } from '../generated/prisma/client.ts'
import { columnsOf } from './columns.ts'
import type { Context } from './context.ts'
import type { Page } from './page.ts'

/** Where a row stands in a list by time: its instant and its id. */
export type Instant = readonly [string, string]

/**
 * The rows of one page of a list over all sessions of the caller's tenant, oldest first, as `connection` wants them: one more than asked for, from the page's end if it is
 * backward. `time`: the column that orders them; `where`: a condition on the row `r`.
 */
export function rowsOverSessions<R>(
  { db, tenant }: Context,
  page: Page<Instant>,
  { table, time, where }: { table: 'Interaction' | 'Quarantine'; time: Prisma.Sql; where: Prisma.Sql },
): Promise<R[]> {
  const conditions = [Prisma.sql`s.tenant = ${tenant}`, where]
  const at = ([instant, id]: Instant) => Prisma.sql`(${new Date(instant)}::timestamptz, ${id})`
  if (page.after) conditions.push(Prisma.sql`(r.${time}, r.id) > ${at(page.after)}`)
  if (page.before) conditions.push(Prisma.sql`(r.${time}, r.id) < ${at(page.before)}`)
  const direction = page.backward ? Prisma.sql`DESC` : Prisma.sql`ASC`
  return db.$queryRaw<R[]>`
    SELECT ${columnsOf(table, 'r')} FROM ${Prisma.raw(`"${table}"`)} r JOIN "Session" s ON s.id = r."sessionId"
    WHERE ${Prisma.join(conditions, ' AND ')}
    ORDER BY r.${time} ${direction}, r.id ${direction} LIMIT ${page.limit + 1}`
}
