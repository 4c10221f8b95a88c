import { request } from 'node:http'
import { GraphQLError } from 'graphql'
import { serverAudits } from 'graphql-http'
import { createClient } from 'graphql-ws'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { UnavailableError } from '../src/errors.ts'
import { useEventStream } from '../src/http/sse.ts'
import { documentLimits } from '../src/schema/limits.ts'
import { type Answer, type Served, serveLog } from './support/served.ts'
import { statementsDuring } from './support/statements.ts'
import { admitted, created, promoted } from './support/story.ts'

let served: Served
beforeAll(async () => {
  served = await serveLog({ pingMs: 50 })
  await served.append('ses_http00001', created(), admitted('msg_http00001'), promoted('msg_http00001'))
})
afterAll(() => served.close())

const databaseOf = () => new URL(served.database.url).pathname.slice(1)

describe('GraphQL over HTTP', () => {
  for (const audit of serverAudits({ url: () => served.endpoint })) {
    it(`audit ${audit.id}: ${audit.name}`, async () => {
      const result = await audit.fn()
      expect(result.status, 'reason' in result ? result.reason : undefined).toBe('ok')
    })
  }

  it('parse, validation and value errors have codes', async () => {
    const code = async (query: string, variables?: Record<string, unknown>) =>
      (await served.ask(query, variables)).errors?.[0]?.extensions.code
    expect(await code('{ nothing here')).toBe('GRAPHQL_PARSE_FAILED')
    expect(await code('{ nothing }')).toBe('GRAPHQL_VALIDATION_FAILED')
    expect(await code('query ($id: ID!) { session(id: $id) { id } }', {})).toBe('BAD_USER_INPUT')
    expect(await code('query ($n: Int) { sessions(first: $n) { edges { cursor } } }', { n: 'x' })).toBe(
      'BAD_USER_INPUT',
    )
  })

  it('a request id that is sane comes back, another one is replaced', async () => {
    const idFor = async (given?: string) =>
      (await fetch(`${served.server.url}healthz`, { headers: given ? { 'x-request-id': given } : {} })).headers.get(
        'x-request-id',
      )
    expect(await idFor('trace-17.a')).toBe('trace-17.a')
    expect(await idFor('x'.repeat(200))).toMatch(/^[0-9a-f-]{36}$/)
    expect(await idFor()).toMatch(/^[0-9a-f-]{36}$/)
  })
})

/** Waits for what has to come about; vitest's own second is too short for a busy machine. */
const soon = <T>(look: () => T) => vi.waitFor(look, { timeout: 20_000 })

describe('API-14: unexpected errors', () => {
  const secret = 'connection string postgres://u:hunter2@db'
  const failing = (error: Error) => vi.spyOn(served.core.models, 'list').mockRejectedValue(error)
  const lineOf = (requestId: string) => served.logged().find((line) => line.requestId === requestId)

  function check(answer: Answer, code = 'INTERNAL_SERVER_ERROR'): string {
    const [error] = answer.errors ?? []
    expect(JSON.stringify(answer)).not.toContain('hunter2')
    expect(error?.extensions.code).toBe(code)
    const { requestId } = error!.extensions
    expect(requestId).toBeTruthy()
    expect(lineOf(requestId!)?.err).toMatchObject({ message: expect.stringContaining('connection string') })
    return requestId!
  }

  it('API-14: over HTTP the message is masked, and the log has the cause under the same request id', async () => {
    const spy = failing(new Error(secret))
    const answer = await served.ask('{ models { id } }', undefined, { 'x-request-id': 'my-trace-1' })
    expect(check(answer)).toBe('my-trace-1')
    spy.mockRestore()
  })

  it('API-14: over WebSocket as well, and the socket goes on', async () => {
    const spy = failing(new Error(secret))
    const client = createClient({ url: served.endpoint.replace('http', 'ws'), webSocketImpl: WebSocket, lazy: false })
    const [first] = await collect(client.iterate({ query: '{ models { id } }' }))
    check(first as Answer)
    spy.mockRestore()
    expect(await collect(client.iterate({ query: '{ __typename }' }))).toEqual([{ data: { __typename: 'Query' } }])
    await client.dispose()
  })

  it('API-14: a subscription whose source cannot start, over SSE', async () => {
    const spy = vi.spyOn(served.core.db.session, 'findFirst').mockRejectedValue(new Error(secret) as never)
    const text = await (await sse('subscription { sessionEvents(sessionId: "ses_http00001") { seq } }')).text()
    spy.mockRestore()
    check(JSON.parse(text.match(/data: (\{.*\})/)![1]!))
  })

  it('API-14: a subscription whose source breaks on the way ends with a masked error', async () => {
    const spy = vi.spyOn(served.core.doorbell, 'listen').mockImplementation(() => {
      throw new Error(secret)
    })
    const client = createClient({ url: served.endpoint.replace('http', 'ws'), webSocketImpl: WebSocket, lazy: false })
    const items = await collect(
      client.iterate({ query: 'subscription { sessionEvents(sessionId: "ses_http00001", after: 3) { seq } }' }),
    )
    spy.mockRestore()
    check(items.at(-1) as Answer)
    await client.dispose()
  })

  it('DB-02: a database that is away has a code that says so', async () => {
    const spy = failing(new UnavailableError('connection string'))
    const answer = await served.ask('{ models { id } }')
    check(answer, 'UNAVAILABLE')
    expect(answer.errors?.[0]?.message).toContain('try again')
    spy.mockRestore()
  })

  it('an error that was meant for the caller passes', async () => {
    const spy = failing(new GraphQLError('for you', { extensions: { code: 'NOT_FOUND' } }))
    expect((await served.ask('{ models { id } }')).errors).toMatchObject([
      { message: 'for you', extensions: { code: 'NOT_FOUND' } },
    ])
    spy.mockRestore()
  })
})

