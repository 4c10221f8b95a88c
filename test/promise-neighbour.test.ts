// What one tenant asks of the database takes nothing from the others: connections are given to tenants in turn, and large appends have a lane of
// their own. What is slow is a lock here, that ends when the test says so.
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { createAppendQueue } from '../src/append-queue.ts'
import { behalf, onBehalfOf, onOwnBehalf } from '../src/behalf.ts'
import { turnsOfPool, withConnectionTurns } from '../src/connection-turns.ts'
import { connect } from '../src/db.ts'
import { OverloadedError } from '../src/errors.ts'
import { event } from '../src/events.ts'
import { newMessageId } from '../src/ids.ts'
import { createLog } from '../src/log.ts'
import { createMetrics } from '../src/metrics.ts'
import { createPlaces } from '../src/places.ts'
import { createCoordinator } from '../src/runner/wake.ts'
import { sessionStream } from '../src/session-stream.ts'
import { type Beside, beside } from './support/beside.ts'
import { type Served, serveLog } from './support/served.ts'
import { created } from './support/story.ts'
import { createSession, newSessionId, streamProcess } from './support/stream-process.ts'

const [a, b] = ['a'.repeat(24), 'b'.repeat(24)]
const waitMs = { timeout: 30_000 }
const tenantOf = (tenant: string) =>
  event('session.created', { tenant, title: null, instructions: null, model: 'demo/echo' })

let served: Served
let outside: Beside
let watching: Beside
beforeAll(async () => {
  served = await serveLog({ pool: 5, env: { HOLDFAST_API_KEYS: `${a}:acme,${b}:beta` } })
  outside = await beside(served.database.url)
  watching = await beside(served.database.url)
})
afterAll(async () => {
  await outside?.close()
  await watching?.close()
  await served?.close()
})

/** Backends that wait for a lock. */
const blocked = async () => {
  const [row] = await watching.query(
    `SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
  )
  return row.n as number
}

describe('connections', () => {
  const turns = () => createPlaces({ ...turnsOfPool(5, false), waitingOfTenant: 20 })

  it('PROMISE-301: a tenant whose statements all take their time has a part of the connections; another tenant and the process itself are served meanwhile', async () => {
    const places = turns()
    const db = connect(served.database.url, 5, undefined, undefined, places)
    await outside.query('SELECT pg_advisory_lock(301)')
    let answered = 0
    const slow = (tenant: string, n: number) =>
      onBehalfOf(tenant, () =>
        n % 2
          ? db.$queryRaw`SELECT 1 FROM pg_advisory_xact_lock_shared(301)`
          : db.$transaction((tx) => tx.$queryRaw`SELECT 1 FROM pg_advisory_xact_lock_shared(301)`),
      ).finally(() => {
        answered++
      })
    const all = Promise.all(Array.from({ length: 10 }, (_, n) => slow('acme', n)))
    await vi.waitFor(async () => expect(await blocked()).toBe(2), waitMs)
    expect(await onBehalfOf('beta', () => db.$queryRaw`SELECT 1 AS one`)).toEqual([{ one: 1 }])
    expect(await onBehalfOf('beta', () => db.$transaction((tx) => tx.$queryRaw`SELECT 2 AS two`))).toEqual([{ two: 2 }])
    expect([answered, await blocked(), places.waiting()]).toEqual([0, 2, 8])
    const others = Promise.all(Array.from({ length: 3 }, (_, n) => slow('beta', n)))
    await vi.waitFor(async () => expect(await blocked()).toBe(4), waitMs)
    expect(await onBehalfOf('acme', () => onOwnBehalf(() => db.$queryRaw`SELECT 3 AS three`))).toEqual([{ three: 3 }])
    expect(await db.session.count()).toBe(0)
    expect([answered, await blocked(), places.waiting()]).toEqual([0, 4, 9])
    await outside.query('SELECT pg_advisory_unlock(301)')
    await Promise.all([all, others])
    // Also after those that failed.
    await expect(onBehalfOf('acme', () => db.$queryRaw`SELECT 1/0`)).rejects.toThrow()
    await expect(onBehalfOf('acme', () => db.$transaction((tx) => tx.$queryRaw`SELECT 1/0`))).rejects.toThrow()
    expect([places.running(), places.waiting()]).toEqual([0, 0])
    await db.$disconnect()
  })

  it('PROMISE-302: a tenant that waits too long for its turn, or behind too many of its own, is told that the server is overloaded; one that is alone has all but those of the process', async () => {
    const places = createPlaces({ most: 1, mostOfTenant: 1, waitingOfTenant: 1 })
    const leave = await places.enter('acme', new AbortController().signal)
    const db = connect(served.database.url, 5, undefined, undefined, places)
    const first = onBehalfOf('acme', () => db.$queryRaw`SELECT 1`)
    const second = onBehalfOf('acme', () => db.$queryRaw`SELECT 1`)
    await expect(second).rejects.toBeInstanceOf(OverloadedError)
    await expect(onBehalfOf('acme', () => db.$transaction(async () => {}))).rejects.toBeInstanceOf(OverloadedError)
    leave!()
    await first
    await db.$disconnect()
    const adapter = { queryRaw: async () => 'answered', executeRaw: async () => 0, startTransaction: async () => {} }
    const held = await places.enter('acme', new AbortController().signal)
    const soon = await withConnectionTurns({ connect: async () => adapter }, places, 10).connect()
    await expect(onBehalfOf('acme', () => soon.queryRaw())).rejects.toBeInstanceOf(OverloadedError)
    held!()
    expect(await onBehalfOf('acme', () => soon.queryRaw())).toBe('answered')
    expect([places.running(), places.waiting()]).toEqual([0, 0])
    expect(turnsOfPool(10, false)).toEqual({ most: 8, mostOfTenant: 4 })
    expect(turnsOfPool(10, true)).toEqual({ most: 8, mostOfTenant: 8 })
    expect(turnsOfPool(1, false)).toEqual({ most: 1, mostOfTenant: 1 })
  })

  it('PROMISE-303: queries, mutations and streams of a tenant that hang in the database keep no other tenant from being answered', async () => {
    const post = (token: string, query: string, accept = 'application/json', signal?: AbortSignal) =>
      fetch(served.endpoint, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${token}`, accept },
        body: JSON.stringify({ query }),
        ...(signal && { signal }),
      })
    const id = 'ses_neighbour1'
    await served.append(id, tenantOf('acme'))
    await served.append('ses_neighbour2', tenantOf('beta'))
    const leaving = new AbortController()
    let answered = 0
    await outside.query('BEGIN; LOCK TABLE "Event", "Message", "Input" IN ACCESS EXCLUSIVE MODE')
    const hanging = [
      ...Array.from({ length: 12 }, () => post(a, `{ session(id: "${id}") { messages { edges { node { id } } } } }`)),
      ...Array.from({ length: 12 }, () =>
        post(
          a,
          `mutation { withdrawPrompt(input: { sessionId: "${id}", messageId: "msg_neighbour" }) { __typename } }`,
        ),
      ),
      ...Array.from({ length: 12 }, () =>
        post(a, `subscription { sessionEvents(sessionId: "${id}") { seq } }`, 'text/event-stream', leaving.signal).then(
          (response) => response.text(),
        ),
      ),
    ].map((one) =>
      Promise.resolve(one).then(
        () => answered++,
        () => {},
      ),
    )
    await vi.waitFor(async () => expect(await blocked()).toBe(2), waitMs)
    const answer = await post(b, '{ session(id: "ses_neighbour2") { id } }')
    expect(await answer.json()).toEqual({ data: { session: { id: 'ses_neighbour2' } } })
    expect(answered).toBe(0)
    expect(await blocked()).toBe(2)
    await outside.query('COMMIT')
    leaving.abort()
    await Promise.all(hanging)
  })
})

