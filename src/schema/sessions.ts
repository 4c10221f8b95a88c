import { queryFromInfo } from '@pothos/plugin-prisma'
import { Prisma } from '../generated/prisma/client.ts'
import { builder } from './builder.ts'
import { SessionStatus } from './enums.ts'
import { connection, cursors, pageOf } from './page.ts'
import { refusal } from './refusal.ts'
import { Session } from './session.ts'
import { statusOf } from './status.ts'

type Place = readonly [string, string]
const list = cursors<Place>('sessions', ['time', 'text'])
const searchWordsMax = 10

builder.queryField('session', (t) =>
  t.prismaField({
    type: Session,
    nullable: true,
    description: 'One session; null if there is none with this id.',
    args: { id: t.arg.id({ required: true, description: 'Its id.' }) },
    resolve: (query, _root, { id }, { db, tenant }) =>
      id.includes('\0') ? null : db.session.findFirst({ ...query, where: { id, tenant } }),
  }),
)

builder.queryField('sessions', (t) =>
  t.connection(
    {
      type: Session,
      description: 'Sessions, newest activity first.',
      args: {
        archived: t.arg.boolean({
          defaultValue: false,
          description: 'false: those in use. true: archived ones. null: both.',
        }),
        search: t.arg.string({
          description: 'Words that must all occur in the title or in prompts; upper and lower case are the same.',
        }),
        status: t.arg({ type: [SessionStatus], description: 'Only sessions that show one of these.' }),
      },
      resolve: async (_root, args, context, info) => {
        const { db, tenant, core } = context
        const page = pageOf(args, list)
        const conditions = [Prisma.sql`s.tenant = ${tenant}`]
        if (args.archived != null) conditions.push(Prisma.sql`(s."archivedAt" IS NOT NULL) = ${args.archived}`)
        for (const word of wordsOf(args.search)) conditions.push(mentions(word))
        if (args.status) conditions.push(Prisma.sql`(${statusOf(core.config.scanMs)}) = ANY (${args.status})`)
        // The list runs from new to old: behind a place is what is older.
        if (page.after) conditions.push(Prisma.sql`(s."updatedAt", s.id) < ${sqlPlace(page.after)}`)
        if (page.before) conditions.push(Prisma.sql`(s."updatedAt", s.id) > ${sqlPlace(page.before)}`)
        const direction = page.backward ? Prisma.sql`ASC` : Prisma.sql`DESC`
        const found = await db.$queryRaw<{ id: string }[]>`
          SELECT s.id FROM "Session" s WHERE ${Prisma.join(conditions, ' AND ')}
          ORDER BY s."updatedAt" ${direction}, s.id ${direction} LIMIT ${page.limit + 1}`
        const query = queryFromInfo({ context, info, path: ['edges', 'node'] })
        const rows = await db.session.findMany({ ...query, where: { id: { in: found.map((row) => row.id) } } })
        const byId = new Map(rows.map((row) => [row.id, row]))
        const ordered = found.flatMap(({ id }) => byId.get(id) ?? [])
        return connection(page, ordered, list, (row) => [row.updatedAt.toISOString(), row.id] as const)
      },
    },
    { description: 'A page of sessions.' },
    { description: 'A session and where it stands in the list.' },
  ),
)

const sqlPlace = ([updatedAt, id]: Place) => Prisma.sql`(${new Date(updatedAt)}::timestamptz, ${id})`

function wordsOf(search: string | null | undefined): string[] {
  const words = (search ?? '').split(/\s+/u).filter((word) => word !== '')
  if (words.length > searchWordsMax)
    throw refusal('BAD_USER_INPUT', `search takes at most ${searchWordsMax} words, not ${words.length}`)
  if (search?.includes('\0')) throw refusal('BAD_USER_INPUT', 'search must not contain the character NUL')
  return words
}

function mentions(word: string): Prisma.Sql {
  const pattern = `%${word.replace(/[\\%_]/g, '\\$&')}%`
  return Prisma.sql`(s.title ILIKE ${pattern} OR EXISTS (
    SELECT 1 FROM "Input" i WHERE i."sessionId" = s.id AND i.kind = 'PROMPT' AND i.text ILIKE ${pattern}))`
}
