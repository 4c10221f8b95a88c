// What the streams promise, over real sockets: readers that stop reading, many of them, and proxies that cut what is silent.
import { afterEach, describe, expect, it, vi } from 'vitest'
import { silenceMsMax } from '../conformance/checks/sse.ts'
import { seqs, type Watching, watchEventStream, watchSocket } from '../conformance/watching.ts'
import { openSocket } from '../conformance/websocket.ts'
import { event } from '../src/events.ts'
import { pingMs } from '../src/http/graphql.ts'
import { idleProxy } from './support/idle-proxy.ts'
import { heldMegabytes } from './support/memory.ts'
import { type Served, serveLog } from './support/served.ts'
import { runningStep, type StreamProcess } from './support/stream-process.ts'

const transports = ['sse', 'websocket'] as const
const open: { close(): void | Promise<void> }[] = []
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close()
})

async function serve(options?: Parameters<typeof serveLog>[0]): Promise<Served> {
  const served = await serveLog(options)
  open.push(served)
  return served
}

async function watch(
  endpoint: string,
  via: (typeof transports)[number],
  sessionId: string,
  after = 0,
): Promise<Watching> {
  const target = { endpoint, token: null, model: 'demo/echo' }
  const watching =
    via === 'sse'
      ? await watchEventStream(target, sessionId, after)
      : watchSocket(await openSocket(target), sessionId, after)
  open.push(watching)
  return watching
}

const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, n) => from + n)
const created = event('session.created', { tenant: 'default', title: null, instructions: null, model: 'demo/echo' })
const note = (n: number, text: string) =>
  event('synthetic.appended', { messageId: `msg_.note${n}`, text, hidden: true })

describe('readers that stop reading', () => {
  it.each(transports)(
    'STREAM-13: over %s one is ended when the limit passes and finds out when it reads again; a reader beside it is not slowed down',
    async (via) => {
      const served = await serve({ env: { HOLDFAST_STALL_MS: '1500' } })
      const sessionId = 'ses_wire000001'
      await served.append(sessionId, created)
      // More than all the buffers on the way hold.
      const last = 61
      for (let n = 2; n <= last; n++) await served.append(sessionId, note(n, 'x'.repeat(400_000)))
      const slow = await watch(served.endpoint, via, sessionId)
      slow.pause()
      const beside = await watch(served.endpoint, via, sessionId)
      await beside.see('the whole log', (item) => item.seq === last)
      expect(seqs(beside.items.all)).toEqual(range(1, last))
      await vi.waitFor(
        async () => expect(await served.core.metrics.text()).toMatch(/^holdfast_slow_consumers_total 1$/m),
        { timeout: 20_000, interval: 50 },
      )
      await served.append(sessionId, note(last + 1, 'meanwhile'))
      await beside.see('what happens meanwhile', (item) => item.seq === last + 1)

      slow.resume()
      await slow.items.end('the end of the slow one')
      expect(slow.completed()).toBe(true)
      const given = seqs(slow.items.all)
      expect(given.length).toBeLessThan(last)
      expect(slow.items.all.at(-1)).toMatchObject({
        __typename: 'StreamEnded',
        cause: 'SLOW_CONSUMER',
        seq: null,
        resumeAfter: given.at(-1) ?? 0,
      })
      const back = await watch(served.endpoint, via, sessionId, slow.items.all.at(-1)!.resumeAfter)
      await back.synced()
      expect([...given, ...seqs(back.items.all)]).toEqual(range(1, last + 1))
    },
    60_000,
  )

  it('STREAM-14: 50 sockets that never read, while ten minutes of deltas flow, cost the server at most 64 MB', async () => {
    // How long this takes does not matter: a slow machine took the minute after which who takes nothing is closed.
    const served = await serve({ env: { HOLDFAST_STALL_MS: '600000' } })
    const step = await runningStep(served.core as unknown as StreamProcess, 'ses_wire000002')
    const token = 'a piece of live text'
    // A thousand deltas a second, as fast as they can be made; every five seconds end a part. A reader that has stopped costs the message that it
    // is being sent, so these are small, and all of them together are more than the system's own buffers for a connection take.
    const parts = { warming: 24, measured: 120 }
    const fiveSeconds = async (index: number) => {
      await step.begin('TEXT', index)
      for (let n = 0; n < 5000; n++) {
        step.add(token, index)
        // Streams go on at each of these, as they do between the deltas of a provider.
        if (n % 1000 === 0) await new Promise((resolve) => setImmediate(resolve))
      }
      await step.end(token.repeat(5000), 'TEXT', index)
    }
    // What the flow itself takes without any reader is not what is measured.
    for (let index = 0; index < parts.warming; index++) await fiveSeconds(index)
    // Five events of the step's beginning, and two of each part.
    const after = 5 + 2 * parts.warming
    const readers = await Promise.all(
      range(1, 50).map((n) => watch(served.endpoint, transports[n % 2]!, step.sessionId, after)),
    )
    for (const reader of readers) {
      await reader.synced()
      reader.pause()
    }
    const held = heldMegabytes()
    for (let n = 0; n < parts.measured; n++) await fiveSeconds(parts.warming + n)
    expect(heldMegabytes() - held).toBeLessThan(64)
    // They were there all the time.
    expect(served.core.doorbell.listeners()).toBe(50)
    // And one that reads on misses nothing.
    readers[0]!.resume()
    const last = parts.warming + parts.measured - 1
    await readers[0]!.see('the last end', (item) => item.__typename === 'TextEnded' && item.index === last, 60_000)
    expect(seqs(readers[0]!.items.all)).toEqual(range(after + 1, after + 2 * parts.measured))
  }, 120_000)
})

