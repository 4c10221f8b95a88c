import { randomUUID } from 'node:crypto'
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { startEmbedded } from '../src/embedded/server.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { openLink } from './support/link.ts'
import { ask, endServers, startServer } from './support/server-process.ts'

// The two promises at the level at which they are made: real processes, real signals.

let database: TestDatabase
let dir: string

beforeAll(async () => {
  database = await createTestDatabase()
  dir = mkdtempSync(join(tmpdir(), 'holdfast-process-'))
  // As root the embedded database runs as somebody else, who has to get through.
  chmodSync(dir, 0o711)
})
afterEach(endServers)
afterAll(async () => {
  await endServers()
  const data = join(dir, 'data')
  if (existsSync(join(data, 'postgres/postmaster.pid'))) await (await startEmbedded({ dataDir: data })).stop()
  rmSync(dir, { recursive: true, force: true, maxRetries: 5 })
  await database.drop()
})

const create = 'mutation ($s: ID!) { createSession(input: { sessionId: $s }) { __typename } }'
const admit = `mutation ($s: ID!, $m: ID!, $t: String!) {
  admitPrompt(input: { sessionId: $s, messageId: $m, text: $t, delivery: QUEUE }) { __typename ... on PromptAdmission { outcome } }
}`
const newId = (prefix: 'ses' | 'msg') => `${prefix}_${randomUUID()}`

async function query<T extends pg.QueryResultRow>(sql: string, values: unknown[] = []): Promise<T[]> {
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  try {
    return (await client.query<T>(sql, values)).rows
  } finally {
    await client.end()
  }
}

