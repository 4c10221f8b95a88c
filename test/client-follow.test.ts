import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import {
  type FollowOptions,
  fetchTransport,
  followSession,
  type SessionFollower,
  type SessionView,
  type StreamItem,
  type Transport,
} from '../src/client/index.ts'
import { event } from '../src/events.ts'
import { testClock } from './support/clock.ts'
import { type Carrier, carriers, holds, inPhase, isLive, reloaded, shown } from './support/follow-stage.ts'
import { type Link, openLink } from './support/link.ts'
import { type Served, serveLog } from './support/served.ts'
import { newSessionId, titled, until } from './support/stream-process.ts'
import { inSeconds, jwtAuth, secret, token } from './support/tokens.ts'

let served: Served
let link: Link
const carried: Carrier[] = []
const followers: SessionFollower[] = []

beforeAll(async () => {
  served = await serveLog()
  link = await openLink(served.endpoint)
})
afterEach(async () => {
  for (const follower of followers.splice(0)) follower.close()
  for (const carrier of carried.splice(0)) await carrier.close()
  link.mend()
})
afterAll(async () => {
  await link?.close()
  await served?.close()
})

const names = Object.keys(carriers)

function carrierOf(name: string): Transport {
  const carrier = carriers[name]!(link.url)
  carried.push(carrier)
  return carrier.transport
}

async function newSession(titles = 0): Promise<string> {
  const sessionId = newSessionId()
  const created = { tenant: 'default', title: null, instructions: null, model: 'demo/echo' }
  await served.append(sessionId, event('session.created', created))
  for (let n = 1; n <= titles; n++) await served.append(sessionId, titled(`title ${n}`))
  return sessionId
}

interface Following {
  follower: SessionFollower
  items: StreamItem[]
  /** Of the durable items that were passed on, in order. */
  seqs(): number[]
}

function follow(options: FollowOptions): Following {
  const items: StreamItem[] = []
  const follower = followSession({ onItem: (item) => void items.push(item), ...options })
  followers.push(follower)
  return { follower, items, seqs: () => items.flatMap(({ seq }) => (seq == null ? [] : [seq])) }
}

const from = (first: number, last: number) => Array.from({ length: last - first + 1 }, (_, n) => first + n)

