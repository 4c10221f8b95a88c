import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createClient } from 'graphql-ws'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { ask, endServers, startServer } from './support/server-process.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database.drop())
afterEach(endServers)

const serve = (env: Record<string, string> = {}) => startServer({ DATABASE_URL: database.url, ...env })

// Each starts a real process, which takes its time on a busy machine.
describe('start', { timeout: 90_000 }, () => {
  it('OPS-01: one line on standard output says where it is; the log is JSON on standard error', async () => {
    const server = serve()
    const url = await server.ready
    expect(await (await fetch(`${url}readyz`)).text()).toBe('ready\n')
    server.signal('SIGTERM')
    expect((await server.ended).code).toBe(0)
    expect(server.stdout().trim().split('\n')).toHaveLength(1)
    for (const line of server.stderr().trim().split('\n').filter(Boolean))
      expect(JSON.parse(line)).toHaveProperty('level')
  })

  /** What a start says that cannot succeed: one line, and no word of it in the log either that should not be seen. */
  const refusal = async (env: Record<string, string>, hidden?: string) => {
    const server = serve(env)
    const { code } = await server.ended
    expect({ code, ready: server.readyMs(), out: server.stdout() }).toEqual({ code: 1, ready: null, out: '' })
    const err = server.stderr()
    if (hidden) expect(err).not.toContain(hidden)
    const lines = err
      .trim()
      .split('\n')
      .filter((line) => !line.startsWith('{'))
    expect(lines, err).toHaveLength(1)
    return lines[0]!
  }

  it('OPS-02: a taken port is named', async () => {
    const taken = await listening()
    const { port } = taken.address() as { port: number }
    expect(await refusal({ PORT: String(port) })).toBe(
      `holdfast: PORT is ${port}: that port is taken on 127.0.0.1; stop what listens there or set another PORT`,
    )
    taken.close()
  })

  it('OPS-02: a database that is not there is named by host and port, never with its password', async () => {
    const free = await listening()
    const { port } = free.address() as { port: number }
    await new Promise((resolve) => free.close(resolve))
    const line = await refusal({ DATABASE_URL: `postgres://user:hunter2@127.0.0.1:${port}/nothing` }, 'hunter2')
    expect(line).toBe(`holdfast: DATABASE_URL: no database answers at 127.0.0.1:${port} (ECONNREFUSED)`)
  })

  it('OPS-02: a database that does not exist on its server is named', async () => {
    const url = new URL(database.url)
    url.pathname = '/hf_does_not_exist'
    const line = await refusal({ DATABASE_URL: url.href })
    expect(line).toContain(`DATABASE_URL: the database at ${url.hostname}:${url.port || 5432} refuses`)
    if (url.password) expect(line).not.toContain(url.password)
  })

  it('OPS-02: a bad setting is refused by name', async () => {
    expect(await refusal({ PORT: 'many' })).toMatch(/^holdfast: PORT is "many": must be/)
  })

  it('OPS-02, DB-18: a data directory that cannot be made is named', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'hf-http-'))
    try {
      writeFileSync(join(dir, 'file'), '')
      const line = await refusal({ DATABASE_URL: '', HOLDFAST_DATA_DIR: join(dir, 'file', 'data') })
      expect(line).toContain(`The data directory ${join(dir, 'file', 'data')} cannot be used`)
      expect(line).toContain('HOLDFAST_DATA_DIR')
    } finally {
      rmSync(dir, { recursive: true, force: true })
    }
  })
})