describe('SEC-07: documents that cost too much are refused before the database is asked', () => {
  const refusedWithout = async (query: string) => {
    let answer: Answer = {}
    const texts = await statementsDuring(databaseOf(), async () => {
      answer = await served.ask(query)
    })
    expect(texts).toEqual([])
    return answer.errors?.[0]?.extensions.code
  }
  const nested = (depth: number) =>
    `{ session(id: "ses_http00001") { ${'inputs { session { '.repeat(depth)} id ${'} }'.repeat(depth)} } }`
  const aliases = (count: number) =>
    `{ ${Array.from({ length: count }, (_, i) => `a${i}: session(id: "ses_http00001") { id }`).join(' ')} }`

  it('SEC-07: 5000 aliases', async () => {
    expect(await refusedWithout(aliases(5000))).toBe('GRAPHQL_PARSE_FAILED')
    expect(await refusedWithout(aliases(documentLimits.aliases + 1))).toBe('DOCUMENT_TOO_LARGE')
    expect((await served.ask(aliases(documentLimits.aliases))).errors).toBeUndefined()
  })

  it('SEC-07: depth 40, also through fragments', async () => {
    expect(await refusedWithout(nested(20))).toBe('DOCUMENT_TOO_LARGE')
    expect((await served.ask(nested(20))).errors?.[0]?.message).toContain('depth 42, the limit is 20')
    // Deeper than anything but an introspection needs to be; lists within lists are another limit (test/answer-size.test.ts).
    expect((await served.ask(nested(2))).errors).toBeUndefined()
    const chain = Array.from(
      { length: 12 },
      (_, i) => `fragment F${i} on Session { inputs { session { ...F${i + 1} } } }`,
    ).join(' ')
    expect(await refusedWithout(`{ session(id: "x") { ...F0 } } ${chain} fragment F12 on Session { id }`)).toBe(
      'DOCUMENT_TOO_LARGE',
    )
    expect(
      await refusedWithout('{ session(id: "x") { ...R } } fragment R on Session { inputs { session { ...R } } }'),
    ).toBe('GRAPHQL_VALIDATION_FAILED')
  })

  it('SEC-07: fragments that double with each level', async () => {
    const doubling = Array.from(
      { length: 20 },
      (_, i) => `fragment F${i} on Session { ...F${i + 1} ...F${i + 1} }`,
    ).join(' ')
    expect(await refusedWithout(`{ session(id: "x") { ...F0 } } ${doubling} fragment F20 on Session { id }`)).toBe(
      'DOCUMENT_TOO_LARGE',
    )
  })

  it('SEC-07: a batch of 100; one of 10 is served', async () => {
    const batch = (size: number) =>
      fetch(served.endpoint, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(
          Array.from({ length: size }, () => ({ query: '{ session(id: "ses_http00001") { id } }' })),
        ),
      })
    const texts = await statementsDuring(databaseOf(), async () => {
      const refused = await batch(100)
      expect(refused.status).toBe(413)
      expect(((await refused.json()) as Answer).errors?.[0]?.extensions.code).toBe('BAD_REQUEST')
    })
    expect(texts).toEqual([])
    const answers = (await (await batch(10)).json()) as Answer[]
    expect(answers.map(({ data }) => data)).toEqual(Array(10).fill({ session: { id: 'ses_http00001' } }))
  })

  it('GraphiQL can introspect, without the database', async () => {
    const { getIntrospectionQuery } = await import('graphql')
    const texts = await statementsDuring(databaseOf(), async () => {
      const { errors } = await served.ask(
        getIntrospectionQuery({ inputValueDeprecation: true, schemaDescription: true }),
      )
      expect(errors).toBeUndefined()
    })
    expect(texts).toEqual([])
  })
})