describe.each(names)('followSession over %s', (name) => {
  it('STREAM-24, STREAM-26: what commits between the snapshot and its stream is in the view, once', async () => {
    const transport = carrierOf(name)
    const sessionId = await newSession(3)
    let fell = 0
    const { follower, seqs } = follow({
      sessionId,
      transport: {
        ...transport,
        async execute(document, variables, options) {
          const answer = await transport.execute(document, variables, options)
          for (; fell < 3; fell++) await served.append(sessionId, titled(`in between ${fell}`))
          return answer
        },
      },
    })
    await holds(follower, 7)
    await inPhase(follower, 'LIVE')
    expect(fell).toBe(3)
    await served.append(sessionId, titled('live'))
    await holds(follower, 8)
    expect(seqs()).toEqual(from(5, 8))
    expect(follower.current().view).toEqual(await reloaded(transport, sessionId))
  })

  it('STREAM-02: 30 events while it is offline arrive when it is back, each once and in order', async () => {
    const transport = carrierOf(name)
    const sessionId = await newSession()
    const { follower, seqs } = follow({ sessionId, transport })
    await inPhase(follower, 'LIVE')
    link.cut()
    await inPhase(follower, 'OFFLINE')
    for (let n = 1; n <= 30; n++) await served.append(sessionId, titled(`offline ${n}`))
    expect(follower.current().view!.seq).toBe(1)
    link.mend()
    await holds(follower, 31)
    await inPhase(follower, 'LIVE')
    expect(seqs()).toEqual(from(2, 31))
    expect(follower.current().view).toEqual(await reloaded(transport, sessionId))
  })

  it('STREAM-02: a transport that begins at the first cursor again and again repeats nothing to the application', async () => {
    const transport = carrierOf(name)
    const sessionId = await newSession(5)
    let subscribed = 0
    const { follower, seqs } = follow({
      sessionId,
      transport: {
        ...transport,
        subscribe(document, variables, sink) {
          subscribed++
          return transport.subscribe(document, { ...variables, after: 0 }, sink)
        },
      },
    })
    await inPhase(follower, 'LIVE')
    for (let n = 0; n < 3; n++) {
      link.cut()
      await inPhase(follower, 'OFFLINE')
      await served.append(sessionId, titled(`away ${n}`))
      link.mend()
      follower.retryNow()
      await until(() => isLive(follower), 'being live again')
    }
    expect(subscribed).toBeGreaterThanOrEqual(4)
    expect(seqs()).toEqual(from(7, 9))
    expect(follower.current().view).toEqual(await reloaded(transport, sessionId))
  })

  it('STREAM-21: a session that is not there ends it, typed; so does one that goes with a kept view', async () => {
    const transport = carrierOf(name)
    expect(await follow({ sessionId: 'ses_nowhere-1', transport }).follower.ended).toEqual({ reason: 'NOT_FOUND' })
    const { follower } = follow({ sessionId: await newSession(), transport })
    await inPhase(follower, 'LIVE')
    const view = { ...follower.current().view!, id: 'ses_nowhere-2' }
    const lost = follow({ sessionId: 'ses_nowhere-2', transport, view }).follower
    expect(await lost.ended).toEqual({ reason: 'NOT_FOUND' })
    expect(lost.current().state).toEqual({ phase: 'ENDED', end: { reason: 'NOT_FOUND' } })
  })

  it('STREAM-15: closed by its caller it ends as that, and nothing of it is left on the server', async () => {
    const transport = carrierOf(name)
    const listening = () => served.core.live.listeners()
    await until(() => listening() === 0, 'a quiet server')
    const closing = new AbortController()
    const { follower, items } = follow({ sessionId: await newSession(), transport, signal: closing.signal })
    await inPhase(follower, 'LIVE')
    expect(listening()).toBe(1)
    closing.abort()
    expect(await follower.ended).toEqual({ reason: 'CLOSED' })
    await until(() => listening() === 0, 'no listener')
    expect(items).toEqual([])
  })
})

const overSse = () => carrierOf('fetch and SSE')

/** The transport with an item of its own in each stream, behind LogSynced. */
function ending(transport: Transport, cause: string, times: number) {
  const injected = { count: 0 }
  const wrapped: Transport = {
    ...transport,
    subscribe(document, variables, sink) {
      return transport.subscribe(document, variables, {
        ...sink,
        next(answer) {
          sink.next(answer)
          const item = (answer.data as { sessionEvents?: StreamItem } | null)?.sessionEvents
          if (item?.__typename !== 'LogSynced' || injected.count >= times) return
          injected.count++
          const { sessionId, at, through } = item
          const ended = { __typename: 'StreamEnded', sessionId, at, seq: null, cause, resumeAfter: through }
          sink.next({ data: { sessionEvents: ended } } as never)
        },
      })
    },
  }
  return { injected, wrapped }
}