describe('stop', { timeout: 180_000 }, () => {
  const create = 'mutation { createSession(input: { sessionId: "ses_stopping1" }) { __typename } }'
  const watch =
    'subscription { sessionEvents(sessionId: "ses_stopping1") { __typename ... on StreamEnded { cause resumeAfter } } }'

  it('OPS-04, STREAM-17: SIGTERM ends streams with SERVER_SHUTDOWN on both transports, and the exit code is 0', async () => {
    const server = serve()
    const url = `${await server.ready}graphql`
    const post = (query: string, accept: string) =>
      fetch(url, {
        method: 'POST',
        headers: { 'content-type': 'application/json', accept },
        body: JSON.stringify({ query }),
      })
    expect(await (await post(create, 'application/json')).json()).toMatchObject({ data: { createSession: {} } })
    const sse = await post(watch, 'text/event-stream')
    const client = createClient({ url: url.replace('http', 'ws'), webSocketImpl: WebSocket, retryAttempts: 0 })
    const items = client.iterate({ query: watch })
    const first = await items.next()
    expect(first.value).toMatchObject({ data: { sessionEvents: { __typename: 'SessionCreated' } } })
    server.signal('SIGTERM')
    const rest: unknown[] = []
    for await (const item of items) rest.push(item)
    expect(rest.at(-1)).toEqual({
      data: { sessionEvents: { __typename: 'StreamEnded', cause: 'SERVER_SHUTDOWN', resumeAfter: 1 } },
    })
    const text = await sse.text()
    expect(text).toContain('"cause":"SERVER_SHUTDOWN"')
    expect(text.trimEnd()).toMatch(/event: complete\ndata:$/)
    expect((await server.ended).code).toBe(0)
  })

  it('OPS-04: a WebSocket peer that does not answer the goodbye does not hold the server', async () => {
    const server = serve()
    const url = new URL(await server.ready)
    const socket = new WebSocket(`ws://${url.host}/graphql`, 'graphql-transport-ws')
    await new Promise((resolve) => socket.once('open', resolve))
    socket.on('error', () => {})
    // Reads nothing any more, so it never sees the closing frame.
    socket.pause()
    server.signal('SIGINT')
    expect((await server.ended).code).toBe(0)
  })

  it('OPS-04: a second signal ends it at once, a second after the first', async () => {
    const server = serve()
    const url = new URL(await server.ready)
    const socket = new WebSocket(`ws://${url.host}/graphql`, 'graphql-transport-ws')
    await new Promise((resolve) => socket.once('open', resolve))
    socket.on('error', () => {})
    // It will not see the goodbye, for which it would be waited two seconds.
    socket.pause()
    server.signal('SIGTERM')
    const again = setInterval(() => server.signal('SIGTERM'), 50)
    const { code } = await server.ended
    clearInterval(again)
    expect(code).toBe(1)
  })

  it('OPS-04: a Ctrl-C that comes twice, from the terminal and from npm, is one: work is handed over and the exit code is 0', async () => {
    const server = serve({ HOLDFAST_SHUTDOWN_GRACE_MS: '100' })
    const url = await server.ready
    const session = 'ses_stopping2'
    await ask(url, create.replace('ses_stopping1', session))
    await ask(
      url,
      `mutation { admitPrompt(input: { sessionId: "${session}", messageId: "msg_stopping2", text: "/slow 5000 Two words" }) { __typename } }`,
    )
    const runs = `{ session(id: "${session}") { execution { phase } } }`
    await expect.poll(async () => (await ask(url, runs)).session.execution?.phase, { timeout: 90_000 }).toBe('UNKNOWN')
    server.signal('SIGINT')
    await expect.poll(() => server.stderr(), { timeout: 90_000, interval: 1 }).toContain('"stopping"')
    server.signal('SIGINT')
    expect((await server.ended).code).toBe(0)
    expect(server.stderr()).toContain('stopping already')

    const next = serve()
    const events = `{ session(id: "${session}") { events { __typename ... on StepRecovered { handover } } } }`
    const { session: read } = await ask(await next.ready, events)
    expect(read.events).toContainEqual({ __typename: 'StepRecovered', handover: true })
  })
})

function listening(): Promise<Server> {
  return new Promise((resolve) => {
    const server = createServer()
    server.listen(0, '127.0.0.1', () => resolve(server))
  })
}
