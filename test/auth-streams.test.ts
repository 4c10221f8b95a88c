// A token that ends while it is in use: by its own time, or because its key was taken away.
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { event } from '../src/events.ts'
import { type TestClock, testClock } from './support/clock.ts'
import { type Answer, type Served, serveLog } from './support/served.ts'
import {
  apiKeys,
  closeSockets,
  inSeconds,
  jwtAuth,
  keyOfA,
  keyOfB,
  post,
  rawSocket,
  secret,
  socketOf,
  token,
} from './support/tokens.ts'

const watch = `subscription ($after: Int) { sessionEvents(sessionId: "ses_ending001", after: $after) {
  __typename seq ... on StreamEnded { cause resumeAfter } } }`
const activity = 'subscription { sessionActivity { id } }'
const ended = { sessionEvents: { __typename: 'StreamEnded', seq: null, cause: 'UNAUTHENTICATED', resumeAfter: 1 } }

let served: Served
let clock: TestClock
let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'hf-auth-'))
  clock = testClock()
})
afterEach(async () => {
  await closeSockets()
  await served?.close()
  rmSync(dir, { recursive: true, force: true })
})

async function serve(options: Parameters<typeof serveLog>[0]) {
  served = await serveLog({ logLevel: 'trace', ...options })
  const made = { title: null, instructions: null, model: 'demo/echo' }
  await served.append('ses_ending001', event('session.created', { tenant: 'a', ...made }))
}

const keysFile = () => join(dir, 'keys')
/** As an editor or a deployment does it: the new file takes the place of the old one. */
function writeKeys(...lines: string[]) {
  writeFileSync(`${keysFile()}.new`, lines.join('\n'))
  renameSync(`${keysFile()}.new`, keysFile())
}
async function serveFile(...lines: string[]) {
  writeKeys(...lines)
  await serve({ auth: apiKeys(undefined, keysFile()) })
}

const streamsOpen = async () => (await served.core.metrics.streams.get()).values[0]?.value
const listeners = () => served.core.doorbell.listeners()
const soon = <T>(look: () => T) => vi.waitFor(look, { timeout: 10_000, interval: 5 })

/** A subscription over WebSocket: what came, whether it is complete, and when. */
function overSocket(bearer: string, query: string) {
  const items: Answer[] = []
  const end = { at: 0, error: undefined as unknown }
  socketOf(served, { authorization: `Bearer ${bearer}` }).subscribe(
    { query },
    {
      next: (item) => void items.push(item as Answer),
      error: (error) => {
        end.at = performance.now()
        end.error = error
      },
      complete: () => {
        end.at = performance.now()
      },
    },
  )
  return { items, end }
}

/** The same over server-sent events. */
async function overSse(bearer: string, query: string) {
  const response = await post(served.endpoint, query, { token: bearer, accept: 'text/event-stream' })
  expect(response.status).toBe(200)
  const state = { text: '', at: 0 }
  void (async () => {
    for await (const chunk of response.body!) state.text += new TextDecoder().decode(chunk as Uint8Array)
    state.at = performance.now()
  })()
  return state
}

async function watched(bearer: string) {
  const socket = overSocket(bearer, watch)
  const sse = await overSse(bearer, watch)
  const dashboard = overSocket(bearer, activity)
  const dashboardSse = await overSse(bearer, activity)
  await soon(async () => {
    expect(JSON.stringify(socket.items)).toContain('LogSynced')
    expect(sse.text).toContain('LogSynced')
    expect(await streamsOpen()).toBe(4)
  })
  return { socket, sse, dashboard, dashboardSse }
}

/** Every stream has ended as the contract says, within a second after `since`, and left nothing behind. */
async function allEnded({ socket, sse, dashboard, dashboardSse }: Awaited<ReturnType<typeof watched>>, since: number) {
  await soon(() => {
    for (const { at } of [socket.end, sse, dashboard.end, dashboardSse]) expect(at).toBeGreaterThan(0)
  })
  for (const { at } of [socket.end, sse, dashboard.end, dashboardSse]) expect(at - since).toBeLessThan(1000)
  expect(socket.end.error).toBeUndefined()
  expect(socket.items.at(-1)).toEqual({ data: ended })
  expect(sse.text).toContain(`data: ${JSON.stringify({ data: ended })}`)
  expect(sse.text.trimEnd()).toMatch(/event: complete\ndata:$/)
  expect(dashboard.end.error).toBeUndefined()
  expect(dashboard.items.at(-1)).toMatchObject({ errors: [{ extensions: { code: 'UNAUTHENTICATED' } }] })
  expect(dashboardSse.text).toContain('"code":"UNAUTHENTICATED"')
  expect(dashboardSse.text.trimEnd()).toMatch(/event: complete\ndata:$/)
  await soon(() => expect(listeners()).toBe(0))
}

