// What a connection may take of the process before anybody is known to stand behind it, and when its peer does not read.
import { connect, type Socket } from 'node:net'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { event } from '../src/events.ts'
import { type Served, serveLog } from './support/served.ts'

const key = 'a'.repeat(24)
/** Small where bytes are counted, and as patient as can be. */
const bounds = { bodiesBytes: 50_000, firstBytes: 4000, initMs: 60_000, unsentBytes: 20_000, unsentMessages: 50 }
const deadlines = { initMs: 400, headersMs: 400, requestMs: 800, lookMs: 50 }
const env = { HOLDFAST_MAX_UNAUTHENTICATED: '3', HOLDFAST_API_KEYS: `${key}:default` }

let served: Served
/** One that has no patience. */
let hasty: Served
beforeAll(async () => {
  const both = [
    serveLog({ bounds, env }),
    serveLog({ pingMs: 1000, bounds: deadlines, env: { ...env, HOLDFAST_STALL_MS: '100' } }),
  ]
  ;[served, hasty] = (await Promise.all(both)) as [Served, Served]
  const created = { tenant: 'default', title: null, instructions: null, model: 'demo/echo' }
  await hasty.append('ses_edge00001', event('session.created', created))
})
afterAll(() => Promise.all([served?.close(), hasty?.close()]))

const soon = <T>(look: () => T) => vi.waitFor(look, { timeout: 30_000 })

/** Connections that were ended for this reason so far. */
const ended = async (why: string, by = served) =>
  (await by.core.metrics.endedConnections.get()).values.find(({ labels }) => labels.why === why)?.value ?? 0

async function upgraded(by = served): Promise<{ client: WebSocket; closed: Promise<number> }> {
  const client = new WebSocket(by.endpoint.replace('http', 'ws'), 'graphql-transport-ws')
  client.on('error', () => {})
  const closed = new Promise<number>((resolve) => client.once('close', resolve))
  await new Promise((resolve) => client.once('open', resolve))
  return { client, closed }
}

/** One that is acknowledged. */
async function greeted(by = served): Promise<WebSocket> {
  const { client } = await upgraded(by)
  const acknowledged = new Promise((resolve) => client.once('message', resolve))
  client.send(JSON.stringify({ type: 'connection_init', payload: { authToken: key } }))
  await acknowledged
  return client
}

async function raw(text: string, by = hasty): Promise<{ socket: Socket; closed: Promise<void>; received(): string }> {
  const socket = connect(Number(new URL(by.endpoint).port), '127.0.0.1')
  let received = ''
  socket.on('data', (data) => {
    received += data.toString('latin1')
  })
  socket.on('error', () => {})
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()))
  await new Promise((resolve) => socket.once('connect', resolve))
  socket.write(text)
  return { socket, closed, received: () => received }
}

const host = 'host: 127.0.0.1\r\n'

