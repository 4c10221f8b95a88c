// Requests that are wrong in some way get an answer that says so; none costs others anything, and none leaves a stream behind.
import { type IncomingHttpHeaders, request } from 'node:http'
import { connect } from 'node:net'
import { brotliDecompressSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { openSocket } from '../conformance/websocket.ts'
import { activityStream } from '../src/activity-stream.ts'
import { event } from '../src/events.ts'
import { createJsonParser } from '../src/http/json.ts'
import { isForeign } from '../src/http/origin.ts'
import { checkAttachment } from '../src/runner/attachment.ts'
import { sessionStream } from '../src/session-stream.ts'
import { type Answer, type Served, serveLog } from './support/served.ts'

const sessionId = 'ses_requests01'
const watch = `subscription { sessionEvents(sessionId: "${sessionId}") { __typename seq } }`

let served: Served
beforeAll(async () => {
  served = await serveLog()
  const created = { tenant: 'default', title: null, instructions: null, model: 'demo/echo' }
  await served.append(sessionId, event('session.created', created))
})
afterAll(() => served?.close())

const soon = <T>(look: () => T | Promise<T>) => vi.waitFor(look, { timeout: 30_000, interval: 20 })
const json = { 'content-type': 'application/json' }
const post = (body: string, headers: Record<string, string> = {}) =>
  fetch(served.endpoint, { method: 'POST', headers: { ...json, ...headers }, body })
const errorOf = async (response: Response) => {
  const answer = (await response.json()) as Answer
  return {
    status: response.status,
    code: answer.errors?.[0]?.extensions.code,
    message: answer.errors?.[0]?.message ?? '',
  }
}
/** On a connection of its own, and read as it comes: the page is large, and unpacking it takes a slow machine long. */
const getOnce = (url: string, headers: Record<string, string>, method = 'GET') =>
  new Promise<{ status: number | undefined; headers: IncomingHttpHeaders; body: Buffer }>((resolve, reject) => {
    const sent = request(url, { method, headers, agent: false }, (response) => {
      const body: Buffer[] = []
      response.on('data', (bytes: Buffer) => body.push(bytes)).on('error', reject)
      response.on('end', () =>
        resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(body) }),
      )
    })
    sent.on('error', reject).end()
  })
const socket = () => openSocket({ endpoint: served.endpoint, token: null, model: 'demo/echo' })

const count = async (which: 'streamsOpened' | 'streamsEnded') =>
  (await served.core.metrics[which].get()).values[0]?.value ?? 0
const open = async () => (await count('streamsOpened')) - (await count('streamsEnded'))

interface Item {
  id?: string
  payload?: { data?: { sessionEvents: { __typename: string; seq: number | null } } }
}

