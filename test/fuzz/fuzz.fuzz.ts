import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { buildSchema } from 'graphql'
import { afterAll, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { random } from '../support/random.ts'
import { ask, endServers, startServer } from '../support/server-process.ts'
import { sendOverHttp } from './http-client.ts'
import { drawOperation, type FuzzOperation } from './operation.ts'
import { sendOverSocket } from './socket-client.ts'
import { remember, type World } from './values.ts'

const count = Number(process.env.HOLDFAST_FUZZ ?? 2_000)
const seed = Number(process.env.HOLDFAST_FUZZ_SEED ?? Math.floor(Math.random() * 2 ** 32))
const here = (name: string) => fileURLToPath(new URL(name, import.meta.url))
const callers = 12
/** What a server holds after its first operations is not growth: caches and pools fill. */
const growthBytesMax = 50 * 1024 * 1024

const dir = mkdtempSync(join(tmpdir(), 'holdfast-fuzz-'))
let database: TestDatabase | undefined
afterAll(async () => {
  await endServers()
  await database?.drop()
  rmSync(dir, { recursive: true, force: true })
})

it(`PROMISE-310: ${count} hostile operations over HTTP and WebSocket: no internal error, no crash, no growth, every session at rest`, async () => {
  console.log(`HOLDFAST_FUZZ=${count} HOLDFAST_FUZZ_SEED=${seed}`)
  database = await createTestDatabase()
  const measureTo = join(dir, 'measure.json')
  const server = startServer({
    DATABASE_URL: database.url,
    HOLDFAST_CONFIG: here('./tools.config.mjs'),
    MEASURE_TO: measureTo,
    // What is refused for its number is not tried.
    HOLDFAST_TENANT_QUERIES_PER_SECOND: '0',
    HOLDFAST_TENANT_MUTATIONS_PER_SECOND: '0',
    HOLDFAST_TENANT_ADMISSIONS_PER_SECOND: '0',
    LOG_LEVEL: 'warn',
    NODE_OPTIONS: `--import ${pathToFileURL(here('./measured.mjs')).href}`,
  })
  const url = await server.ready
  const schema = buildSchema(readFileSync(here('../../schema.graphql'), 'utf8'))
  const world: World = { ids: [], cursors: [], season: 0 }
  const root = random(seed)
  const wrong: string[] = []
  let drawn = 0
  let answered = 0

  async function held(): Promise<number> {
    const times = () => {
      try {
        return JSON.parse(readFileSync(measureTo, 'utf8')) as { times: number; held: number }
      } catch {
        return { times: 0, held: 0 }
      }
    }
    const before = times().times
    server.signal('SIGUSR2')
    await expect.poll(() => times().times, { timeout: 120_000 }).toBeGreaterThan(before)
    return times().held
  }

  async function caller(until: number): Promise<void> {
    while (drawn < until && wrong.length < 10) {
      const own = root.fork()
      const isSocket = own.chance(0.25)
      const operations: FuzzOperation[] = Array.from({ length: isSocket ? own.from(1, 6) : own.from(1, 2) }, () =>
        drawOperation(schema, own, world),
      )
      drawn += isSocket ? operations.length : 1
      world.season = Math.floor(drawn / 1000)
      const sent = isSocket
        ? await sendOverSocket(url, own, operations)
        : await sendOverHttp(url, own, operations[0]!, operations.slice(1))
      remember(world, own, sent.told)
      if (/"data":\{/.test(sent.told)) answered++
      if (sent.wrong !== null)
        wrong.push(
          `${sent.wrong}\n  after ${isSocket ? 'WebSocket' : 'HTTP'}: ${JSON.stringify(operations).slice(0, 1500)}`,
        )
    }
  }
  const run = (until: number) => Promise.all(Array.from({ length: callers }, () => caller(until)))

  // A first tenth fills what may be filled.
  await run(Math.ceil(count / 10))
  const heldBefore = await held()
  await run(count)
  if (wrong.length > 0) console.log((server.stdout() + server.stderr()).slice(-20_000))
  expect(wrong).toEqual([])
  // Most of it is refused, but not all: else nothing but the refusals was tried.
  expect(answered).toBeGreaterThan(drawn / 10)
  expect(drawn).toBeGreaterThanOrEqual(count)

  // Whatever was asked, every session comes to rest: stopped by us, as some wait in a back-off.
  const sessions: string[] = []
  for (let after: string | null = null; ; ) {
    const { sessions: page } = await ask(
      url,
      'query($after: String) { sessions(first: 200, after: $after, archived: null) { edges { node { id } } pageInfo { endCursor hasNextPage } } }',
      { after },
    )
    sessions.push(...page.edges.map(({ node }: { node: { id: string } }) => node.id))
    if (!page.pageInfo.hasNextPage) break
    after = page.pageInfo.endCursor
  }
  expect(sessions.length).toBeGreaterThan(count / 1000)
  for (const id of sessions)
    await ask(url, 'mutation($id: ID!) { interruptSession(input: { sessionId: $id }) { __typename } }', { id })
  for (const id of sessions)
    await expect
      .poll(async () => (await ask(url, 'query($id: ID!) { session(id: $id) { status } }', { id })).session.status, {
        timeout: 120_000,
      })
      .not.toMatch(/RUNNING|QUEUED/)
  // What was left by its reader is given back.
  const metrics = async (name: string) => {
    const text = await (await fetch(new URL('metrics', url))).text()
    return Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'm').exec(text)?.[1])
  }
  await expect.poll(() => metrics('holdfast_streams'), { timeout: 120_000 }).toBe(0)
  const grown = (await held()) - heldBefore
  console.log(
    `${drawn} operations, ${answered} calls with data, ${sessions.length} sessions, ${Math.round(grown / 1024 / 1024)} MB more held than after the first tenth`,
  )
  expect(grown).toBeLessThan(growthBytesMax)
  expect(server.stdout() + server.stderr()).not.toMatch(
    /unexpected error|(?<!provider )request failed|unhandled|a drain failed/i,
  )
  server.signal('SIGTERM')
  expect((await server.ended).code).toBe(0)
})
