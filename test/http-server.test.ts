import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createClient } from 'graphql-ws'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { createTestDatabase, type TestDatabase } from './support/database.ts'

const root = new URL('..', import.meta.url)
let database: TestDatabase
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database.drop())

const children: ChildProcess[] = []
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
})

/** A server process; `ready` resolves with its URL, `ended` with its exit code and what it said. */
function serve(env: Record<string, string> = {}) {
  const child = spawn(process.execPath, ['--import', 'tsx', 'src/server.ts'], {
    cwd: root,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, PORT: '0', DATABASE_URL: database.url, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  children.push(child)
  let out = ''
  let err = ''
  child.stderr.on('data', (text) => {
    err += text
  })
  const ended = new Promise<{ code: number | null; out: string; err: string }>((resolve) => {
    child.on('close', (code) => resolve({ code, out, err }))
  })
  const ready = new Promise<string>((resolve, reject) => {
    child.stdout.on('data', (text) => {
      out += text
      const url = out.match(/http:\S+/)?.[0]
      if (url) resolve(url)
    })
    void ended.then(({ err }) => reject(new Error(`ended before it was ready: ${err}`)))
  })
  ready.catch(() => {})
  return { child, ready, ended }
}

describe('start', () => {
  it('OPS-01: one line on standard output says where it is; the log is JSON on standard error', async () => {
    const server = serve()
    const url = await server.ready
    expect(await (await fetch(`${url}readyz`)).text()).toBe('ready\n')
    server.child.kill('SIGTERM')
    const { code, out, err } = await server.ended
    expect(code).toBe(0)
    expect(out.trim().split('\n')).toHaveLength(1)
    for (const line of err.trim().split('\n').filter(Boolean)) expect(JSON.parse(line)).toHaveProperty('level')
  })

  const refusal = async (env: Record<string, string>) => {
    const { code, out, err } = await serve(env).ended
    expect(code).toBe(1)
    expect(out).toBe('')
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
    const line = await refusal({ DATABASE_URL: `postgres://user:hunter2@127.0.0.1:${port}/nothing` })
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

  it('DB-18: a data directory that cannot be written is named', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'hf-http-'))
    try {
      writeFileSync(join(dir, 'file'), '')
      const line = await refusal({ DATABASE_URL: '', HOLDFAST_DATA_DIR: join(dir, 'file', 'data') })
      expect(line).toContain('HOLDFAST_DATA_DIR')
    } finally {
      rmSync(dir, { recursive: true, force: true })
    }
  })
})

describe('stop', () => {
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
    server.child.kill('SIGTERM')
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
    server.child.kill('SIGINT')
    expect((await server.ended).code).toBe(0)
  })

  it('OPS-04: a second signal ends it at once', async () => {
    const server = serve()
    const url = new URL(await server.ready)
    const socket = new WebSocket(`ws://${url.host}/graphql`, 'graphql-transport-ws')
    await new Promise((resolve) => socket.once('open', resolve))
    socket.on('error', () => {})
    socket.pause()
    server.child.kill('SIGTERM')
    const again = setInterval(() => server.child.kill('SIGTERM'), 50)
    const { code } = await server.ended
    clearInterval(again)
    expect(code).toBe(1)
  })
})

function listening(): Promise<Server> {
  return new Promise((resolve) => {
    const server = createServer()
    server.listen(0, '127.0.0.1', () => resolve(server))
  })
}