describe('SEC-08: bodies', () => {
  it('SEC-08: above the limit 413 with a GraphQL error, announced or not', async () => {
    for (const announced of [true, false]) {
      const { status, body } = await bigPost(41_000_000, announced)
      expect(status).toBe(413)
      expect((JSON.parse(body) as Answer).errors?.[0]?.extensions.code).toBe('REQUEST_ENTITY_TOO_LARGE')
    }
  })

  it('SEC-08: a WebSocket message above the limit costs its own socket only', async () => {
    const socket = new WebSocket(served.endpoint.replace('http', 'ws'), 'graphql-transport-ws')
    await new Promise((resolve) => socket.once('open', resolve))
    const closed = new Promise<number>((resolve) => socket.once('close', resolve))
    socket.on('error', () => {})
    socket.send('{"type":"connection_init"}')
    await new Promise((resolve) => socket.once('message', resolve))
    socket.send(Buffer.alloc(41_000_000, ' '))
    expect(await closed).toBe(1009)
    expect((await served.ask('{ __typename }')).data).toEqual({ __typename: 'Query' })
  })
})

describe('SEC-06: pages of other origins', () => {
  const status = (origin: string | undefined, path = 'graphql') =>
    fetch(served.server.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(origin && { origin }) },
      body: '{"query":"{ __typename }"}',
    }).then((response) => response.status)

  it('SEC-06: HTTP and WebSocket are refused, the same origin and no origin pass', async () => {
    const own = new URL(served.server.url).origin
    expect(await status('https://evil.example')).toBe(403)
    expect(await status('null')).toBe(403)
    expect(await status('http://127.0.0.1:1')).toBe(403)
    expect(await status(own)).toBe(200)
    expect(await status(undefined)).toBe(200)
    const preflight = await fetch(served.endpoint, { method: 'OPTIONS', headers: { origin: 'https://evil.example' } })
    expect(preflight.headers.get('access-control-allow-origin')).toBeNull()
    const upgrade = (origin?: string) =>
      new Promise((resolve) => {
        const socket = new WebSocket(served.endpoint.replace('http', 'ws'), 'graphql-transport-ws', {
          ...(origin && { origin }),
        })
        socket.once('open', () => {
          socket.terminate()
          resolve('open')
        })
        socket.once('error', (error) => resolve(error.message))
      })
    expect(await upgrade('https://evil.example')).toContain('403')
    expect(await upgrade(own)).toBe('open')
    expect(await upgrade()).toBe('open')
  })
})