describe('every stream that is opened is ended, once', () => {
  it('PROMISE-200: a subscription in a batch is refused with a code, and its neighbours are answered', async () => {
    const before = await count('streamsOpened')
    for (const accept of ['application/json', 'text/event-stream', '*/*']) {
      const response = await post(JSON.stringify([{ query: watch }, { query: '{ __typename }' }]), { accept })
      if (accept === 'text/event-stream') {
        await response.text()
        continue
      }
      const [refused, answered] = (await response.json()) as Answer[]
      expect(refused?.errors?.[0]).toMatchObject({ extensions: { code: 'BAD_USER_INPUT' } })
      expect(refused?.errors?.[0]?.message).toContain('batch')
      expect(answered?.data).toEqual({ __typename: 'Query' })
    }
    expect(await count('streamsOpened')).toBe(before)
  })

  /** HOLDFAST_ODD_ENDS=10000 for the long run. */
  const times = Number(process.env.HOLDFAST_ODD_ENDS ?? 100)
  const atOnce = 20
  const many = async (once: (n: number) => Promise<unknown>) => {
    for (let n = 0; n < times; n += atOnce)
      await Promise.all(Array.from({ length: Math.min(atOnce, times - n) }, (_, k) => once(n + k)))
  }
  const queries = [watch, 'subscription { sessionActivity { id } }']
  const query = (n: number) => queries[n % queries.length]!
  const sources = () => served.core
  const iterators = [
    () => sessionStream(sources(), { sessionId, after: 0 }),
    () => activityStream(sources(), { tenant: 'default' }),
  ]
  const iterator = (n: number) => iterators[n % iterators.length]!()
  /** What comes behind a stream on one connection is carried out, and can be answered only after it. */
  async function pipeline(n: number): Promise<void> {
    const { hostname, port } = new URL(served.endpoint)
    const requests = [query(n), '{ sessions { edges { node { id } } } }', query(n + 1)].map(
      (text) =>
        `GET /graphql?query=${encodeURIComponent(text)} HTTP/1.1\r\nhost: ${hostname}\r\naccept: text/event-stream, application/json\r\nx-requested-with: x\r\n\r\n`,
    )
    const line = connect(Number(port), hostname)
    line.on('error', () => {})
    line.resume()
    line.write(requests.join(''))
    await soon(async () => expect(served.core.bytes.held()).toBeGreaterThan(0))
    line.destroy()
  }
  const ways: Record<string, (n: number) => Promise<unknown>> = {
    'requests behind a stream on one connection': pipeline,
    'a batch': async (n) => (await post(JSON.stringify([{ query: query(n) }, { query: query(n) }]))).text(),
    'an Accept that no stream fits': async (n) =>
      (await post(JSON.stringify({ query: query(n) }), { accept: 'application/json' })).text(),
    'GET with such an Accept': async (n) =>
      (
        await fetch(`${served.endpoint}?query=${encodeURIComponent(query(n))}`, { headers: { accept: 'text/html' } })
      ).text(),
    HEAD: async (n) => fetch(`${served.endpoint}?query=${encodeURIComponent(query(n))}`, { method: 'HEAD' }),
    'a client that has gone before the first item': async (n) => {
      const gone = new AbortController()
      const asked = fetch(served.endpoint, {
        method: 'POST',
        headers: { ...json, accept: 'text/event-stream' },
        body: JSON.stringify({ query: query(n) }),
        signal: gone.signal,
      }).catch(() => {})
      setTimeout(() => gone.abort(), n % 10)
      await asked
    },
    'an unknown session': async () =>
      (
        await post(JSON.stringify({ query: 'subscription { sessionEvents(sessionId: "ses_nowhere001") { seq } }' }), {
          accept: 'text/event-stream',
        })
      ).text(),
    'return() before next()': (n) => iterator(n).return!(),
    'throw()': (n) => iterator(n).throw!(new Error('odd')).catch(() => {}),
    'return() twice, while next() waits': async (n) => {
      const stream = iterator(n)
      const waits = [stream.next(), stream.next(), stream.next()]
      await Promise.all([stream.return!(), stream.return!()])
      await Promise.all(waits)
    },
    'a signal that has aborted': async (n) =>
      n % 2 === 0
        ? sessionStream(sources(), { sessionId, after: 0, signal: AbortSignal.abort() })
        : activityStream(sources(), { tenant: 'default', signal: AbortSignal.abort() }),
  }
  /** Many on one socket, as clients do. */
  const onSocket: Record<string, (on: Awaited<ReturnType<typeof socket>>, n: number) => void> = {
    'complete before the first item': (on, n) => {
      on.send({ type: 'subscribe', id: `c${n}`, payload: { query: query(n) } })
      on.send({ type: 'complete', id: `c${n}` })
    },
    'an id that is used again after complete': (on, n) => {
      for (let again = 0; again < 3; again++) {
        on.send({ type: 'subscribe', id: `r${n}`, payload: { query: query(n) } })
        on.send({ type: 'complete', id: `r${n}` })
      }
    },
    'a socket that dies': (on, n) => on.send({ type: 'subscribe', id: `d${n}`, payload: { query: query(n) } }),
  }

  const nothingLeft = () =>
    soon(async () => {
      expect(await open()).toBe(0)
      expect(served.core.doorbell.listeners()).toBe(0)
      expect(served.core.bytes.held()).toBe(0)
    })

  it.each(Object.keys(ways))('PROMISE-201: nothing is left of %s', async (way) => {
    await many(ways[way]!)
    await nothingLeft()
  })

  it.each(Object.keys(onSocket))('PROMISE-201: nothing is left of %s', async (way) => {
    for (let n = 0; n < times; n += atOnce) {
      const on = await socket()
      for (let k = n; k < Math.min(n + atOnce, times); k++) onSocket[way]!(on, k)
      // Its messages have been read when a later one is answered.
      on.send({ type: 'subscribe', id: 'last', payload: { query: '{ __typename }' } })
      await on.received.until('the last answer', () =>
        on.received.all.some(({ id, type }) => id === 'last' && type === 'complete'),
      )
      on.close()
    }
    await nothingLeft()
  })

  it('PROMISE-202: an id used again after complete is another operation: each event comes once under it', async () => {
    const on = await socket()
    for (let n = 0; n < 20; n++) {
      on.send({ type: 'subscribe', id: 'same', payload: { query: watch } })
      if (n < 19) on.send({ type: 'complete', id: 'same' })
    }
    const all = on.received.all as readonly Item[]
    const items = () => all.filter(({ id }) => id === 'same').map(({ payload }) => payload?.data?.sessionEvents)
    await soon(() => expect(items().at(-1)?.__typename).toBe('LogSynced'))
    await soon(() => expect(served.core.doorbell.listeners()).toBe(1))
    const seen = items().length
    const { seq } = await served.append(
      sessionId,
      event('session.updated', { title: 'once', instructions: null, model: 'demo/echo', archived: false }),
    )
    on.send({ type: 'subscribe', id: 'after', payload: { query: '{ __typename }' } })
    await soon(() => expect(items().length).toBeGreaterThan(seen))
    expect(
      items()
        .slice(seen)
        .map((item) => item?.seq),
    ).toEqual([seq])
    on.close()
    await nothingLeft()
  })
})