it("PROMISE-305: a stream takes its tenant's turn for what it reads, whoever rang", async () => {
  const places = createPlaces({ most: 1, mostOfTenant: 1, waitingOfTenant: 10 })
  const db = connect(served.database.url, 2, undefined, undefined, places)
  const here = streamProcess(served.database.url)
  const sessionId = await createSession(here, 'acme')
  const leave = await places.enter('acme', new AbortController().signal)
  const stream = sessionStream({ ...here, db }, { sessionId, after: 0, holder: 'acme' })
  const first = stream.next()
  await vi.waitFor(() => expect(places.waiting()).toBe(1), waitMs)
  leave!()
  expect((await first).value).toMatchObject({ seq: 1 })
  await stream.return!()
  await here.close()
  await db.$disconnect()
})

it('PROMISE-306: a session runs on behalf of the process, whoever woke it', async () => {
  const seen: unknown[] = []
  const metrics = createMetrics()
  const coordinator = createCoordinator({
    maxDrains: 1,
    drain: async () => {
      seen.push(behalf())
      return { again: false }
    },
    log: createLog('silent'),
    metrics,
  })
  await onBehalfOf('acme', () => {
    coordinator.wake('ses_one')
    coordinator.wake('ses_two')
    expect(behalf()).toBe('acme')
  })
  await coordinator.idle()
  expect(seen).toEqual([null, null])
})

it('PROMISE-304: large appends go one after the other, tenants in turn, and nobody else waits behind them', async () => {
  const db = connect(served.database.url, 5)
  const committed: string[] = []
  const queue = createAppendQueue({ db, origin: 'own_.lanes', committed: (ids) => void committed.push(...ids) })
  const sessions = Array.from({ length: 7 }, newSessionId)
  for (const sessionId of sessions) await queue.append({ sessionId, events: [created()] })
  committed.length = 0
  await outside.query(`CREATE FUNCTION hold_large() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_advisory_xact_lock_shared(304); RETURN NEW; END $$`)
  await outside.query(`CREATE TRIGGER hold_large BEFORE INSERT ON "Event"
    FOR EACH ROW WHEN (length(NEW.payload->>'text') > 1000000) EXECUTE FUNCTION hold_large()`)
  await outside.query('SELECT pg_advisory_lock(304)')
  const append = (tenant: string, n: number, text: string) => {
    const say = event('synthetic.appended', { messageId: newMessageId(), text, hidden: true })
    return onBehalfOf(tenant, () => queue.append({ sessionId: sessions[n]!, events: [say] }))
  }
  const large = 'x'.repeat(2_000_000)
  const waiting = [
    append('acme', 0, large),
    append('acme', 1, large),
    append('acme', 2, large),
    // Behind the large one of its own session, in the order in which they came.
    append('acme', 2, 'after'),
    append('beta', 3, large),
  ]
  await vi.waitFor(async () => expect(await blocked()).toBeGreaterThan(0), waitMs)
  for (const n of [4, 5, 6]) expect((await append('beta', n, 'small')).kind).toBe('appended')
  expect(committed).toEqual(sessions.slice(4))
  expect(await blocked()).toBe(1)
  await outside.query('SELECT pg_advisory_unlock(304)')
  expect((await Promise.all(waiting)).map(({ kind }) => kind)).toEqual(waiting.map(() => 'appended'))
  const [one, two, three, beta] = sessions
  expect(committed.slice(3, 6)).toEqual([one, beta, two])
  expect(committed.slice(6)).toEqual([three, three])
  await queue.idle()
  await outside.query('DROP FUNCTION hold_large() CASCADE')
  await db.$disconnect()
})
