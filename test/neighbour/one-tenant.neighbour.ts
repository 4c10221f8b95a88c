import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath, pathToFileURL } from 'node:url'
import pg from 'pg'
import { afterAll, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { endServers, startServer } from '../support/server-process.ts'

const seconds = Number(process.env.HOLDFAST_NEIGHBOUR_S ?? 60)
const here = (name: string) => fileURLToPath(new URL(name, import.meta.url))
const keys = { hostile: 'hostile-hostile-hostile-1', works: 'works-works-works-works-1' }
const admissionMsMax = 1_000
const aloneSeconds = 10
const residentBytesMax = 1024 ** 3

const hostileParts = 4
/** What each harm meets, if it was done at all. */
const evidence: Record<string, RegExp> = {
  'a large first message': /closed (1009|1006)/,
  'unfinished first messages': /closed (1009|1006)/,
  'slow bodies': /ended by the server|still open/,
  'large rows for small answers': /status 200/,
  'streams that nobody reads': /unread/,
  'searches for long words': /status 200/,
  'subscriptions in batches and for no reader': /status 406/,
  'ten thousand queries on one socket': /acknowledged/,
  'five thousand streams on one socket': /acknowledged/,
  'many sockets': /acknowledged/,
  'pings of one who does not read': /acknowledged/,
  'millions of enum values': /status (413|0)/,
  'deep variables that nobody uses': /status (413|0)/,
  'large attachments': /status (200|503)/,
  'admissions as fast as they go': /status 200/,
  'pages for anybody': /status 200/,
}
/** What it says that it has done. */
interface Did {
  begun: number
  done: number
  came: Record<string, number>
}

const dir = mkdtempSync(join(tmpdir(), 'holdfast-neighbour-'))
let database: TestDatabase | undefined
const hostile: ChildProcess[] = []
afterAll(async () => {
  for (const one of hostile) one.kill('SIGKILL')
  await endServers()
  await database?.drop()
  rmSync(dir, { recursive: true, force: true })
})

it(`PROMISE-300: for ${seconds} s one tenant does all that harms, and another works as if it were alone; a minute later nothing is left of it`, async () => {
  database = await createTestDatabase()
  const measureTo = join(dir, 'measure.json')
  const server = startServer({
    DATABASE_URL: database.url,
    HOLDFAST_API_KEYS: `${keys.hostile}:hostile,${keys.works}:works`,
    MEASURE_TO: measureTo,
    NODE_OPTIONS: `--import ${pathToFileURL(here('../fuzz/measured.mjs')).href}`,
  })
  const url = await server.ready
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${keys.works}` }
  // biome-ignore lint/suspicious/noExplicitAny: reads whatever it asked for
  async function ask(query: string, variables?: unknown): Promise<any> {
    const response = await fetch(new URL('graphql', url), {
      method: 'POST',
      headers,
      body: JSON.stringify({ query, variables }),
    })
    const { data, errors } = (await response.json()) as { data: unknown; errors?: unknown[] }
    if (errors) throw new Error(JSON.stringify(errors))
    return data
  }
  const metric = async (name: string) => {
    const text = await (await fetch(new URL('metrics', url), { headers })).text()
    const found = [...text.matchAll(new RegExp(`^holdfast_${name}(?:\\{[^}]*\\})? (\\S+)$`, 'gm'))]
    return found.reduce((sum, [, value]) => sum + Number(value), 0)
  }
  const measured = () => {
    try {
      return JSON.parse(readFileSync(measureTo, 'utf8')) as { times: number; held: number }
    } catch {
      return { times: 0, held: 0 }
    }
  }
  async function held(): Promise<number> {
    const before = measured().times
    server.signal('SIGUSR2')
    await expect.poll(() => measured().times, { timeout: 60_000 }).toBeGreaterThan(before)
    return measured().held
  }
  /** 0 once it has gone, which the next thing asked of it finds out. */
  function resident(): number {
    try {
      return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, 'utf8'))?.[1] ?? 0) * 1024
    } catch {
      return 0
    }
  }

  /** Of its main thread, in ms: on a processor, and ready for one that others had. */
  function processor(): { ran: number; waited: number } {
    try {
      const [ran, waited] = readFileSync(`/proc/${server.pid}/task/${server.pid}/schedstat`, 'utf8').split(' ')
      return { ran: Number(ran) / 1e6, waited: Number(waited) / 1e6 }
    } catch {
      return { ran: 0, waited: 0 }
    }
  }

  let made = 0
  async function admit(session: string): Promise<number> {
    const sentAt = performance.now()
    const { admitPrompt } = await ask(
      'mutation($s: ID!, $m: ID!) { admitPrompt(input: { sessionId: $s, messageId: $m, text: "/length 3" }) { __typename } }',
      { s: session, m: `msg_works_${String(++made).padStart(6, '0')}` },
    )
    if (admitPrompt.__typename !== 'PromptAdmission') throw new Error(admitPrompt.__typename)
    return performance.now() - sentAt
  }
  const sessions = ['ses_works_one', 'ses_works_two', 'ses_works_three'].map((id) => id.padEnd(14, '_'))
  for (const id of sessions)
    await ask('mutation($s: ID!) { createSession(input: { sessionId: $s }) { __typename } }', { s: id })
  for (const id of sessions) for (let n = 0; n < 5; n++) await admit(id)
  async function admitFor(forSeconds: number) {
    const until = performance.now() + forSeconds * 1000
    const before = processor()
    const took: number[] = []
    const refused: string[] = []
    await Promise.all(
      sessions.map(async (id) => {
        while (performance.now() < until) {
          await admit(id).then(
            (ms) => took.push(ms),
            (thrown) => refused.push(String(thrown)),
          )
          await sleep(200)
        }
      }),
    )
    took.sort((a, b) => a - b)
    const after = processor()
    const ran = after.ran - before.ran
    const share = ran / Math.max(1, ran + after.waited - before.waited)
    const p = (part: number) => Math.round(took[Math.min(took.length - 1, Math.floor(took.length * part))]!)
    const cost = `${(ran / forSeconds / 1000).toFixed(2)} of a processor, ${Math.round(share * 100)} % of what it was ready for`
    const times = `p50 ${p(0.5)} ms, p99 ${p(0.99)} ms, longest ${p(1)} ms`
    const text = `${took.length} admissions, ${refused.length} refused, ${times}; ${cost}`
    return { p, refused, toString: () => text }
  }
  const alone = await admitFor(aloneSeconds)
  const heldBefore = await held()

  const told: string[] = []
  function startHostile(part: number): void {
    const args = ['--import', 'tsx', here('./hostile.ts'), url, keys.hostile, String(part), String(hostileParts)]
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'], cwd: here('../..') })
    hostile.push(child)
    told[part] = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      told[part] = `${told[part]}${text}`.slice(-20_000)
    })
  }
  let peak = 0
  const sampling = setInterval(() => {
    peak = Math.max(peak, resident())
  }, 100)
  startHostile(0)
  await expect.poll(() => told[0], { timeout: 300_000 }).toContain('{')
  for (let part = 1; part < hostileParts; part++) startHostile(part)
  await expect.poll(() => told.every((one) => one.includes('{')), { timeout: 300_000 }).toBe(true)
  const beside = await admitFor(seconds)
  clearInterval(sampling)
  const did: Record<string, Did> = Object.assign({}, ...told.map((one) => JSON.parse(one.trim().split('\n').at(-1)!)))
  for (const one of hostile) one.kill('SIGKILL')
  console.log(`alone: ${alone}; beside it: ${beside}; peak ${Math.round(peak / 1024 / 1024)} MB`)
  for (const [name, { begun, done, came }] of Object.entries(did))
    console.log(`${name}: begun ${begun} times, done ${done} times; ${JSON.stringify(came)}`)
  // It was hostile in each way: else nothing was tried.
  expect(Object.keys(did).toSorted()).toEqual(Object.keys(evidence).toSorted())
  for (const [name, { came }] of Object.entries(did)) expect(Object.keys(came).join(), name).toMatch(evidence[name]!)
  expect(beside.refused).toEqual([])
  expect(beside.p(0.99)).toBeLessThan(admissionMsMax)
  expect(peak).toBeLessThan(residentBytesMax)
  expect(server.stdout() + server.stderr()).not.toMatch(/claim lost|unexpected error|a drain failed/)

  // What it began ends with it.
  const goneBy = { timeout: 60_000, interval: 500 }
  await expect.poll(() => metric('streams'), goneBy).toBe(0)
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  try {
    await expect
      .poll(async () => {
        const { rows } = await client.query(
          `SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
              AND state <> 'idle' AND now() - query_start > interval '1 second'`,
        )
        return rows[0].n
      }, goneBy)
      .toBe(0)
  } finally {
    await client.end()
  }
  await expect.poll(async () => (await held()) - heldBefore, goneBy).toBeLessThan(50 * 1024 * 1024)
  for (const id of sessions)
    await expect
      .poll(async () => (await ask('query($s: ID!) { session(id: $s) { status } }', { s: id })).session.status, goneBy)
      .toBe('IDLE')
  expect(await metric('refused_stale_writes_total')).toBe(0)
})
