import type { Session } from '../generated/prisma/client.ts'
import { batched } from './batched.ts'
import { selectOf } from './columns.ts'

/** The session of a row; those of any number of rows are read in one statement. */
export const sessionOf = batched<string, Session>(async ({ db }, ids) => {
  const rows = await db.session.findMany({ select: selectOf('Session'), where: { id: { in: ids } } })
  const byId = new Map(rows.map((row) => [row.id, row]))
  return ids.map((id) => byId.get(id)!)
})
