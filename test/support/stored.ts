import type { Db } from '../../src/db.ts'
import { keyOf } from '../../src/fold.ts'
import type { RowTable } from '../../src/project.ts'
import { storedRows } from '../../src/verify.ts'
import { statusesOf } from './checker.ts'

/** Everything that is stored of a session, in an order that does not change by itself: to show that nothing was written. */
export async function everythingOf(db: Db, sessionId: string): Promise<unknown> {
  const where = { sessionId }
  const tables = Object.entries(await storedRows(db, sessionId)).map(([table, rows]) => [
    table,
    new Map(rows.map((row) => [keyOf(table as RowTable, row), row])),
  ])
  return {
    session: await db.session.findUniqueOrThrow({ where: { id: sessionId } }),
    events: await db.event.findMany({ where, orderBy: { seq: 'asc' } }),
    claim: await db.claim.findUnique({ where }),
    ...Object.fromEntries(tables),
  }
}

/** As the API shows it. */
export async function statusOfOne(db: Db, sessionId: string, scanMs: number): Promise<string> {
  const [found] = await statusesOf(db, [sessionId], scanMs)
  return found!.status
}