describe('event streams', () => {
  const watch = (after?: number) =>
    `subscription { sessionEvents(sessionId: "ses_http00001"${after === undefined ? '' : `, after: ${after}`}) { __typename position: seq } }`
  const listeners = () => served.core.doorbell.listeners()

  it('STREAM-18: SSE has the seq as id, forbids buffering, and Last-Event-ID stands for after', async () => {
    const response = await sse(watch())
    expect(response.headers.get('content-type')).toContain('text/event-stream')
    expect(response.headers.get('cache-control')).toBe('no-cache, no-transform')
    expect(response.headers.get('x-accel-buffering')).toBe('no')
    const all = await until(response, 'LogSynced')
    expect([...all.matchAll(/^id: (\d+)\nevent: next$/gm)].map(([, id]) => id)).toEqual(['1', '2', '3'])
    expect(all).toMatch(/\n\nevent: next\ndata: .*LogSynced/)
    const resumed = await until(await sse(watch(0), { 'last-event-id': '2' }), 'LogSynced')
    expect([...resumed.matchAll(/^id: (\d+)$/gm)].map(([, id]) => id)).toEqual(['3'])
    const bad = await (await sse(watch(), { 'last-event-id': 'x' })).text()
    expect(bad).toContain('BAD_USER_INPUT')
    await soon(() => expect(listeners()).toBe(0))
  })

  it('STREAM-19: a silent stream is pinged', async () => {
    const text = await until(await sse(watch(3)), ':\n\n:\n\n:\n\n')
    expect(text).toContain('LogSynced')
    const socket = new WebSocket(served.endpoint.replace('http', 'ws'), 'graphql-transport-ws')
    await new Promise((resolve) => socket.once('ping', resolve))
    socket.terminate()
  })

  it('STREAM-15: a client that goes away, over SSE or WebSocket, leaves nothing behind', async () => {
    const response = await sse(watch())
    await soon(() => expect(listeners()).toBe(1))
    await response.body!.cancel()
    await soon(() => expect(listeners()).toBe(0))
    const client = createClient({ url: served.endpoint.replace('http', 'ws'), webSocketImpl: WebSocket })
    const items = client.iterate({ query: watch() })
    await items.next()
    expect(listeners()).toBe(1)
    await items.return!()
    await soon(() => expect(listeners()).toBe(0))
    client.terminate()
  })

  it('STREAM-15: a client that has gone before its stream begins leaves no timer and no source behind', () => {
    const pingMs = 987_654
    const returned = vi.fn(async () => ({ done: true, value: undefined }))
    const source = { next: () => new Promise(() => {}), return: returned }
    const [set, clear] = [vi.spyOn(globalThis, 'setInterval'), vi.spyOn(globalThis, 'clearInterval')]
    try {
      let body: (() => unknown) | undefined
      const { onResultProcess } = useEventStream({ pingMs })
      onResultProcess!({
        result: { [Symbol.asyncIterator]: () => source },
        resultProcessor: () => {},
        setResultProcessor: (processor: () => unknown) => {
          body = processor
        },
        serverContext: { position: { seq: null }, gone: AbortSignal.abort() },
      } as never)
      // Nobody reads or cancels what comes of it: the adapter has seen that the socket is closed.
      body!()
      const pings = set.mock.results.filter((_, call) => set.mock.calls[call]![1] === pingMs)
      expect(pings).toHaveLength(1)
      expect(clear.mock.calls.map(([timer]) => timer)).toContain(pings[0]!.value)
      expect(returned).toHaveBeenCalled()
    } finally {
      set.mockRestore()
      clear.mockRestore()
    }
  })

  it('STREAM-15: a subscription that the client cannot be sent is closed: 406 and no live source', async () => {
    for (const accept of ['application/json', 'application/graphql-response+json', 'text/html']) {
      const response = await fetch(served.endpoint, {
        method: 'POST',
        headers: { 'content-type': 'application/json', accept },
        body: JSON.stringify({ query: watch() }),
      })
      expect(response.status).toBe(406)
    }
    expect(listeners()).toBe(0)
  })

  it('STREAM-21: unknown session, negative cursor, cursor ahead: one error with its code, then the end', async () => {
    const cases = [
      ['subscription { sessionEvents(sessionId: "ses_unknown01") { seq } }', 'NOT_FOUND'],
      [watch(-1), 'BAD_USER_INPUT'],
      [watch(4), 'CURSOR_AHEAD'],
    ] as const
    const client = createClient({ url: served.endpoint.replace('http', 'ws'), webSocketImpl: WebSocket })
    for (const [query, code] of cases) {
      expect(await collect(client.iterate({ query }))).toMatchObject([{ errors: [{ extensions: { code } }] }])
      const text = await (await sse(query)).text()
      expect(text.match(/event: next/g)).toHaveLength(1)
      expect(text).toContain(`"code":"${code}"`)
      expect(text).toContain('event: complete')
    }
    await client.dispose()
    expect(listeners()).toBe(0)
  })

  it('STREAM-22: sessionActivity gives the session as it is committed', async () => {
    const client = createClient({ url: served.endpoint.replace('http', 'ws'), webSocketImpl: WebSocket })
    const items = client.iterate({ query: 'subscription { sessionActivity { id seq status inputs { id } } }' })
    const first = items.next()
    await soon(async () => {
      await served.append('ses_http00001', admitted(`msg_act${Math.random().toString(36).slice(2).padEnd(8, '0')}`))
      expect(await Promise.race([first, new Promise((resolve) => setTimeout(resolve, 100))])).toBeDefined()
    })
    const { value } = await first
    expect(value).toMatchObject({ data: { sessionActivity: { id: 'ses_http00001', status: 'RUNNING' } } })
    await items.return!()
    await client.dispose()
  })
})