const lived = (ms: number) => token({ tenant: 'a' }, { exp: inSeconds(clock.now(), ms / 1000) })

describe('a token that expires', () => {
  it('STREAM-16: ends running streams with StreamEnded{UNAUTHENTICATED} and completion at that moment, without an event', async () => {
    await serve({ auth: jwtAuth({ secret }), clock })
    const streams = await watched(await lived(60_000))
    await clock.advance(59_999)
    expect(streams.socket.items.at(-1)).toMatchObject({ data: { sessionEvents: { __typename: 'LogSynced' } } })
    expect(await streamsOpen()).toBe(4)
    const since = performance.now()
    await clock.advance(1)
    await allEnded(streams, since)
    // No timer of a stream that has ended is left, nor of its socket, which the client closes then.
    await soon(() => expect(clock.timers()).toEqual([]))
  })

  it('STREAM-16: by the real clock, within a second', async () => {
    await serve({ auth: jwtAuth({ secret }) })
    const exp = inSeconds(Date.now(), 3)
    const streams = await watched(await token({ tenant: 'a' }, { exp }))
    const since = performance.now() + exp * 1000 - Date.now()
    expect(since).toBeGreaterThan(performance.now())
    await allEnded(streams, since)
    for (const { at } of [streams.socket.end, streams.sse]) expect(at).toBeGreaterThanOrEqual(since - 5)
  })

  it('STREAM-15: a stream that its reader closes leaves no timer for the end of its token', async () => {
    await serve({ auth: jwtAuth({ secret }), clock })
    const items = socketOf(served, { authorization: `Bearer ${await lived(60_000)}` }).iterate({ query: watch })
    await items.next()
    expect(clock.timers().length).toBeGreaterThan(0)
    await items.return!()
    await soon(() => expect(clock.timers()).toEqual([]))
  })

  it('SEC-03: a new operation on its WebSocket is refused with UNAUTHENTICATED, no resolver runs, then the socket is closed', async () => {
    await serve({ auth: jwtAuth({ secret }), clock })
    const raw = await rawSocket(served, { authorization: `Bearer ${await lived(60_000)}` })
    await soon(() => expect(raw.received).toHaveLength(1))
    raw.send({ type: 'subscribe', id: 'early', payload: { query: '{ models { id } }' } })
    await soon(() => expect(raw.received.at(-1)).toEqual({ type: 'complete', id: 'early' }))
    await clock.advance(60_000)
    const list = vi.spyOn(served.core.models, 'list')
    raw.send({ type: 'subscribe', id: 'late', payload: { query: '{ models { id } }' } })
    const closed = await raw.closed
    expect(raw.received.at(-1)).toMatchObject({
      type: 'error',
      id: 'late',
      payload: [{ extensions: { code: 'UNAUTHENTICATED' } }],
    })
    expect(closed.code).toBe(4403)
    expect(closed.reason).toMatch(/^UNAUTHENTICATED: /)
    expect(list).not.toHaveBeenCalled()
  })

  it('SEC-03: a client that makes its payload anew for each connection comes back with a new token and misses nothing', async () => {
    await serve({ auth: jwtAuth({ secret }), clock })
    let made = 0
    const client = socketOf(
      served,
      async () => {
        made++
        return { authorization: `Bearer ${await lived(60_000)}` }
      },
      { lazy: false, retryAttempts: 3, retryWait: async () => {} },
    )
    const first = client.iterate<Answer['data']>({ query: watch })
    const seen: unknown[] = []
    for await (const { data } of first) {
      seen.push(data.sessionEvents.seq)
      if (data.sessionEvents.__typename === 'LogSynced') await clock.advance(60_000)
      if (data.sessionEvents.__typename === 'StreamEnded') expect(data.sessionEvents.resumeAfter).toBe(1)
    }
    const changed = { title: 'meanwhile', instructions: null, model: 'demo/echo', archived: false }
    await served.append('ses_ending001', event('session.updated', changed))
    // On the old connection it is refused, which makes the client connect again.
    const refused = await client
      .iterate({ query: watch, variables: { after: 1 } })
      .next()
      .catch((error) => error)
    expect(JSON.stringify(refused)).toContain('UNAUTHENTICATED')
    await soon(() => expect(made).toBe(2))
    const again = client.iterate<Answer['data']>({ query: watch, variables: { after: 1 } })
    expect((await again.next()).value.data.sessionEvents).toMatchObject({ __typename: 'SessionUpdated', seq: 2 })
    expect(seen).toEqual([1, null, null])
  })

  it('STREAM-16: one that runs longer than a timer can is not ended early', async () => {
    await serve({ auth: jwtAuth({ secret }), clock })
    const year = 365 * 86_400_000
    const bearer = await lived(year)
    const stream = overSocket(bearer, watch)
    await soon(() => expect(JSON.stringify(stream.items)).toContain('LogSynced'))
    await clock.advance(86_400_000)
    expect(stream.end.at).toBe(0)
    expect(Math.max(...clock.timers())).toBeLessThan(2 ** 31)
  })
})