describe('errors of the request', () => {
  /** What one connection answers to these requests, each sent when the one before has its answer. */
  const raw = (requests: string[]) =>
    new Promise<string>((resolve) => {
      let received = ''
      let asked = 0
      const next = () => (asked === requests.length ? line.destroy() : line.write(requests[asked++]!))
      const line = connect(Number(new URL(served.endpoint).port), '127.0.0.1', next)
      line.on('data', (data) => {
        received += data.toString()
        if (received.endsWith('}')) next()
      })
      line.on('close', () => resolve(received))
    })

  it('PROMISE-240: a request that offers to go on in HTTP/2 is served as HTTP/1.1, and the connection stays', async () => {
    const body = '{"query":"{ __typename }"}'
    const offer =
      'host: 127.0.0.1\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAA\r\n'
    const posted = `POST /graphql HTTP/1.1\r\n${offer}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`
    const got = `GET /graphql?query=%7B__typename%7D HTTP/1.1\r\n${offer}\r\n`
    const received = await raw([posted, got, posted])
    expect(received.match(/HTTP\/1\.1 200/g)).toHaveLength(3)
    expect(received.match(/"__typename":"Query"/g)).toHaveLength(3)
  })

  it('PROMISE-241: one bad part of a query leaves the fields beside it to their end', async () => {
    for (let n = 0; n < 5; n++) {
      const { errors } = await served.ask(
        `{ session(id: "${sessionId}") { title events { seq } messages { edges { cursor } } } quarantine(first: 1000) { __typename } }`,
      )
      expect(errors?.map(({ extensions }) => extensions.code)).toEqual(['BAD_USER_INPUT'])
    }
  })

  const half = '\\ud800'
  const cursor = Buffer.from(`["sessions","2026-01-01T00:00:00.000Z","${half}"]`).toString('base64url')
  const wrong: [string, () => Promise<Response>, number | null, string, RegExp][] = [
    [
      'GET with broken variables',
      () => fetch(`${served.endpoint}?query={__typename}&variables={`),
      400,
      'BAD_REQUEST',
      /variables/,
    ],
    [
      'GET with broken extensions',
      () => fetch(`${served.endpoint}?query={__typename}&extensions=x`),
      400,
      'BAD_REQUEST',
      /extensions/,
    ],
    [
      'half a surrogate pair in an id',
      () => post(`{"query":"query($i:ID!){session(id:$i){id}}","variables":{"i":"${half}"}}`),
      null,
      'BAD_USER_INPUT',
      /id must be well-formed/,
    ],
    [
      'half a surrogate pair in a search',
      () => post(`{"query":"query($i:String){sessions(search:$i){__typename}}","variables":{"i":"${half}"}}`),
      null,
      'BAD_USER_INPUT',
      /search must be/,
    ],
    [
      'half a surrogate pair in a cursor',
      () => post(JSON.stringify({ query: `{sessions(after:"${cursor}"){__typename}}` })),
      null,
      'BAD_USER_INPUT',
      /cursor/,
    ],
    [
      'half a surrogate pair in an id of a mutation',
      () =>
        post(
          `{"query":"mutation($i:ID!){withdrawPrompt(input:{sessionId:$i,messageId:$i}){__typename}}","variables":{"i":"${half}"}}`,
        ),
      null,
      'BAD_USER_INPUT',
      /input\.\w+Id must be/,
    ],
    [
      'half a surrogate pair in an id of a subscription',
      () => post(`{"query":"subscription($i:ID!){sessionEvents(sessionId:$i){seq}}","variables":{"i":"${half}"}}`),
      null,
      'BAD_USER_INPUT',
      /sessionId must be/,
    ],
    [
      '@skip on the only field of a subscription',
      () => post(`{"query":"subscription{sessionActivity @skip(if:true){id}}"}`),
      null,
      'GRAPHQL_VALIDATION_FAILED',
      /@skip/,
    ],
    [
      '@include in a fragment there',
      () => post(`{"query":"subscription{...f} fragment f on Subscription{sessionActivity @include(if:false){id}}"}`),
      null,
      'GRAPHQL_VALIDATION_FAILED',
      /@include/,
    ],
    [
      'a persisted query',
      () => post('{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"00"}}}'),
      400,
      'PERSISTED_QUERY_NOT_SUPPORTED',
      /persisted queries/,
    ],
    [
      'an Accept that nothing fits',
      () => post('{"query":"{__typename}"}', { accept: 'image/png' }),
      406,
      'NOT_ACCEPTABLE',
      /application\/json/,
    ],
    [
      'another Content-Type',
      () => post('{"query":"{__typename}"}', { 'content-type': 'text/plain' }),
      415,
      'BAD_REQUEST',
      /Content-Type: must be application\/json/,
    ],
    [
      'a compressed body',
      () => post('{"query":"{__typename}"}', { 'content-encoding': 'gzip' }),
      415,
      'BAD_REQUEST',
      /Content-Encoding/,
    ],
    ['JSON that is none', () => post('{"query": hunter2'), null, 'BAD_REQUEST', /^the body is not valid JSON$/],
    [
      'a document without end',
      () => post(JSON.stringify({ query: `{__typename}#${'x'.repeat(4_600_000)}` })),
      null,
      'DOCUMENT_TOO_LARGE',
      /characters/,
    ],
  ]
  it.each(wrong)('PROMISE-242: %s is told so', async (_, ask, status, code, message) => {
    const found = await errorOf(await ask())
    expect(found).toMatchObject({ code, message: expect.stringMatching(message) })
    if (status !== null) expect(found.status).toBe(status)
    expect(JSON.stringify(found)).not.toContain('hunter2')
  })

  it('PROMISE-243: what goes wrong before there is an operation has the request’s own id, in header, answer and log', async () => {
    const get = vi.spyOn(URLSearchParams.prototype, 'get').mockImplementationOnce(() => {
      throw new TypeError('hunter2')
    })
    const response = await fetch(`${served.endpoint}?query={__typename}`, { headers: { 'x-request-id': 'mine-17' } })
    const { errors } = (await response.json()) as Answer
    expect(get).toHaveBeenCalled()
    get.mockRestore()
    expect(response.headers.get('x-request-id')).toBe('mine-17')
    expect(errors?.[0]).toMatchObject({ extensions: { code: 'INTERNAL_SERVER_ERROR', requestId: 'mine-17' } })
    expect(served.logged().some(({ requestId }) => requestId === 'mine-17')).toBe(true)
  })

  it('PROMISE-244: the page of this server is let in, in capitals and with or without the port that goes without saying', () => {
    const foreign = (origin: string, host: string) => isForeign({ headers: { origin, host } } as never)
    for (const [origin, host] of [
      ['https://localhost', 'localhost:443'],
      ['http://localhost', 'LOCALHOST:80'],
      ['http://LocalHost:4000', 'localhost:4000'],
      ['https://[::1]', '[::1]:443'],
    ] as const)
      expect(foreign(origin, host), `${origin} ${host}`).toBe(false)
    for (const [origin, host] of [
      ['https://localhost', 'localhost:80'],
      ['http://localhost', 'localhost:443'],
      ['http://localhost:1', 'localhost'],
      ['http://localhost', 'evil@localhost'],
      ['null', 'localhost'],
    ] as const)
      expect(foreign(origin, host), `${origin} ${host}`).toBe(true)
  })
})

