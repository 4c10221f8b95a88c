// Slow is not dead: a peer that takes what it is sent, or sends what it has, is waited for; one that takes nothing is not (point by point
// on the wire, with a clock that the test moves).
import { request } from 'node:http'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { openSocket } from '../conformance/websocket.ts'
import { event } from '../src/events.ts'
import { testClock } from './support/clock.ts'
import { meteredLink } from './support/metered-link.ts'
import { type Served, serveLog } from './support/served.ts'

const transports = ['sse', 'websocket'] as const
const stallMs = 60_000
const sessionId = 'ses_slowreader'
/** What the system's buffers hold is a part of it only, so that what a reader takes is seen. */
const longBytes = 13_000_000
const stepBytes = 3_500_000
const query = `subscription { sessionEvents(sessionId: "${sessionId}") { __typename seq ... on SyntheticAppended { text } } }`

const clock = testClock()
let served: Served
beforeAll(async () => {
  served = await serveLog({ clock, env: { HOLDFAST_STALL_MS: String(stallMs) } })
  await served.append(
    sessionId,
    event('session.created', { tenant: 'default', title: null, instructions: null, model: 'demo/echo' }),
    event('synthetic.appended', { messageId: 'msg_.long1', text: 'x', hidden: true }),
  )
  // Made longer where they are: an append of so much would take a slow machine a minute. The log is guarded by a trigger.
  const { db } = served.core
  await db.$transaction([
    db.$executeRaw`SET LOCAL session_replication_role = replica`,
    db.$executeRaw`UPDATE "Event" SET payload = jsonb_set(payload, '{text}', to_jsonb(repeat('x', ${longBytes}::int))) WHERE "sessionId" = ${sessionId} AND seq = 2`,
    db.$executeRaw`UPDATE "Message" SET text = repeat('x', ${longBytes}::int) WHERE "sessionId" = ${sessionId}`,
  ])
})
afterAll(() => served?.close())

const open: { close(): void }[] = []
afterEach(() => {
  for (const one of open.splice(0).reverse()) one.close()
})
const opened = <T extends { close(): void }>(one: T) => {
  open.push(one)
  return one
}

/** Time passes, and whatever it sets off is done. */
async function pass(ms: number) {
  for (let n = 0; n < ms / 1000; n++) {
    await clock.advance(1000)
    await new Promise((resolve) => setTimeout(resolve, 1))
  }
}

const slowConsumers = async () =>
  Number(/^holdfast_slow_consumers_total (\d+)$/m.exec(await served.core.metrics.text())?.[1])

const slimmed = (piece: string) => piece.replaceAll('x'.repeat(1000), '')
/** Without its text. */
const brief = (message: unknown) => JSON.stringify(message, (key, value) => (key === 'text' ? '' : value))

/** A subscription through a line, which stands still behind the first bytes of the answer. `all`: what came, without the long text. */
async function watch(via: (typeof transports)[number]) {
  const link = opened(await meteredLink(served.endpoint))
  if (via === 'websocket') {
    const socket = opened(await openSocket({ endpoint: link.url, token: null, model: 'demo/echo' }))
    const stands = link.allow('down', 100_000)
    socket.send({ type: 'subscribe', id: '1', payload: { query } })
    await stands
    const say = () => socket.send({ type: 'complete', id: 'nothing' })
    return { link, say, all: () => socket.received.all.map((message) => brief(message)).join('\n') }
  }
  let text = ''
  const asked = request(link.url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
  })
  opened({ close: () => asked.destroy() })
  asked.on('error', () => {})
  asked.on('response', (response) =>
    response.on('data', (piece) => {
      text += slimmed(String(piece))
    }),
  )
  const stands = link.allow('down', 100_000)
  asked.end(JSON.stringify({ query }))
  await stands
  return { link, say() {}, all: () => text }
}

describe('a slow reader that reads', () => {
  it.each(transports)(
    'PROMISE-140: over %s it gets an item that takes it more than twice the stall limit, and its stream goes on',
    async (via) => {
      const before = await slowConsumers()
      const { link, all } = await watch(via)
      for (let n = 0; n < 3; n++) {
        await link.allow('down', stepBytes)
        await pass(0.75 * stallMs)
      }
      link.free('down')
      await vi.waitFor(() => expect(all()).toContain('LogSynced'), { timeout: 20_000, interval: 20 })
      expect(all()).toMatch(/"SessionCreated","seq":1.*"SyntheticAppended","seq":2/s)
      await served.append(
        sessionId,
        event('session.updated', { title: via, instructions: null, model: 'demo/echo', archived: false }),
      )
      await vi.waitFor(() => expect(all()).toContain('SessionUpdated'), { timeout: 20_000, interval: 20 })
      expect(await slowConsumers()).toBe(before)
    },
    60_000,
  )
})

describe('a slow sender', () => {
  it('PROMISE-141: one long message that takes it more than twice the stall limit does not end its WebSocket', async () => {
    const link = opened(await meteredLink(served.endpoint))
    const socket = opened(await openSocket({ endpoint: link.url, token: null, model: 'demo/echo' }))
    const stands = link.allow('up', 100_000)
    // One frame, in whose middle no pong can stand.
    socket.send({ type: 'subscribe', id: '1', payload: { query: `{ __typename } # ${'x'.repeat(longBytes)}` } })
    await stands
    for (let n = 0; n < 3; n++) {
      await link.allow('up', stepBytes)
      await pass(0.75 * stallMs)
    }
    link.free('up')
    await socket.received.until('an answer', () => socket.received.all.some(({ id }) => id === '1'))
    expect(socket.isOpen()).toBe(true)
  }, 60_000)
})

describe('a peer that takes nothing', () => {
  it.each(transports)(
    'PROMISE-142: over %s its stream is ended at the limit',
    async (via) => {
      const before = await slowConsumers()
      const { link } = await watch(via)
      await pass(0.9 * stallMs)
      expect(await slowConsumers()).toBe(before)
      await pass(1.2 * stallMs)
      expect(await slowConsumers()).toBe(before + 1)
      expect(served.core.doorbell.listeners()).toBe(0)
      expect(link.passed.down).toBeLessThan(longBytes)
    },
    60_000,
  )

  it('PROMISE-143: its WebSocket is ended too, also while it goes on sending', async () => {
    const { link, say } = await watch('websocket')
    await pass(0.9 * stallMs)
    say()
    expect(link.open()).toBe(1)
    for (let n = 0; n < 4; n++) {
      await pass(0.25 * stallMs)
      say()
    }
    await vi.waitFor(() => expect(link.open()).toBe(0), { timeout: 20_000, interval: 20 })
  }, 60_000)
})
