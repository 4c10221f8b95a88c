import { sqlStateOf } from '../db.ts'
import { Prisma } from '../generated/prisma/client.ts'
import { builder } from './builder.ts'
import { selectOf } from './columns.ts'
import { SessionStatus } from './enums.ts'
import { connection, cursors, pageOf } from './page.ts'
import { refusal } from './refusal.ts'
import { Session } from './session.ts'
import { statusOf } from './status.ts'

type Place = readonly [string, string]
const list = cursors<Place>('sessions', ['time', 'text'])
const searchWordsMax = 10
const wordCharactersMax = 100

builder.queryField('session', (t) =>
  t.prismaField({
    type: Session,
    nullable: true,
    description: 'One session; null if there is none with this id.',
    args: { id: t.arg.id({ required: true, description: 'Its id.' }) },
    resolve: async (_query, _root, { id }, { db, tenant }) =>
      id.includes('\0') ? null : db.session.findFirst({ select: selectOf('Session'), where: { id, tenant } }),
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
          description:
            'Words that must all occur in the title or in prompts: at most 10 of 100 characters each. Upper and lower case, composed and decomposed letters, ß and ss, σ and ς are the same.',
        }),
        status: t.arg({ type: [SessionStatus], description: 'Only sessions that show one of these.' }),
      },
      resolve: async (_root, args, context) => {
        const { db, tenant, core } = context
        const page = pageOf(args, list)
        const conditions = [Prisma.sql`s.tenant = ${tenant}`]
        if (args.archived != null) conditions.push(Prisma.sql`(s."archivedAt" IS NOT NULL) = ${args.archived}`)
        for (const word of wordsOf(args.search)) conditions.push(mentions(word, tenant))
        if (args.status) conditions.push(Prisma.sql`(${statusOf(core.config.scanMs)}) = ANY (${args.status})`)
        // The list runs from new to old: behind a place is what is older.
        if (page.after) conditions.push(Prisma.sql`(s."updatedAt", s.id) < ${sqlPlace(page.after)}`)
        if (page.before) conditions.push(Prisma.sql`(s."updatedAt", s.id) > ${sqlPlace(page.before)}`)
        const direction = page.backward ? Prisma.sql`ASC` : Prisma.sql`DESC`
        const found = await inTime(
          db.$queryRaw<{ id: string }[]>`
          SELECT s.id FROM "Session" s WHERE ${Prisma.join(conditions, ' AND ')}
          ORDER BY s."updatedAt" ${direction}, s.id ${direction} LIMIT ${page.limit + 1}`,
          args.search,
          core.config.queryMs,
        )
        const where = { id: { in: found.map((row) => row.id) } }
        const rows = await db.session.findMany({ select: selectOf('Session'), where })
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
  for (const word of words) {
    const characters = [...word].length
    if (characters > wordCharactersMax)
      throw refusal('BAD_USER_INPUT', `search: a word has at most ${wordCharactersMax} characters, not ${characters}`)
  }
  if (search?.includes('\0')) throw refusal('BAD_USER_INPUT', 'search must not contain the character NUL')
  return words
}

/**
 * The sessions of the tenant whose title or prompts hold the word. Both sides are folded by the same function (its migration says how). The head of a prompt is in
 * the index where there is one; prompts that are longer than that are looked through one by one.
 */
function mentions(word: string, tenant: string): Prisma.Sql {
  const pattern = Prisma.sql`holdfast_search_pattern(${word})`
  const prompts = Prisma.sql`"Input" i JOIN "Session" o ON o.id = i."sessionId" AND o.tenant = ${tenant} WHERE i.kind = 'PROMPT'`
  return Prisma.sql`s.id IN (
    SELECT o.id FROM "Session" o WHERE o.tenant = ${tenant} AND holdfast_folded(o.title) LIKE ${pattern}
    UNION ALL SELECT i."sessionId" FROM ${prompts} AND holdfast_search_head(i.text) LIKE ${pattern}
    UNION ALL SELECT i."sessionId" FROM ${prompts} AND octet_length(i.text) > 1000 AND holdfast_folded(i.text) LIKE ${pattern})`
}

/** The database ends a search that takes too long; its caller learns which. */
async function inTime<R>(found: Promise<R>, search: string | null | undefined, ms: number): Promise<R> {
  try {
    return await found
  } catch (thrown) {
    if (!search || sqlStateOf(thrown) !== '57014') throw thrown
    throw refusal('SEARCH_TOO_SLOW', `search took longer than ${ms} ms; use longer words, or more of them`)
  }
}