async function until<T>(read: () => Promise<T>, holds: (value: T) => boolean, what: string): Promise<T> {
  const deadline = Date.now() + 90_000
  for (;;) {
    const value = await read()
    if (holds(value)) return value
    if (Date.now() > deadline) throw new Error(`waited 90 s for ${what}: ${JSON.stringify(value)}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

describe('kill -9', () => {
  const rounds = 4
  const env = () => ({
    DATABASE_URL: database.url,
    HOLDFAST_LEASE_MS: '600000',
    HOLDFAST_RENEW_MS: '500',
    HOLDFAST_SCAN_MS: '200',
    HOLDFAST_LIVENESS_GRACE_MS: '200',
    HOLDFAST_RECOVERY_ATTEMPTS: '100',
  })

  it('REC-32, LOG-16: whenever the server is killed, each acknowledged prompt is there once after the restart and runs once, long before any lease ends', async () => {
    const acknowledged = new Map<string, string>()
    let cutOff = 0
    const sessions = Array.from({ length: 4 }, () => newId('ses'))
    /** What each client is about to send: kept until it is answered, and then sent again byte for byte. */
    const open = new Map(sessions.map((session) => [session, { m: newId('msg'), t: '/length 8' }]))

    /** Admits one prompt after the other until the server is gone or the session has had `most`. */
    const client = async (url: string, session: string, most: number) => {
      try {
        await ask(url, create, { s: session })
        for (let sent = 0; sent < most; sent++) {
          const prompt = open.get(session)!
          const answer = await ask(url, admit, { s: session, ...prompt })
          expect(answer.admitPrompt.__typename).toBe('PromptAdmission')
          acknowledged.set(prompt.m, session)
          open.set(session, { m: newId('msg'), t: '/length 8' })
        }
      } catch (error) {
        if (error instanceof Error && error.name === 'AssertionError') throw error
      }
    }

    for (let round = 0; round < rounds; round++) {
      const server = startServer(env())
      const url = await server.ready
      const clients = sessions.map((session) => client(url, session, 6))
      const before = acknowledged.size
      // Something must have been acknowledged; what exactly is under way then is left to chance.
      await until(
        async () => acknowledged.size,
        (size) => size > before,
        'an acknowledgement',
      )
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 600))
      server.signal('SIGKILL')
      expect((await server.ended).signal).toBe('SIGKILL')
      await Promise.all(clients)
      const [claims] = await query<{ n: number }>('SELECT count(*)::int AS n FROM "Claim"')
      cutOff += claims!.n
    }
    expect(cutOff, 'no kill has cut anything off').toBeGreaterThan(0)

    const server = startServer(env())
    const url = await server.ready
    const ids = [...acknowledged.keys()]
    await until(
      () =>
        query<{ n: number }>('SELECT count(*)::int AS n FROM "Input" WHERE id = ANY ($1) AND state = $2', [
          ids,
          'PROMOTED',
        ]),
      ([row]) => row!.n === ids.length,
      `${ids.length} prompts to be promoted`,
    )
    const state = () => ask(url, `{ sessions(first: 100) { edges { node { id status } } } }`)
    await until(
      state,
      (data) => data.sessions.edges.every((edge: { node: { status: string } }) => edge.node.status === 'IDLE'),
      'all sessions to be idle',
    )

    const promoted = await query<{ id: string; n: number }>(
      `SELECT payload->>'messageId' AS id, count(*)::int AS n FROM "Event"
        WHERE type = 'prompt.promoted' AND payload->>'inputKind' = 'PROMPT' GROUP BY 1`,
    )
    expect(promoted.filter(({ n }) => n !== 1)).toEqual([])
    expect(ids.filter((id) => !promoted.some((row) => row.id === id))).toEqual([])
    // Every execution that began has one end.
    const ends = await query<{ n: number }>(
      `SELECT count(*) FILTER (WHERE type IN ('execution.settled', 'step.recovered'))::int AS n FROM "Event"
        WHERE type IN ('execution.started', 'execution.settled', 'step.recovered') GROUP BY payload->>'executionId'`,
    )
    expect(ends.filter(({ n }) => n !== 1)).toEqual([])
    for (const session of sessions) {
      const { verifySession } = await ask(url, 'query ($s: ID!) { verifySession(id: $s) { consistent differences } }', {
        s: session,
      })
      expect(verifySession).toEqual({ consistent: true, differences: [] })
    }
    server.signal('SIGTERM')
    expect((await server.ended).code).toBe(0)
  }, 300_000)
})

describe('a start that cannot succeed', () => {
  async function refused(env: Record<string, string>): Promise<string> {
    const server = startServer(env)
    const { code } = await server.ended
    expect({ code, ready: server.readyMs() }).toEqual({ code: 1, ready: null })
    return server.stderr()
  }

  it('OPS-02: every bad value is listed at once, with its setting and rule', async () => {
    const text = await refused({ HOLDFAST_LEASE_MS: 'soon', PORT: '70000', HOST: '0.0.0.0' })
    expect(text).toContain('HOLDFAST_LEASE_MS is "soon": must be a whole number of milliseconds')
    expect(text).toContain('PORT is "70000": must be a whole number from 0 to 65535')
    expect(text).toContain('HOST is "0.0.0.0"')
  }, 90_000)

  it('OPS-13: a config file that throws, and a tool without a schema, are named with file and field', async () => {
    const throws = join(dir, 'throws.mjs')
    writeFileSync(throws, 'throw new Error("the reason")')
    const thrown = await refused({ HOLDFAST_CONFIG: throws })
    expect(thrown).toContain(throws)
    expect(thrown).toContain('the reason')
    const lacks = join(dir, 'lacks.mjs')
    writeFileSync(lacks, "export default { tools: [{ name: 'a', description: 'b', execute: async () => 1 }] }")
    const lacking = await refused({ HOLDFAST_CONFIG: lacks })
    expect(lacking).toContain('lacks.mjs: tool "a": tools[0].inputSchema')
  }, 90_000)
})

/** Reads a session's stream until it ends and resolves with its items; calls `begun` once, when text comes in. */
async function watch(url: string, session: string, begun: () => void): Promise<Record<string, unknown>[]> {
  const response = await fetch(new URL('graphql', url), {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
    body: JSON.stringify({
      query: `subscription ($s: ID!) { sessionEvents(sessionId: $s) { __typename seq ... on StreamEnded { cause resumeAfter } } }`,
      variables: { s: session },
    }),
  })
  let text = ''
  let hasBegun = false
  for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
    text += chunk
    if (!hasBegun && text.includes('"TextDelta"')) {
      hasBegun = true
      begun()
    }
  }
  return [...text.matchAll(/^data: (\{.*\})$/gm)].map(([, json]) => JSON.parse(json!).data.sessionEvents)
}

describe('SIGTERM', () => {
  const text = '/slow 150 A few words that take a moment'
  const outcomes = (session: string) =>
    query<{ type: string; outcome: string | null; handover: boolean | null }>(
      `SELECT type, payload->>'outcome' AS outcome, (payload->>'handover')::boolean AS handover FROM "Event"
        WHERE "sessionId" = $1 AND type IN ('execution.settled', 'step.recovered') ORDER BY seq`,
      [session],
    )

  it('OPS-04: with a run in progress, the stream ends with SERVER_SHUTDOWN, the step may finish, and the exit code is 0', async () => {
    const server = startServer({ DATABASE_URL: database.url })
    const url = await server.ready
    const session = newId('ses')
    await ask(url, create, { s: session })
    await ask(url, admit, { s: session, m: newId('msg'), t: text })
    const items = await watch(url, session, () => server.signal('SIGTERM'))
    expect(items.at(-1)).toMatchObject({ __typename: 'StreamEnded', cause: 'SERVER_SHUTDOWN' })
    expect((await server.ended).code).toBe(0)
    const [message] = await query('SELECT status FROM "Message" WHERE "sessionId" = $1 AND kind = $2', [
      session,
      'ASSISTANT',
    ])
    expect(message).toEqual({ status: 'ENDED' })
    const ends = await outcomes(session)
    expect(ends).toHaveLength(1)
    expect(['SUCCEEDED', 'CLEARED']).toContain(ends[0]!.outcome)
  }, 120_000)

  it('OPS-04: a step that outlasts the grace is handed over, the exit code is 0, and the next server goes on without waiting', async () => {
    const env = { DATABASE_URL: database.url, HOLDFAST_SHUTDOWN_GRACE_MS: '100' }
    const server = startServer(env)
    const url = await server.ready
    const session = newId('ses')
    await ask(url, create, { s: session })
    await ask(url, admit, { s: session, m: newId('msg'), t: '/slow 2000 One word in two seconds' })
    await watch(url, session, () => server.signal('SIGTERM'))
    expect((await server.ended).code).toBe(0)
    expect(await outcomes(session)).toEqual([{ type: 'step.recovered', outcome: null, handover: true }])
    expect(await query('SELECT 1 FROM "Claim" WHERE "sessionId" = $1', [session])).toEqual([])

    const next = startServer({ ...env, HOLDFAST_LEASE_MS: '600000' })
    const nextUrl = await next.ready
    const read = () =>
      ask(nextUrl, 'query ($s: ID!) { session(id: $s) { status events(after: 0, first: 100) { __typename } } }', {
        s: session,
      })
    await until(
      read,
      ({ session: { events } }) =>
        events.filter((e: { __typename: string }) => e.__typename === 'ExecutionStarted').length === 2,
      'a second execution',
    )
  }, 180_000)
})

describe('readiness', () => {
  it('OPS-06: with the database out of reach /readyz says why and /healthz stays good; both recover with it', async () => {
    const link = await openLink(database.url)
    try {
      const server = startServer({ DATABASE_URL: link.url })
      const url = await server.ready
      const get = async (path: string) => {
        const response = await fetch(new URL(path, url), { signal: AbortSignal.timeout(10_000) })
        return { status: response.status, text: (await response.text()).trim() }
      }
      expect(await get('readyz')).toEqual({ status: 200, text: 'ready' })
      link.cut()
      await until(
        () => get('readyz'),
        ({ status }) => status === 503,
        'not to be ready',
      )
      expect((await get('readyz')).text).toMatch(/^the database (cannot be reached|has not answered)/)
      expect((await get('healthz')).status).toBe(200)
      link.mend()
      await until(
        () => get('readyz'),
        ({ status }) => status === 200,
        'to be ready again',
      )
    } finally {
      await endServers()
      await link.close()
    }
  }, 120_000)

  it('OPS-01, DB-17: on its own database it is ready soon, sooner the second time, and leaves nothing running', async () => {
    const env = { HOLDFAST_DATA_DIR: join(dir, 'data') }
    const times: number[] = []
    for (let start = 0; start < 2; start++) {
      const server = startServer(env)
      const url = await server.ready
      times.push(server.readyMs()!)
      expect((await fetch(url)).status).toBe(200)
      server.signal('SIGTERM')
      expect((await server.ended).code).toBe(0)
      expect(existsSync(join(dir, 'data/postgres/postmaster.pid'))).toBe(false)
    }
    console.log(`ready after ${times[0]} ms on a new data directory, ${times[1]} ms on an existing one`)
    // Meant are 15 s and 4 s on a quiet machine. Here it may be a very busy one.
    expect(times[0]).toBeLessThan(60_000)
    expect(times[1]).toBeLessThan(40_000)
  }, 180_000)
})
