import { getEventListeners } from 'node:events'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { appendIn } from '../src/event-log.ts'
import { sessionStream } from '../src/session-stream.ts'
import { itemOf, type StreamItem } from '../src/stream-item.ts'
import { testClock } from './support/clock.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import {
  append,
  createSession,
  is,
  names,
  type StreamProcess,
  seqs,
  streamProcess,
  takeUntil,
  titled,
  until,
} from './support/stream-process.ts'

let database: TestDatabase
let here: StreamProcess
let there: StreamProcess

beforeAll(async () => {
  database = await createTestDatabase()
  here = streamProcess(database.url)
  there = streamProcess(database.url)
})
afterAll(async () => {
  await here.close()
  await there.close()
  await database.drop()
})

async function sessionWith(events: number): Promise<string> {
  const sessionId = await createSession(here)
  for (let n = 1; n < events; n++) await append(here, sessionId, titled(`title ${n}`))
  return sessionId
}

const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)

describe('replay and live', () => {
  it('STREAM-01: after 0 gives every event in order, one LogSynced at the watermark, then what is appended', async () => {
    const sessionId = await sessionWith(5)
    const stream = here.stream(sessionId)
    const replay = await takeUntil(stream, is('LogSynced'))
    expect(seqs(replay)).toEqual([1, 2, 3, 4, 5])
    expect(replay.at(-1)).toMatchObject({ typename: 'LogSynced', through: 5, seq: null, sessionId })
    expect(replay[1]).toMatchObject({ typename: 'SessionUpdated', title: 'title 1', at: expect.any(Date) })
    const next = stream.next()
    await append(here, sessionId, titled('live'))
    expect((await next).value).toMatchObject({ seq: 6, title: 'live' })
    await stream.return!()
  })

  it('STREAM-02: after k gives k+1 to n once, then LogSynced, then live', async () => {
    const sessionId = await sessionWith(7)
    const stream = there.stream(sessionId, 4)
    expect(seqs(await takeUntil(stream, is('LogSynced')))).toEqual([5, 6, 7])
    await append(here, sessionId, titled('live'))
    expect((await stream.next()).value).toMatchObject({ seq: 8 })
    await stream.return!()
  })

  it('STREAM-03: events that commit between two pages come once, without a gap', async () => {
    const sessionId = await sessionWith(6)
    const stream = here.stream(sessionId, 0, { pageSize: 2 })
    const items: StreamItem[] = []
    for (let n = 0; n < 3; n++) items.push((await stream.next()).value)
    await append(there, sessionId, titled('a'), titled('b'), titled('c'))
    items.push(...(await takeUntil(stream, is('LogSynced'))))
    await append(there, sessionId, titled('d'))
    items.push(...(await takeUntil(stream, (item) => item.seq === 10)))
    expect(seqs(items)).toEqual(range(1, 10))
    expect(items.filter(is('LogSynced'))).toHaveLength(1)
    await stream.return!()
  })

  it('STREAM-03: an event that commits between the last page and the watermark comes before LogSynced, whose `through` names it', async () => {
    const sessionId = await sessionWith(3)
    let raced = false
    const racing = {
      ...here,
      // Nor does a ring tell of it.
      doorbell: { ...here.doorbell, listen: () => () => {} },
      eventLog: {
        async read(...args: Parameters<typeof here.eventLog.read>) {
          const page = await here.eventLog.read(...args)
          if (!raced && page.length === 0) {
            raced = true
            await append(there, sessionId, titled('in between'))
          }
          return page
        },
      },
    }
    const stream = sessionStream(racing, { sessionId, after: 3 })
    const items = await takeUntil(stream, is('LogSynced'))
    expect(raced).toBe(true)
    expect(seqs(items)).toEqual([4])
    expect(items.at(-1)).toMatchObject({ through: 4 })
    await stream.return!()
  })

  it('STREAM-04: five events with a page size of two are five events and one LogSynced', async () => {
    const sessionId = await sessionWith(5)
    const stream = here.stream(sessionId, 0, { pageSize: 2 })
    expect(names(await takeUntil(stream, is('LogSynced')))).toEqual([
      'SessionCreated',
      ...Array(4).fill('SessionUpdated'),
      'LogSynced',
    ])
    const next = stream.next()
    await append(here, sessionId, titled('x'))
    expect((await next).value).toMatchObject({ seq: 6 })
    await stream.return!()
  })

  it('STREAM-05: without events after the cursor, LogSynced comes at once', async () => {
    const sessionId = await sessionWith(3)
    const stream = here.stream(sessionId, 3)
    expect((await stream.next()).value).toMatchObject({ typename: 'LogSynced', through: 3 })
    await stream.return!()
  })

  it('STREAM-06: with every doorbell lost, an event of another process arrives within the poll interval', async () => {
    const deaf = streamProcess(database.url, { deaf: true, pollMs: 150 })
    const sessionId = await createSession(here)
    const stream = deaf.stream(sessionId)
    await takeUntil(stream, is('LogSynced'))
    const next = stream.next()
    await append(here, sessionId, titled('unheard'))
    const committed = Date.now()
    expect((await next).value).toMatchObject({ seq: 2 })
    // One interval, and what a loaded machine adds.
    expect(Date.now() - committed).toBeLessThan(2_000)
    await stream.return!()
    await deaf.close()
  })

  it('STREAM-07: an event that is shown is committed, and one that was refused is never shown', async () => {
    const sessionId = await createSession(here)
    const stream = there.stream(sessionId)
    await takeUntil(stream, is('LogSynced'))
    const next = stream.next()
    await expect(
      here.db.$transaction(async (tx) => {
        const outcome = await appendIn(tx, { sessionId, events: [titled('rolled back')] })
        expect(outcome.kind).toBe('appended')
        here.doorbell.ring([sessionId])
        there.doorbell.ring([sessionId])
        throw new Error('the commit does not happen')
      }),
    ).rejects.toThrow('does not happen')
    await append(here, sessionId, titled('committed'))
    const item = (await next).value as StreamItem
    expect(item).toMatchObject({ seq: 2, title: 'committed' })
    expect(await there.eventLog.read(sessionId, 1, 10)).toHaveLength(1)
    await stream.return!()
  })

  it('a payload field cannot hide what every item has', () => {
    const at = new Date()
    const odd = {
      type: 'session.parked',
      payload: { reason: 'r', seq: 99, typename: 'X' },
      sessionId: 's',
      seq: 1,
      at,
      appendId: 'a',
    }
    expect(itemOf(odd as never)).toEqual({ typename: 'SessionParked', reason: 'r', sessionId: 's', seq: 1, at })
  })

  it('fails for a session that does not exist instead of staying silent, and is done then', async () => {
    const stream = here.stream('ses_nowhere')
    await expect(stream.next()).rejects.toThrow(/no session ses_nowhere/)
    expect(await stream.next()).toEqual({ done: true, value: undefined })
    expect(here.doorbell.listeners()).toBe(0)
  })
})

