// What search finds, and what it may cost.
import pg from 'pg'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { migrate } from '../src/migrate.ts'
import { type Served, serveLog } from './support/served.ts'
import { admitted, created } from './support/story.ts'

const queryMs = 3000
const id = 'ses_search0001'
let served: Served
beforeAll(async () => {
  served = await serveLog({ env: { HOLDFAST_QUERY_MS: String(queryMs) } })
  const head = 'Die STRASSE in Zürich, ΟΔΥΣΣΕΥΣ, 日本語のテキスト, 100% ok_ay \\o/ '
  await served.append(
    id,
    created('Ａｎｇｅｂｏｔ für Müller'),
    admitted('msg_search0001', head),
    admitted('msg_search0002', `${'-'.repeat(5000)} weit hinten`),
  )
  await served.append(
    'ses_search0002',
    created('other'),
    admitted('msg_search0003', 'strass zuerich 100 percent okXay'),
  )
})
afterAll(() => served?.close())

const search = async (words: string) => {
  const { data, errors } = await served.ask(
    'query ($words: String) { sessions(search: $words) { edges { node { id } } } }',
    {
      words,
    },
  )
  return { ids: data?.sessions?.edges.map(({ node }: { node: { id: string } }) => node.id) as string[], errors }
}

it('PROMISE-190: a word beyond 100 characters, or more than ten words, is refused with the rule', async () => {
  for (const [words, rule] of [
    ['a'.repeat(101), 'search: a word has at most 100 characters, not 101'],
    ['語'.repeat(4000), 'search: a word has at most 100 characters, not 4000'],
    [Array(11).fill('a').join(' '), 'search takes at most 10 words, not 11'],
  ] as const) {
    const { errors } = await search(words)
    expect(errors).toMatchObject([{ message: rule, extensions: { code: 'BAD_USER_INPUT' } }])
  }
  expect((await search('\u{1f600}'.repeat(100))).errors).toBeUndefined()
})

it('PROMISE-191: words are found in titles and prompts, however their letters were typed: case, composed or not, ß, final sigma, full width, CJK', async () => {
  for (const word of [
    'straße',
    'STRAẞE',
    'strasse',
    'zürich',
    'zu\u0308rich',
    'ZÜRICH',
    'οδυσσευς',
    'οδυσσευσ',
    '日本',
    'テキスト',
    'angebot',
    'MU\u0308LLER',
    '100%',
    'ok_ay',
    '\\o/',
    'hinten',
    'müller hinten 語',
  ])
    expect([word, (await search(word)).ids]).toEqual([word, [id]])
  expect((await search('müller nowhere')).ids).toEqual([])
})

it('PROMISE-192: the index finds the words where pg_trgm is there, in the head of prompts and in titles', async () => {
  const client = new pg.Client({ connectionString: served.database.url })
  await client.connect()
  await client.query('SET enable_seqscan = off; SET enable_indexscan = off')
  const plan = async (sql: string) =>
    (await client.query(`EXPLAIN ${sql}`)).rows.map((row) => row['QUERY PLAN'] as string).join('\n')
  expect(
    await plan(`SELECT 1 FROM "Input" WHERE kind = 'PROMPT' AND holdfast_search_head(text) LIKE '%strasse%'`),
  ).toContain('Input_search_idx')
  expect(await plan(`SELECT 1 FROM "Session" WHERE holdfast_folded(title) LIKE '%strasse%'`)).toContain(
    'Session_search_idx',
  )
  await client.end()
})

it('PROMISE-193: the database ends a search that takes too long, its caller learns it by a code, and the next one is served', async () => {
  const slow = (body: string) =>
    served.core.db.$executeRawUnsafe(`
    CREATE OR REPLACE FUNCTION holdfast_search_head(p_text text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 1000 AS $$ BEGIN ${body} RETURN holdfast_folded(left(p_text, 1000)); END $$`)
  await slow('PERFORM pg_sleep(60);')
  const { errors } = await search('nowhere')
  await slow('')
  expect(errors).toMatchObject([{ extensions: { code: 'SEARCH_TOO_SLOW' } }])
  expect(errors?.[0]?.message).toBe('search took longer than 3000 ms; use longer words, or more of them')
  expect((await search('strasse')).ids).toEqual(['ses_search0001'])
})

it('PROMISE-194: where pg_trgm may not be made the migrations pass, and search finds the same', async () => {
  const admin = new pg.Client({ connectionString: served.database.url })
  await admin.connect()
  const name = `${new URL(served.database.url).pathname.slice(1)}_plain`
  await admin.query(`CREATE ROLE ${name} LOGIN PASSWORD 'plain'`)
  await admin.query(`CREATE DATABASE ${name} TEMPLATE template0 ENCODING 'UTF8'`)
  const at = (user?: string) => {
    const url = new URL(served.database.url)
    url.pathname = `/${name}`
    if (user) Object.assign(url, { username: user, password: 'plain' })
    return url.href
  }
  try {
    const owner = new pg.Client({ connectionString: at() })
    await owner.connect()
    await owner.query(`GRANT ALL ON SCHEMA public TO ${name}`)
    await owner.end()
    await migrate({ url: at(name) })
    const plain = new pg.Client({ connectionString: at(name) })
    await plain.connect()
    const { rows } = await plain.query(
      `SELECT (SELECT count(*)::int FROM pg_extension WHERE extname = 'pg_trgm') AS made,
              (SELECT count(*)::int FROM pg_indexes WHERE indexname LIKE '%search_idx') AS indexes,
              holdfast_folded('STRAẞE') LIKE '%' || holdfast_folded('straße') || '%' AS found`,
    )
    await plain.end()
    expect(rows).toEqual([{ made: 0, indexes: 0, found: true }])
  } finally {
    await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
    await admin.query(`DROP ROLE IF EXISTS ${name}`)
    await admin.end()
  }
})