describe('how it ends, and how it does not', () => {
  it.each(['SLOW_CONSUMER', 'SERVER_SHUTDOWN'])(
    'STREAM-13, STREAM-17: StreamEnded of %s is come back from',
    async (cause) => {
      const sessionId = await newSession(2)
      const { injected, wrapped } = ending(overSse(), cause, 2)
      const phases: string[] = []
      const { follower, seqs } = follow({ sessionId, transport: wrapped })
      follower.subscribe(() => phases.push(follower.current().state.phase))
      await until(() => injected.count === 2 && isLive(follower), 'two ends and a new beginning')
      await served.append(sessionId, titled('still here'))
      await holds(follower, 4)
      expect(seqs()).toEqual([4])
      expect(phases.filter((phase) => phase === 'OFFLINE').length).toBeGreaterThanOrEqual(2)
    },
  )

  it('STREAM-16: a token that is not taken is asked for once more; the second refusal in a row ends it', async () => {
    const sessionId = await newSession()
    // Live in between: a token that expires every hour is renewed every hour.
    const { injected, wrapped } = ending(overSse(), 'UNAUTHENTICATED', 3)
    const renewed = follow({ sessionId, transport: wrapped }).follower
    await until(() => injected.count === 3 && isLive(renewed), 'three renewals')
    renewed.close()

    const asked: (string | null)[] = []
    let tokens = 0
    const refusing: typeof fetch = async (_url, init) => {
      asked.push(new Headers(init?.headers).get('authorization'))
      return new Response('no', { status: 401 })
    }
    const transport = fetchTransport({ url: link.url, fetch: refusing, token: async () => `token${++tokens}` })
    const { follower } = follow({ sessionId, transport })
    expect(await follower.ended).toMatchObject({ reason: 'UNAUTHENTICATED', problem: { code: 'UNAUTHENTICATED' } })
    expect(asked).toEqual(['Bearer token1', 'Bearer token2'])
  })

  it.each(['fetch and SSE', 'graphql-ws'])(
    'STREAM-16, SEC-03: over %s a token that expires is renewed without a gap; one that is of no use ends it',
    async (name) => {
      const guarded = await serveLog({ auth: jwtAuth({ secret }) })
      try {
        const sessionId = newSessionId()
        const created = { tenant: 'a', title: null, instructions: null, model: 'demo/echo' }
        await guarded.append(sessionId, event('session.created', created))
        let tokens = 0
        const fresh = () => {
          tokens++
          return token({ tenant: 'a' }, { exp: inSeconds(Date.now(), 3) })
        }
        const carrier = carriers[name]!(guarded.endpoint, fresh)
        carried.push(carrier)
        const { follower, seqs } = follow({ sessionId, transport: carrier.transport })
        await inPhase(follower, 'LIVE')
        for (let n = 1; n <= 2; n++) {
          await inPhase(follower, 'OFFLINE')
          expect(follower.current().state).toMatchObject({ problem: { code: 'UNAUTHENTICATED' } })
          await guarded.append(sessionId, titled(`unseen ${n}`))
          await until(() => isLive(follower), 'a new token')
        }
        expect(seqs()).toEqual([2, 3])
        expect(tokens).toBeGreaterThanOrEqual(3)

        const useless = carriers[name]!(guarded.endpoint, 'no-token-at-all')
        carried.push(useless)
        const refused = follow({ sessionId, transport: useless.transport }).follower
        expect(await refused.ended).toMatchObject({ reason: 'UNAUTHENTICATED' })
      } finally {
        await guarded.close()
      }
    },
  )

  it('what the server refuses for good ends it with the reason', async () => {
    const elsewhere = fetchTransport({ url: new URL('/nothing-here', link.url).href })
    expect(await follow({ sessionId: 'ses_whatever', transport: elsewhere }).follower.ended).toMatchObject({
      reason: 'REFUSED',
      problem: { code: 'HTTP_405', again: false },
    })
  })

  it('tries again after 0.5 s, 1 s, 2 s … up to 30 s, and gives up only when told to', async () => {
    link.cut()
    const clock = testClock()
    const delays: number[] = []
    const { follower } = follow({
      sessionId: 'ses_whatever',
      transport: overSse(),
      retries: 8,
      clock: { after: (ms, fn) => clock.setTimeout(fn, ms), random: () => 0 },
    })
    let waiting: unknown = null
    while (follower.current().state.phase !== 'ENDED') {
      await until(
        () => follower.current().state !== waiting && follower.current().state.phase !== 'LOADING',
        'a failure',
      )
      const { state } = follower.current()
      waiting = state
      if (state.phase !== 'OFFLINE') break
      delays.push(state.delayMs)
      await clock.advance(state.delayMs)
    }
    expect(delays).toEqual([500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000])
    expect(await follower.ended).toMatchObject({ reason: 'GAVE_UP', problem: { code: 'NETWORK' } })
    expect(clock.timers().length).toBe(0)
  })

  it('STREAM-19: a connection on which nothing comes any more counts as lost', async () => {
    const transport = fetchTransport({ url: link.url, silenceMs: 300 })
    const { follower } = follow({ sessionId: await newSession(), transport })
    await inPhase(follower, 'LIVE')
    await inPhase(follower, 'OFFLINE')
    expect(follower.current().state).toMatchObject({ problem: { code: 'NETWORK', message: 'nothing came for 300 ms' } })
    await inPhase(follower, 'LIVE')
  })
})