describe('pages', () => {
  it('OPS-06: /healthz is good, /readyz says what is missing', async () => {
    const ask = async (path: string) => {
      const response = await fetch(served.server.url + path)
      return [response.status, await response.text()] as const
    }
    expect(await ask('healthz')).toEqual([200, 'ok\n'])
    expect(await ask('readyz')).toEqual([200, 'ready\n'])
    const { db } = served.core
    await db.$executeRaw`ALTER TABLE _prisma_migrations RENAME TO hidden`
    // An answer stands for a quarter of a second.
    const says = (answer: unknown) => vi.waitFor(async () => expect(await ask('readyz')).toEqual(answer), 5000)
    await says([503, expect.stringContaining('migrations are missing')])
    await db.$executeRaw`ALTER TABLE hidden RENAME TO _prisma_migrations`
    const spy = vi.spyOn(db, '$queryRaw').mockRejectedValue(new Error('no route to db:5432') as never)
    await says([503, 'the database cannot be reached\n'])
    expect(await ask('healthz')).toEqual([200, 'ok\n'])
    spy.mockRestore()
    await says([200, 'ready\n'])
  })

  it('PROMISE-233: however often somebody asks whether it is ready, the database is asked a few times a second', async () => {
    const spy = vi.spyOn(served.core.db, '$queryRaw')
    const begun = performance.now()
    await Promise.all(Array.from({ length: 200 }, () => fetch(`${served.server.url}readyz`).then((got) => got.text())))
    const looks = 2 + Math.ceil((performance.now() - begun) / 250)
    // Three statements for each look.
    expect(spy.mock.calls.length).toBeLessThanOrEqual(3 * looks)
    spy.mockRestore()
  })

  it('OPS-01: the start page names the paths; GraphiQL loads nothing from elsewhere', async () => {
    const page = await (await fetch(served.server.url)).text()
    for (const path of ['/graphiql', '/graphql', '/healthz', '/readyz', '/metrics']) expect(page).toContain(path)
    const explorer = await (await fetch(`${served.server.url}graphiql`)).text()
    expect(explorer).toContain('Holdfast GraphiQL')
    expect(explorer.match(/<(script|link)[^>]+(src|href)="?https?:/g)).toBeNull()
    expect((await fetch(`${served.server.url}nothing`)).status).toBe(404)
  })

  it('OPS-07: /metrics is in the text format', async () => {
    const response = await fetch(`${served.server.url}metrics`)
    expect(response.headers.get('content-type')).toContain('text/plain')
    expect(await response.text()).toContain('# TYPE holdfast_')
  })
})

function sse(query: string, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(served.endpoint, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'text/event-stream', ...headers },
    body: JSON.stringify({ query }),
  })
}

/** Reads until the text has come, then goes away. */
async function until(response: Response, text: string): Promise<string> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  let read = ''
  while (!read.includes(text)) {
    const { done, value } = await reader.read()
    if (done) throw new Error(`the stream ended without ${text}: ${read}`)
    read += value
  }
  await reader.cancel()
  return read
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

function bigPost(bytes: number, announced: boolean): Promise<{ status: number | undefined; body: string }> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', ...(announced && { 'content-length': bytes }) }
    const sent = request(served.endpoint, { method: 'POST', headers }, (response) => {
      let body = ''
      response.on('data', (chunk) => {
        body += chunk
      })
      response.on('end', () => {
        resolve({ status: response.statusCode, body })
        sent.destroy()
      })
    })
    // The server may close while we are still sending.
    sent.on('error', (error) => setTimeout(reject, 2000, error))
    sent.write('{"query":"')
    const chunk = Buffer.alloc(1_000_000, 'x')
    const more = (left: number) => {
      if (left <= 0 || sent.destroyed) sent.end()
      else sent.write(chunk, () => more(left - chunk.length))
    }
    more(bytes - 10)
  })
}
