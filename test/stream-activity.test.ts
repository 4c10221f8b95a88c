import { getEventListeners } from 'node:events'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { activityStream } from '../src/activity-stream.ts'
import { testClock } from './support/clock.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import {
  append,
  createSession,
  runningStep,
  type StreamProcess,
  streamProcess,
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

/** What the reader of a list does with an item: reads the session as it is then. */
const titleOf = async (sessionId: string) =>
  (await here.db.session.findUniqueOrThrow({ where: { id: sessionId } })).title

describe('session activity', () => {
  it('STREAM-22: one item after a change, made here or in another process, with the committed state', async () => {
    const stream = activityStream(here, { tenant: 'default' })
    for (const process of [here, there]) {
      const next = stream.next()
      const sessionId = await createSession(process)
      expect((await next).value).toEqual({ sessionId })
      const again = stream.next()
      await append(process, sessionId, titled('renamed'))
      expect((await again).value).toEqual({ sessionId })
      expect(await titleOf(sessionId)).toBe('renamed')
    }
    await stream.return!()
  })

  it('STREAM-22: a burst is merged, and the last state is never left out', async () => {
    const sessionId = await createSession(here)
    const stream = activityStream(here, { tenant: 'default' })
    const seen: (string | null)[] = []
    const writing = (async () => {
      for (let n = 1; n <= 200; n++) await append(n % 2 ? here : there, sessionId, titled(`${n}`))
    })()
    let items = 0
    while (seen.at(-1) !== '200') {
      expect((await stream.next()).value).toEqual({ sessionId })
      seen.push(await titleOf(sessionId))
      items++
    }
    await writing
    expect(items).toBeLessThanOrEqual(200)
    // While nobody asks, changes of three sessions are three items at most.
    const others = [await createSession(here), await createSession(there)]
    for (let n = 0; n < 20; n++) for (const id of others) await append(here, id, titled(`${n}`))
    await append(here, sessionId, titled('last'))
    const rest = [await stream.next(), await stream.next(), await stream.next()].map((item) => item.value.sessionId)
    expect(new Set(rest)).toEqual(new Set([sessionId, ...others]))
    // A ring with nothing behind it is no activity: the next item is of what really moves next.
    const next = stream.next()
    here.doorbell.ring([sessionId, ...others], true)
    const fresh = await createSession(here)
    expect((await next).value).toEqual({ sessionId: fresh })
    await stream.return!()
  })

  it('STREAM-22: live text is no activity', async () => {
    const step = await runningStep(there)
    await step.begin()
    const stream = activityStream(here, { tenant: 'default' })
    const seen: string[] = []
    const reading = (async () => {
      for await (const { sessionId } of stream) seen.push(sessionId)
    })()
    for (let n = 0; n < 20; n++) {
      step.add('text ')
      await there.live.flush()
    }
    const last = await createSession(there)
    await until(() => seen.includes(last), 'the last session')
    // The first ring of a session may be told once, since what its reader has is not known.
    expect(seen.filter((id) => id === step.sessionId).length).toBeLessThanOrEqual(1)
    await stream.return!()
    await reading
  })

  it('STREAM-22: sessions of other tenants are not told of', async () => {
    const stream = activityStream(here, { tenant: 'mine' })
    const next = stream.next()
    await createSession(here, 'theirs')
    await createSession(there, 'theirs')
    const mine = await createSession(there, 'mine')
    expect((await next).value).toEqual({ sessionId: mine })
    await stream.return!()
  })

  it('STREAM-22, STREAM-06: with every doorbell lost the poll finds what moved, new sessions too, and only what moved since', async () => {
    const deaf = streamProcess(database.url, { deaf: true, pollMs: 100 })
    const old = await createSession(here)
    const stream = activityStream(deaf, { tenant: 'default' })
    const next = stream.next()
    const fresh = await createSession(here)
    const got = [(await next).value.sessionId]
    await append(here, old, titled('moved'))
    while (!got.includes(old)) got.push((await stream.next()).value.sessionId)
    await append(here, fresh, titled('again'))
    got.push((await stream.next()).value.sessionId)
    expect(got).toEqual([fresh, old, fresh])
    await stream.return!()
    await deaf.close()
  })

  it('STREAM-15: closing and aborting leave no listener and no poll; shutdown ends it', async () => {
    const clock = testClock()
    const counted = streamProcess(database.url, { clock })
    const aborting = new AbortController()
    const streams = Array.from({ length: 1000 }, () =>
      activityStream(counted, { tenant: 'default', signal: aborting.signal }),
    )
    const pending = streams.map((stream) => stream.next())
    expect(clock.timers().length).toBe(1)
    for (const stream of streams.slice(0, 500)) void stream.return!()
    aborting.abort()
    expect((await Promise.all(pending)).every((item) => item.done)).toBe(true)
    expect(counted.doorbell.listeners()).toBe(0)
    expect(clock.timers().length).toBe(0)
    expect(getEventListeners(counted.stopping, 'abort')).toHaveLength(0)
    const last = activityStream(counted, { tenant: 'default' })
    const waiting = last.next()
    counted.stop.abort()
    expect(await waiting).toEqual({ done: true, value: undefined })
    expect(counted.doorbell.listeners() + clock.timers().length).toBe(0)
    await counted.close()
  })
})