describe('the cursor', () => {
  it('STREAM-02: survives as JSON: a new follower goes on after it, without a snapshot', async () => {
    const transport = overSse()
    const sessionId = await newSession(2)
    const first = follow({ sessionId, transport }).follower
    await inPhase(first, 'LIVE')
    const kept = JSON.stringify(first.current().view)
    first.close()
    await served.append(sessionId, titled('meanwhile'))
    let snapshots = 0
    const { follower, seqs } = follow({
      sessionId,
      view: JSON.parse(kept) as SessionView,
      transport: {
        ...transport,
        execute: (...args: Parameters<Transport['execute']>) => {
          snapshots++
          return transport.execute(...args)
        },
      } as Transport,
    })
    await holds(follower, 4)
    expect(seqs()).toEqual([4])
    expect(snapshots).toBe(0)
    expect(follower.current().view).toEqual(await reloaded(transport, sessionId))
  })

  it('of another database (CURSOR_AHEAD) is dropped, and the session is loaded anew', async () => {
    const transport = overSse()
    const sessionId = await newSession(2)
    const view = { ...(await reloaded(transport, sessionId)), seq: 1000, title: 'before the restore' }
    const { follower } = follow({ sessionId, transport, view })
    await until(() => follower.current().view?.seq === 3, 'a new view')
    await inPhase(follower, 'LIVE')
    expect(follower.current().view).toEqual(await reloaded(transport, sessionId))
  })
})

describe('what is shown', () => {
  it('older messages come in pages, and the whole is what a reload with all of them shows', async () => {
    const transport = overSse()
    const sessionId = await newSession()
    for (let n = 1; n <= 25; n++)
      await served.append(
        sessionId,
        event('synthetic.appended', { messageId: `msg_.${sessionId}-${n}`, text: `${n}`, hidden: false }),
      )
    const { follower } = follow({ sessionId, transport, messages: 10 })
    await inPhase(follower, 'LIVE')
    const count = () => follower.current().view!.messages.length
    expect([count(), follower.current().hasEarlier]).toEqual([10, true])
    expect(await follower.loadEarlier(10)).toBe(true)
    await Promise.all([follower.loadEarlier(10), follower.loadEarlier(10)])
    expect([count(), follower.current().hasEarlier]).toEqual([25, false])
    expect(await follower.loadEarlier()).toBe(false)
    expect(follower.current().view).toEqual(await reloaded(transport, sessionId))
  })

  it('changes are told to every listener, the same object until there is one, and a listener that throws harms nobody', async () => {
    const thrown: unknown[] = []
    const uncaught = (error: unknown) => thrown.push(error)
    const before = process.listeners('uncaughtException')
    process.removeAllListeners('uncaughtException')
    process.on('uncaughtException', uncaught)
    try {
      const sessionId = await newSession()
      const { follower } = follow({ sessionId, transport: overSse() })
      await inPhase(follower, 'LIVE')
      expect(follower.current()).toBe(follower.current())
      let told = 0
      const mend = follower.subscribe(() => {
        throw new Error('of the application')
      })
      const stop = follower.subscribe(() => told++)
      await served.append(sessionId, titled('one'))
      await holds(follower, 2)
      expect(told).toBe(1)
      stop()
      await served.append(sessionId, titled('two'))
      await holds(follower, 3)
      expect(told).toBe(1)
      await until(() => thrown.length === 2, 'both errors')
      mend()
    } finally {
      process.off('uncaughtException', uncaught)
      for (const listener of before) process.on('uncaughtException', listener)
    }
  })

  it('STREAM-26: inputs that are pending no more are of no account to what is shown', async () => {
    const transport = overSse()
    const sessionId = await newSession()
    const { follower } = follow({ sessionId, transport })
    await inPhase(follower, 'LIVE')
    const input = { messageId: `msg_${sessionId}`, inputKind: 'PROMPT' as const, text: 'x', attachments: [] }
    await served.append(sessionId, event('prompt.admitted', { ...input, delivery: 'STEER', requestExecution: true }))
    await served.append(sessionId, event('prompt.withdrawn', { messageId: input.messageId }))
    await holds(follower, 3)
    expect(follower.current().view!.inputs).toHaveLength(1)
    expect(shown(follower.current().view)).toEqual(await reloaded(transport, sessionId))
  })
})