describe('before a caller is known', () => {
  const floods: [string, (client: WebSocket) => void][] = [
    ['one message', (client) => client.send('x'.repeat(bounds.firstBytes + 1))],
    [
      'fragments of a message that has no end',
      (client) => {
        for (let n = 0; n < 100; n++) client.send('x'.repeat(100), { fin: false })
      },
    ],
    [
      'small messages',
      (client) => {
        for (let n = 0; n < 1000; n++) client.send('{"type":"ping"}')
      },
    ],
    [
      'empty frames',
      (client) => {
        for (let n = 0; n < 1000; n++) client.ping('')
      },
    ],
  ]
  it.each(floods)('PROMISE-170: a WebSocket that sends more than its first bytes is ended: %s', async (_, flood) => {
    const before = await ended('first bytes')
    const { client, closed } = await upgraded()
    flood(client)
    expect(await closed).toBe(1009)
    expect(await ended('first bytes')).toBe(before + 1)
  })

  it('PROMISE-170: once it is acknowledged it may send more', async () => {
    const client = await greeted()
    const answered = new Promise<string>((resolve) => client.once('message', (data) => resolve(String(data))))
    client.send(JSON.stringify({ type: 'ping', payload: { text: 'x'.repeat(2 * bounds.firstBytes) } }))
    expect(JSON.parse(await answered).type).toBe('pong')
    client.terminate()
  })

  it('PROMISE-171: a WebSocket that says no hello is ended, also if it does not answer the goodbye', async () => {
    const key = 'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n'
    const { closed, received } = await raw(
      `GET /graphql HTTP/1.1\r\n${host}connection: upgrade\r\nupgrade: websocket\r\n${key}sec-websocket-protocol: graphql-transport-ws\r\n\r\n`,
    )
    await closed
    expect(received()).toContain('101 Switching Protocols')
    expect(received()).toContain('Connection initialisation timeout')
  })

  it('PROMISE-172: one connection too many ends the oldest of those whose caller is unknown, and none of the others', async () => {
    const client = await greeted()
    const before = await ended('crowd')
    const crowd = []
    for (let n = 0; n < 6; n++) crowd.push(await raw('GET /graphql HTTP/1.1\r\n', served))
    await crowd[0]!.closed
    await crowd[1]!.closed
    expect(await ended('crowd')).toBeGreaterThanOrEqual(before + 3)
    expect((await served.ask('{ __typename }', undefined, { authorization: `Bearer ${key}` })).data).toEqual({
      __typename: 'Query',
    })
    expect(client.readyState).toBe(WebSocket.OPEN)
    client.terminate()
    for (const { socket } of crowd) socket.destroy()
  })

  it('PROMISE-173: headers and bodies that do not come to an end in time end their connection; a stream goes on', async () => {
    const authorization = `authorization: Bearer ${key}\r\n`
    const query = encodeURIComponent('subscription { sessionEvents(sessionId: "ses_edge00001") { seq } }')
    const stream = await raw(
      `GET /graphql?query=${query} HTTP/1.1\r\n${host}${authorization}accept: text/event-stream\r\n\r\n`,
    )
    await soon(() => expect(stream.received()).toContain('"seq":1'))
    const slowHeaders = await raw(`GET /graphql HTTP/1.1\r\n${host}x-slow: `)
    const slowBody = await raw(
      `POST /graphql HTTP/1.1\r\n${host}${authorization}content-type: application/json\r\ncontent-length: 1000\r\n\r\n{`,
    )
    await Promise.all([slowHeaders.closed, slowBody.closed])
    for (const { received } of [slowHeaders, slowBody]) expect(received()).toContain('408 Request Timeout')
    await hasty.append(
      'ses_edge00001',
      event('session.updated', { title: 'still there', instructions: null, model: 'demo/echo', archived: false }),
    )
    await soon(() => expect(stream.received()).toContain('"seq":2'))
    stream.socket.destroy()
  })
})

describe('bodies', () => {
  it('PROMISE-175: those that are under way have a bound together; one too many is told to come again, and when they have gone there is room', async () => {
    const slow = Array.from({ length: 2 }, () =>
      raw(
        `POST /graphql HTTP/1.1\r\n${host}authorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: 39000000\r\n\r\n{"query":"${'x'.repeat(20_000)}`,
        served,
      ),
    )
    const lines = await Promise.all(slow)
    const ask = () =>
      served.ask(
        '{ __typename }',
        { text: 'x'.repeat(20_000) },
        { authorization: `Bearer ${key}`, connection: 'close' },
      )
    await vi.waitFor(
      async () =>
        expect((await ask()).errors?.[0]?.extensions).toMatchObject({ code: 'OVERLOADED', retryAfterMs: 1000 }),
      { timeout: 30_000 },
    )
    for (const { socket } of lines) socket.destroy()
    await vi.waitFor(async () => expect((await ask()).data).toEqual({ __typename: 'Query' }), { timeout: 30_000 })
  })
})

describe('a peer that does not read', () => {
  it('PROMISE-174: an answer over HTTP of which no byte is taken is given up', async () => {
    const before = await ended('unread', hasty)
    const { socket } = await raw('')
    socket.pause()
    // Larger together than what the kernel takes in.
    socket.write(`GET /graphiql HTTP/1.1\r\n${host}\r\n`.repeat(4))
    await vi.waitFor(async () => expect(await ended('unread', hasty)).toBeGreaterThan(before), { timeout: 30_000 })
    socket.destroy()
  })

  it('PROMISE-230: a WebSocket whose peer asks on and reads nothing is not read from, and ended', async () => {
    const before = await ended('unread', hasty)
    const client = await greeted(hasty)
    client.pause()
    const ping = JSON.stringify({ type: 'ping', payload: { text: 'x'.repeat(100_000) } })
    for (let n = 0; n < 400; n++) client.send(ping)
    let left = 0
    await vi.waitFor(
      async () => {
        if (client.readyState === WebSocket.OPEN) left = client.bufferedAmount
        expect(await ended('unread', hasty)).toBeGreaterThan(before)
      },
      { timeout: 30_000 },
    )
    // Beyond what the kernel of each side takes in, the pings have stayed with the client.
    expect(left).toBeGreaterThan(10_000_000)
    client.terminate()
  })

  it('PROMISE-231: a WebSocket whose peer reads again gets everything that it has asked for', async () => {
    const client = await greeted()
    const ping = JSON.stringify({ type: 'ping', payload: { text: 'x'.repeat(10_000) } })
    let pongs = 0
    client.on('message', () => pongs++)
    for (let n = 0; n < 500; n++) client.send(ping)
    await soon(() => expect(pongs).toBe(500))
    client.terminate()
  })
})