describe('the iterator', () => {
  it('answers next() calls that are made at once in their order', async () => {
    const sessionId = await sessionWith(3)
    const stream = here.stream(sessionId)
    const results = await Promise.all(Array.from({ length: 4 }, () => stream.next()))
    expect(names(results.map((result) => result.value))).toEqual([
      'SessionCreated',
      'SessionUpdated',
      'SessionUpdated',
      'LogSynced',
    ])
    const both = [stream.next(), stream.next()]
    await append(here, sessionId, titled('a'), titled('b'))
    expect((await Promise.all(both)).map((result) => result.value.seq)).toEqual([4, 5])
    await stream.return!()
  })

  it('STREAM-15: return() and the signal end a pending wait at once', async () => {
    const sessionId = await createSession(here)
    const aborting = new AbortController()
    for (const end of [(stream: AsyncIterator<StreamItem>) => void stream.return!(), () => aborting.abort()]) {
      const stream = here.stream(sessionId, 1, { signal: aborting.signal })
      await stream.next()
      const pending = stream.next()
      end(stream)
      expect(await pending).toEqual({ done: true, value: undefined })
      expect(await stream.next()).toEqual({ done: true, value: undefined })
    }
    expect(here.doorbell.listeners()).toBe(0)
    expect(here.live.listeners()).toBe(0)
  })

  it('STREAM-15: return() during a read of the log neither waits for it nor loses an item', async () => {
    const sessionId = await sessionWith(3)
    const stream = here.stream(sessionId)
    const pending = stream.next()
    await stream.return!()
    expect(await pending).toEqual({ done: true, value: undefined })
  })

  it('STREAM-15: 10 000 opened and closed streams leave no listener, no timer and no stream behind', async () => {
    const clock = testClock()
    const many = streamProcess(database.url, { clock })
    const sessionId = await createSession(many)
    for (let round = 0; round < 100; round++) {
      const streams = Array.from({ length: 100 }, () => many.stream(sessionId, round % 2))
      // Some are closed before they were asked, some while they wait, some after an item.
      const asked = streams.slice(0, 20).map((stream) => stream.next())
      if (round % 10 === 0) await Promise.all(asked)
      const closed = performance.now()
      await Promise.all(streams.map((stream) => stream.return!()))
      expect(performance.now() - closed).toBeLessThan(1_000)
      await Promise.all(asked)
    }
    expect(many.doorbell.listeners()).toBe(0)
    expect(many.live.listeners()).toBe(0)
    expect(clock.timers().length).toBe(0)
    expect(many.counts.streams).toBe(0)
    expect(getEventListeners(many.stopping, 'abort')).toHaveLength(0)
    await many.close()
  }, 90_000)

  it('STREAM-01, STREAM-02: a client that drops and comes back 100 times while 2 000 events are written sees each once, in order', async () => {
    const sessionId = await createSession(here)
    const writing = (async () => {
      for (let n = 0; n < 1999; n += 1) {
        // Now and then several at once, as a step's append is.
        const group = Array.from({ length: Math.min(1 + (n % 7), 1999 - n) }, (_, i) => titled(`${n + i}`))
        await append(n % 2 ? here : there, sessionId, ...group)
        n += group.length - 1
      }
    })()
    const seen: number[] = []
    let drops = 0
    while (seen.length < 2000) {
      const stream = (drops % 2 ? here : there).stream(sessionId, seen.at(-1) ?? 0, { pageSize: 1 + (drops % 5) * 10 })
      const quota = drops < 100 ? 20 : 2000
      for (let n = 0; n < quota && seen.length < 2000; ) {
        const { value } = await stream.next()
        if (value.seq === null) continue
        seen.push(value.seq)
        n++
      }
      // Dropped while it waits for more.
      const dangling = stream.next()
      await stream.return!()
      await dangling
      drops++
    }
    await writing
    expect(drops).toBeGreaterThanOrEqual(100)
    expect(seen).toEqual(range(1, 2000))
    expect(here.doorbell.listeners() + there.doorbell.listeners()).toBe(0)
  }, 60_000)
})