describe('large requests', () => {
  const values = `{"query":"{__typename}","variables":{"s":[${'"IDLE",'.repeat(60_000)}"IDLE"]}}`

  it('PROMISE-220: a request with more values than texts is refused while it arrives', async () => {
    const found = await errorOf(await post(values))
    expect(found).toMatchObject({
      status: 413,
      code: 'REQUEST_ENTITY_TOO_LARGE',
      message: expect.stringContaining('texts and attachments'),
    })
    // Long before its end: the rest never comes.
    const answered = await new Promise<string>((resolve) => {
      const line = connect(Number(new URL(served.endpoint).port), '127.0.0.1', () =>
        line.write(
          `POST /graphql HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 30000000\r\n\r\n${values}`,
        ),
      )
      line.once('data', (data) => {
        line.destroy()
        resolve(String(data))
      })
    })
    expect(answered).toContain('413')
  })

  it('PROMISE-220: one that is nested deeper than anything needs is refused too', async () => {
    const nested = `${'['.repeat(2000)}${']'.repeat(2000)}`
    const found = await errorOf(await post(`{"query":"{__typename}","variables":{"s":${nested}}}`))
    expect(found).toMatchObject({ status: 413, message: expect.stringContaining('levels') })
    const shallow = `[${'[],'.repeat(2000)}[]]`
    expect((await post(`{"query":"{__typename}","variables":{"s":${shallow}}}`)).status).toBe(200)
  })

  it('PROMISE-220: over WebSocket too, at the cost of its own socket', async () => {
    const client = new WebSocket(served.endpoint.replace('http', 'ws'), 'graphql-transport-ws')
    await new Promise((resolve) => client.once('open', resolve))
    client.send('{"type":"connection_init"}')
    await new Promise((resolve) => client.once('message', resolve))
    const closed = new Promise<number>((resolve) => client.once('close', resolve))
    client.send(`{"type":"subscribe","id":"1","payload":${values}}`)
    expect(await closed).toBe(1009)
  })

  it('PROMISE-220: long texts are taken, over HTTP and WebSocket, and what is asked meanwhile keeps its order', async () => {
    const variables = { text: `${'ä"\\'.repeat(200_000)}` }
    expect((await served.ask('{ __typename }', variables)).data).toEqual({ __typename: 'Query' })
    const on = await socket()
    on.send({ type: 'subscribe', id: 'long', payload: { query: watch, variables } })
    on.send({ type: 'complete', id: 'long' })
    on.send({ type: 'subscribe', id: 'short', payload: { query: '{ __typename }' } })
    await on.received.until('short', () =>
      on.received.all.some(({ id, type }) => id === 'short' && type === 'complete'),
    )
    await soon(async () => expect(await open()).toBe(0))
    on.close()
  })

  it('PROMISE-221: a large text is parsed in another thread; what is no JSON is told without quoting it, and a thread that died is replaced', async () => {
    const parser = createJsonParser({ inlineMax: 10 })
    const bytes = (text: string) => new TextEncoder().encode(text)
    const here = vi.spyOn(JSON, 'parse')
    expect(await parser.parse(bytes('{"a":[1,"ä\\u0000",null]}'))).toEqual({ a: [1, 'ä\0', null] })
    await expect(parser.parse(bytes('{"a": hunter2 }'))).rejects.toThrow(expect.not.stringContaining('hunter2'))
    // Others of this process may read JSON meanwhile.
    expect(here.mock.calls.filter(([text]) => /null|hunter2/.test(text))).toEqual([])
    here.mockRestore()
    // Long enough that it cannot be done before it is told to end.
    const waits = parser.parse(bytes(`[${'1,'.repeat(5_000_000)}1]`))
    await Promise.all([expect(waits).rejects.toThrow('has ended'), parser.close()])
    expect(await parser.parse(bytes('[1,2,3,4,5,6]'))).toEqual([1, 2, 3, 4, 5, 6])
    await parser.close()
  })

  it('PROMISE-222: a long attachment is looked at slice by slice, wherever a slice ends, and others get their turn', async () => {
    const at = (url: string) => checkAttachment({ name: 'a', mediaType: 'text/plain', url: `data:text/plain,${url}` })
    let turns = 0
    const timer = setInterval(() => turns++)
    for (let n = 0; n < 13; n++) {
      expect(await at(`${'x'.repeat(999_990 + n)}%F0%9F%98%80${'y'.repeat(20)}`), String(n)).toHaveProperty('bytes')
      expect(await at(`${'x'.repeat(999_990 + n)}%F0%9F%98${'y'.repeat(20)}`), String(n)).toHaveProperty('rule')
    }
    expect(turns).toBeGreaterThan(0)
    clearInterval(timer)
    expect(await at('%C3%A4'.repeat(400_000))).toHaveProperty('bytes')
    expect(await at(`${'%C3%A4'.repeat(400_000)}%`)).toHaveProperty('rule')
  })
})

describe('GraphiQL', () => {
  it('PROMISE-232: its page is made once, sent compressed, and not again to who has it', async () => {
    const at = `${served.server.url}graphiql`
    const packed = () => getOnce(at, { 'accept-encoding': 'br' })
    // Until it is compressed it is sent as it is.
    let first = await packed()
    await vi.waitFor(
      async () => {
        if (first.headers['content-encoding'] !== 'br') first = await packed()
        expect(first.headers['content-encoding']).toBe('br')
      },
      { timeout: 100_000, interval: 500 },
    )
    expect(Number(first.headers['content-length'])).toBeLessThan(4_000_000)
    expect(brotliDecompressSync(first.body).toString()).toContain('Holdfast GraphiQL')
    const { etag } = first.headers
    expect(etag).toBeTruthy()
    const again = await getOnce(at, { 'if-none-match': etag! })
    expect([again.status, again.body.length]).toEqual([304, 0])
    expect((await getOnce(at, {}, 'HEAD')).headers.etag).toBe(etag)
  }, 120_000)
})