describe('a key that is taken out of the file', () => {
  it('STREAM-16, SEC-03: ends its streams within a second; the key is refused from then on, another key goes on', async () => {
    await serveFile('# the keys of both', `${keyOfA}:a`, '', `${keyOfB}:b`)
    const streams = await watched(keyOfA)
    const raw = await rawSocket(served, { authorization: `Bearer ${keyOfA}` })
    await soon(() => expect(raw.received).toHaveLength(1))
    const other = overSocket(keyOfB, activity)
    await soon(async () => expect(await streamsOpen()).toBe(5))
    const since = performance.now()
    writeKeys(`${keyOfB}:b`)
    await soon(() => expect(streams.socket.end.at).toBeGreaterThan(0))
    expect(other.end.at).toBe(0)
    await closeOthers()
    await allEnded(streams, since)
    expect((await post(served.endpoint, '{ __typename }', { token: keyOfA })).status).toBe(401)
    expect((await post(served.endpoint, '{ __typename }', { token: keyOfB })).status).toBe(200)
    raw.send({ type: 'subscribe', id: 'late', payload: { query: '{ __typename }' } })
    expect((await raw.closed).code).toBe(4403)
    expect(raw.received.at(-1)).toMatchObject({ type: 'error', payload: [{ extensions: { code: 'UNAUTHENTICATED' } }] })

    async function closeOthers() {
      // Its stream would be one more listener.
      expect(other.items).toEqual([])
      await closeSockets()
    }
  })

  it('a key that is added counts without a restart, and one that is given to another tenant ends the streams of the old one', async () => {
    await serveFile(`${keyOfA}:a`)
    expect((await post(served.endpoint, '{ __typename }', { token: keyOfB })).status).toBe(401)
    const streams = await watched(keyOfA)
    const since = performance.now()
    writeKeys(`${keyOfA}:c`, `${keyOfB}:b`)
    await allEnded(streams, since)
    expect((await post(served.endpoint, '{ __typename }', { token: keyOfB })).status).toBe(200)
    const asC = await post(served.endpoint, '{ session(id: "ses_ending001") { id } }', { token: keyOfA })
    expect(await asC.json()).toEqual({ data: { session: null } })
  })

  it('a bad line counts for nothing and is named in the log by its number, without the key; the others count', async () => {
    await serveFile(`${keyOfA}:a`, `${keyOfB}:b`)
    writeKeys(`${keyOfA}`, `${keyOfB}:b`, 'short:c')
    const logged = () =>
      served
        .logged()
        .map((line) => line.problem)
        .filter(Boolean)
    await soon(() => expect(logged()).toHaveLength(2))
    expect(logged()).toEqual([
      expect.stringMatching(/^line 1: must have the form/),
      expect.stringMatching(/^line 3: a key has 16/),
    ])
    expect(JSON.stringify(served.logged())).not.toContain(keyOfA)
    expect((await post(served.endpoint, '{ __typename }', { token: keyOfA })).status).toBe(401)
    expect((await post(served.endpoint, '{ __typename }', { token: keyOfB })).status).toBe(200)
  })

  it('a file that is gone ends nobody: the keys read last count, the log says so once, and it is read when it is back', async () => {
    await serveFile(`${keyOfA}:a`)
    const stream = overSocket(keyOfA, watch)
    await soon(() => expect(JSON.stringify(stream.items)).toContain('LogSynced'))
    rmSync(keysFile())
    const said = (text: string) => served.logged().filter(({ msg }) => String(msg).includes(text))
    await soon(() => expect(said('cannot be read')).toHaveLength(1))
    expect(said('cannot be read')[0]).toMatchObject({ level: 'error', reason: 'ENOENT' })
    expect((await post(served.endpoint, '{ __typename }', { token: keyOfA })).status).toBe(200)
    expect(stream.end.at).toBe(0)
    writeKeys(`${keyOfB}:b`)
    await soon(() => expect(stream.end.at).toBeGreaterThan(0))
    expect(said('cannot be read')).toHaveLength(1)
    expect(said('can be read again')).toHaveLength(1)
    expect(stream.items.at(-1)).toEqual({ data: ended })
  })

  it('keys of the variable count beside those of the file, as long as the process lives', async () => {
    writeKeys(`${keyOfB}:b`)
    await serve({ auth: apiKeys(`${keyOfA}:a`, keysFile()) })
    writeKeys('# nobody')
    await soon(() => expect(served.logged().some(({ msg }) => String(msg).includes('read again'))).toBe(true))
    expect((await post(served.endpoint, '{ __typename }', { token: keyOfA })).status).toBe(200)
    expect((await post(served.endpoint, '{ __typename }', { token: keyOfB })).status).toBe(401)
  })
})