describe('shutdown and slow readers', () => {
  it('STREAM-17: shutdown ends a waiting stream at once, one that is not asked with its next item, and a new one immediately', async () => {
    const stopping = streamProcess(database.url)
    const sessionId = await createSession(stopping)
    await append(stopping, sessionId, titled('two'))
    const waiting = stopping.stream(sessionId)
    await takeUntil(waiting, is('LogSynced'))
    const pending = waiting.next()
    const unasked = stopping.stream(sessionId)
    await unasked.next()
    stopping.stop.abort()
    expect((await pending).value).toMatchObject({
      typename: 'StreamEnded',
      cause: 'SERVER_SHUTDOWN',
      resumeAfter: 2,
      seq: null,
    })
    expect(await waiting.next()).toEqual({ done: true, value: undefined })
    expect(stopping.doorbell.listeners()).toBe(0)
    expect((await unasked.next()).value).toMatchObject({ cause: 'SERVER_SHUTDOWN', resumeAfter: 1 })
    expect(await unasked.next()).toEqual({ done: true, value: undefined })
    expect((await stopping.stream(sessionId, 2).next()).value).toMatchObject({
      cause: 'SERVER_SHUTDOWN',
      resumeAfter: 2,
    })
    await stopping.close()
  })

  it('PROMISE-085: a wall clock that is set forward ends no reader that is away for a moment', async () => {
    const clock = testClock()
    let ahead = 0
    const set = { now: () => clock.now() + ahead, monotonic: clock.now, setTimeout: clock.setTimeout }
    const stalling = streamProcess(database.url, { clock: set, stallMs: 60_000 })
    const sessionId = await createSession(stalling)
    const stream = stalling.stream(sessionId)
    await takeUntil(stream, is('LogSynced'))
    await append(stalling, sessionId, titled('two'))
    await clock.armed(200)
    ahead = 3_600_000
    await clock.advance(200)
    await until(() => clock.timers().length > 0, 'the stall timer')
    await clock.advance(1000)
    expect(stalling.counts.slowConsumers).toBe(0)
    expect((await stream.next()).value).toMatchObject({ seq: 2 })
    await stream.return?.()
    await stalling.close()
  })

  it('STREAM-13: a reader that takes nothing for the stall limit is ended when it passes, not before, and what it listened to is released', async () => {
    const clock = testClock()
    const stalling = streamProcess(database.url, { clock, stallMs: 60_000 })
    const sessionId = await createSession(stalling)
    const stream = stalling.stream(sessionId)
    await takeUntil(stream, is('LogSynced'))
    await append(stalling, sessionId, titled('two'), titled('three'))
    // The first look for something to take happens after a moment.
    await clock.advance(200)
    await until(() => clock.timers().length > 0, 'the stall timer')
    await clock.advance(59_700)
    expect(stalling.doorbell.listeners()).toBe(1)
    expect(stalling.counts.slowConsumers).toBe(0)
    await clock.advance(200)
    expect(stalling.doorbell.listeners()).toBe(0)
    expect(stalling.live.listeners()).toBe(0)
    expect(stalling.counts).toEqual({ slowConsumers: 1, streams: 0 })
    expect((await stream.next()).value).toMatchObject({
      typename: 'StreamEnded',
      cause: 'SLOW_CONSUMER',
      resumeAfter: 1,
    })
    expect(await stream.next()).toEqual({ done: true, value: undefined })
    expect(clock.timers().length).toBe(0)
    await stalling.close()
  })

  it('STREAM-13: a reader that never asks is ended after the limit; one with nothing to take never is', async () => {
    const clock = testClock()
    const stalling = streamProcess(database.url, { clock, stallMs: 60_000 })
    const sessionId = await createSession(stalling)
    let looks = 0
    const { read } = stalling.eventLog
    stalling.eventLog = {
      ...stalling.eventLog,
      async read(...args) {
        const found = await read(...args)
        looks++
        return found
      },
    }
    const never = stalling.stream(sessionId)
    const idle = stalling.stream(sessionId)
    await takeUntil(idle, is('LogSynced'))
    for (let second = 0; second < 300; second++) {
      if (second % 30 === 0) {
        // A ring without anything behind it is not something to take: it is looked at, and that is all.
        const before = looks
        stalling.doorbell.ring([sessionId])
        await clock.advance(200)
        await until(() => looks > before, 'the look')
      }
      await clock.advance(1_000)
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect((await never.next()).value).toMatchObject({
      typename: 'StreamEnded',
      cause: 'SLOW_CONSUMER',
      resumeAfter: 0,
    })
    expect(stalling.counts).toEqual({ slowConsumers: 1, streams: 1 })
    const next = idle.next()
    await append(stalling, sessionId, titled('still here'))
    expect((await next).value).toMatchObject({ seq: 2 })
    await idle.return!()
    await stalling.close()
  })

  it('STREAM-13: a reader that takes one item just before each limit is never ended, and sees every event', async () => {
    const clock = testClock()
    const stalling = streamProcess(database.url, { clock, stallMs: 60_000 })
    const sessionId = await createSession(stalling)
    for (let n = 0; n < 10; n++) await append(stalling, sessionId, titled(`${n}`))
    const stream = stalling.stream(sessionId)
    const items: StreamItem[] = []
    for (let n = 0; n < 12; n++) {
      items.push((await stream.next()).value)
      await clock.advance(200)
      // Behind the last there is nothing to take, and no time runs.
      if (n < 11) await until(() => clock.timers().length > 0, 'the stall timer')
      await clock.advance(59_000)
    }
    expect(seqs(items)).toEqual(range(1, 11))
    expect(names(items).at(-1)).toBe('LogSynced')
    expect(stalling.counts.slowConsumers).toBe(0)
    await stream.return!()
    await stalling.close()
  })

  it('a token that ends is the cause in the last item, which waits for no event', async () => {
    const sessionId = await createSession(here)
    let expire = () => {}
    const stream = here.stream(sessionId, 1, {
      whenUnauthenticated(then) {
        expire = then
        return () => {}
      },
    })
    await stream.next()
    const pending = stream.next()
    expire()
    expect((await pending).value).toMatchObject({ typename: 'StreamEnded', cause: 'UNAUTHENTICATED', resumeAfter: 1 })
    expect((await stream.next()).done).toBe(true)
  })
})
