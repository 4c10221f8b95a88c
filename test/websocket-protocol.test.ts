// graphql-transport-ws as it is on the wire: a raw client that keeps the protocol, and ones that break it (STREAM-20).
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { event } from '../src/events.ts'
import { type Served, serveLog } from './support/served.ts'

const sessionId = 'ses_rawsocket1'
const watch = `subscription ($after: Int) { sessionEvents(sessionId: "${sessionId}", after: $after) { __typename seq } }`

let served: Served
beforeAll(async () => {
  served = await serveLog()
  const created = { tenant: 'default', title: null, instructions: null, model: 'demo/echo' }
  await served.append(sessionId, event('session.created', created))
})
afterAll(() => served?.close())

const titled = (title: string) =>
  served.append(sessionId, event('session.updated', { title, instructions: null, model: 'demo/echo', archived: false }))

interface Message {
  type: string
  id?: string
  // biome-ignore lint/suspicious/noExplicitAny: whatever the server has sent
  payload?: any
}

interface Raw {
  socket: WebSocket
  received: Message[]
  send(message: unknown): void
  /** The n-th message of this type, and id if given. */
  got(type: string, id?: string, n?: number): Promise<Message>
  closed: Promise<{ code: number; reason: string }>
}

const soon = <T>(look: () => T) => vi.waitFor(look, { timeout: 10_000 })

const opened: WebSocket[] = []
async function open(protocol: string | string[] = 'graphql-transport-ws'): Promise<Raw> {
  const socket = new WebSocket(served.endpoint.replace('http', 'ws'), protocol)
  opened.push(socket)
  const received: Message[] = []
  socket.on('message', (data) => received.push(JSON.parse(String(data)) as Message))
  socket.on('error', () => {})
  const closed = new Promise<{ code: number; reason: string }>((resolve) =>
    socket.once('close', (code, reason) => resolve({ code, reason: String(reason) })),
  )
  await new Promise<void>((resolve) => {
    socket.once('open', resolve)
    socket.once('close', () => resolve())
  })
  return {
    socket,
    received,
    closed,
    send: (message) => socket.send(typeof message === 'string' ? message : JSON.stringify(message)),
    got: (type, id, n = 1) =>
      soon(() => {
        const found = received.filter((each) => each.type === type && (id === undefined || each.id === id))[n - 1]
        if (found === undefined) throw new Error(`no ${type} ${n} in ${JSON.stringify(received)}`)
        return found
      }),
  }
}

/** One that has said hello. */
async function connected(): Promise<Raw> {
  const raw = await open()
  raw.send({ type: 'connection_init' })
  await raw.got('connection_ack')
  return raw
}

const subscribe = (raw: Raw, id: string, after = 0) =>
  raw.send({ type: 'subscribe', id, payload: { query: watch, variables: { after } } })
const listeners = () => served.core.doorbell.listeners()

beforeEach(async () => {
  for (const socket of opened.splice(0)) socket.terminate()
  await soon(() => expect(listeners()).toBe(0))
})