describe('readers that come and go', () => {
  it('STREAM-15: 2 000 subscriptions on one socket and 200 event streams, opened and closed, leave nothing behind a second later', async () => {
    const served = await serve()
    const sessionId = 'ses_wire000004'
    await served.append(sessionId, created)
    const target = { endpoint: served.endpoint, token: null, model: 'demo/echo' }
    const socket = await openSocket(target)
    open.push(socket)
    const query = `subscription { sessionEvents(sessionId: "${sessionId}") { __typename } }`
    for (let n = 0; n < 2000; n++) {
      socket.send({ type: 'subscribe', id: `${n}`, payload: { query } })
      // Some are closed while they start, some while they replay, some while they wait.
      if (n % 3 > 0) await socket.got('next', `${n}`, n % 3)
      socket.send({ type: 'complete', id: `${n}` })
    }
    for (let n = 0; n < 200; n++) {
      const stream = await watchEventStream(target, sessionId, 0)
      if (n % 2) await stream.synced()
      stream.close()
    }
    // Behind this answer the socket has been read to its end.
    socket.send({ type: 'ping' })
    await socket.got('pong')
    const left = () => served.core.doorbell.listeners() + served.core.live.listeners()
    const closed = performance.now()
    await vi.waitFor(() => expect(left()).toBe(0), { timeout: 20_000, interval: 10 })
    expect(performance.now() - closed).toBeLessThan(1_000)
    expect(socket.isOpen()).toBe(true)
  }, 120_000)
})

describe('a proxy that closes what is silent', () => {
  // All times are a twentieth of the real ones: a proxy of 30 s, a minute of silence.
  const idleMs = 30_000 / 20
  const silentMs = 60_000 / 20

  it.each(transports)(
    'STREAM-19: over %s the pings keep a stream open on which nothing happens; without them it is cut',
    async (via) => {
      expect(pingMs).toBeLessThanOrEqual(silenceMsMax)
      for (const [ping, survives] of [
        [pingMs / 20, true],
        [60_000, false],
      ] as const) {
        const served = await serve({ pingMs: ping })
        const proxy = await idleProxy(served.server.url, idleMs)
        open.push(proxy)
        await served.append('ses_wire000003', created)
        const watching = await watch(`${proxy.url}graphql`, via, 'ses_wire000003')
        await watching.synced()
        const begun = Date.now()
        await vi.waitFor(() => expect(watching.items.closed !== null || Date.now() - begun > silentMs).toBe(true), {
          timeout: 30_000,
        })
        expect([watching.items.closed === null, proxy.cuts() > 0]).toEqual([survives, !survives])
        if (!survives) continue
        await served.append('ses_wire000003', note(1, 'after the silence'))
        await watching.see('what happens after the silence', (item) => item.seq === 2)
      }
    },
  )
})