describe('a client that keeps the protocol', () => {
  it('STREAM-20: says hello, subscribes, and gets what is there and what comes, each message under its id', async () => {
    const raw = await connected()
    expect(raw.socket.protocol).toBe('graphql-transport-ws')
    subscribe(raw, 'one')
    await soon(() => expect(raw.received.at(-1)?.payload?.data?.sessionEvents.__typename).toBe('LogSynced'))
    expect(raw.received[1]).toEqual({
      type: 'next',
      id: 'one',
      payload: { data: { sessionEvents: { __typename: 'SessionCreated', seq: 1 } } },
    })
    const count = raw.received.length
    await titled('live')
    await soon(() => expect(raw.received).toHaveLength(count + 1))
    expect(raw.received.at(-1)).toMatchObject({
      id: 'one',
      payload: { data: { sessionEvents: { __typename: 'SessionUpdated' } } },
    })
  })

  it('STREAM-20: its ping is answered by a pong, before it has said hello too, and a pong nobody asked for is taken', async () => {
    const raw = await open()
    raw.send({ type: 'ping' })
    await raw.got('pong')
    raw.send({ type: 'connection_init' })
    await raw.got('connection_ack')
    raw.send({ type: 'ping', payload: { at: 1 } })
    expect(await raw.got('pong', undefined, 2)).toMatchObject({ payload: { at: 1 } })
    raw.send({ type: 'pong' })
    raw.send({ type: 'subscribe', id: 'q', payload: { query: '{ __typename }' } })
    await raw.got('complete', 'q')
    expect(raw.socket.readyState).toBe(WebSocket.OPEN)
  })

  it('STREAM-20: its complete ends that operation alone: nothing more comes under the id, its source is gone, and the id is free again', async () => {
    const raw = await connected()
    subscribe(raw, 'a')
    subscribe(raw, 'b')
    const synced = (id: string, from = 0) =>
      soon(() =>
        expect(
          raw.received
            .slice(from)
            .some((m) => m.id === id && m.payload?.data?.sessionEvents.__typename === 'LogSynced'),
        ).toBe(true),
      )
    await synced('a')
    await synced('b')
    expect(listeners()).toBe(2)
    raw.send({ type: 'complete', id: 'a' })
    await soon(() => expect(listeners()).toBe(1))
    const count = raw.received.length
    await titled('for b alone')
    await soon(() => expect(raw.received.length).toBeGreaterThan(count))
    expect(raw.received.slice(count).map(({ id }) => id)).toEqual(['b'])
    // A complete of what is not there is no fault.
    raw.send({ type: 'complete', id: 'nobody' })
    subscribe(raw, 'a')
    await synced('a', count)
    expect(raw.socket.readyState).toBe(WebSocket.OPEN)
    raw.socket.close(1000)
    expect((await raw.closed).code).toBe(1000)
    await soon(() => expect(listeners()).toBe(0))
  })

  it('STREAM-20: a query ends with one next and complete; one that does not parse or validate with error, and the socket goes on', async () => {
    const raw = await connected()
    raw.send({ type: 'subscribe', id: 'q', payload: { query: '{ __typename }' } })
    await raw.got('complete', 'q')
    expect(raw.received.filter(({ id }) => id === 'q').map(({ type }) => type)).toEqual(['next', 'complete'])
    for (const [id, query] of [
      ['unparsed', '{'],
      ['unknown', '{ nowhere }'],
    ] as const) {
      raw.send({ type: 'subscribe', id, payload: { query } })
      expect((await raw.got('error', id)).payload[0].message).toEqual(expect.any(String))
      expect(raw.received.filter((message) => message.id === id)).toHaveLength(1)
    }
    raw.send({ type: 'subscribe', id: 'q', payload: { query: '{ __typename }' } })
    await raw.got('complete', 'q', 2)
  })
})

describe('a client that breaks the protocol', () => {
  const breaks: [string, number, (raw: Raw) => void | Promise<void>, boolean?][] = [
    ['sends what is no JSON', 4400, (raw) => raw.send('{')],
    ['sends a type that is not there', 4400, (raw) => raw.send({ type: 'start', id: '1' })],
    ['subscribes without a payload', 4400, (raw) => raw.send({ type: 'subscribe', id: '1' })],
    ['subscribes without an id', 4400, (raw) => raw.send({ type: 'subscribe', payload: { query: '{ __typename }' } })],
    ['says hello twice', 4429, (raw) => raw.send({ type: 'connection_init' })],
    [
      'uses an id that is taken',
      4409,
      async (raw) => {
        subscribe(raw, 'same')
        await raw.got('next', 'same')
        subscribe(raw, 'same')
      },
    ],
    [
      'uses a long id that is taken',
      4409,
      async (raw) => {
        subscribe(raw, 'ö'.repeat(100))
        await raw.got('next', 'ö'.repeat(100))
        subscribe(raw, 'ö'.repeat(100))
      },
    ],
    ['subscribes before it has said hello', 4401, (raw) => subscribe(raw, '1'), false],
  ]
  it.each(breaks)(
    'STREAM-20: that %s is closed with %i; another socket does not notice',
    async (_, code, act, greets = true) => {
      const witness = await connected()
      subscribe(witness, 'w')
      await witness.got('next', 'w')
      const raw = greets ? await connected() : await open()
      await act(raw)
      const closed = await raw.closed
      expect(closed.code).toBe(code)
      expect(closed.reason.length).toBeGreaterThan(0)
      await soon(() => expect(listeners()).toBe(1))
      const count = witness.received.length
      await titled(`after ${code}`)
      await soon(() =>
        expect(witness.received.slice(count).map((m) => m.payload?.data?.sessionEvents.__typename)).toContain(
          'SessionUpdated',
        ),
      )
      expect(witness.socket.readyState).toBe(WebSocket.OPEN)
    },
  )

  it('STREAM-20: that speaks another subprotocol is refused with 4406, or at the handshake', async () => {
    const raw = await open('graphql-ws')
    const { code } = await raw.closed
    expect([4406, 1006]).toContain(code)
    expect((await served.ask('{ __typename }')).data).toEqual({ __typename: 'Query' })
  })

  it('STREAM-20: that is cut off without a goodbye leaves no source behind', async () => {
    const raw = await connected()
    subscribe(raw, '1')
    await raw.got('next', '1')
    await soon(() => expect(listeners()).toBe(1))
    raw.socket.terminate()
    await soon(() => expect(listeners()).toBe(0))
  })
})
