// A session with a million events: what is asked of it costs what is answered, not what it holds.
import { afterAll, beforeAll, expect, it } from 'vitest'
import { event } from '../src/events.ts'
import { collectGarbage } from './support/memory.ts'
import { type Served, serveLog } from './support/served.ts'

const sessionId = 'ses_million0001'
const events = 1_000_000
/** Every fifth event is a message. */
const messages = events / 5

let served: Served
beforeAll(async () => {
  served = await serveLog()
  served.database.exempt('all', 'written as rows, and a million events to replay')
  await served.append(
    sessionId,
    event('session.created', { tenant: 'default', title: null, instructions: null, model: 'demo/echo' }),
  )
  // Written as rows: through the one door it would take an hour.
  const { db } = served.core
  // In pieces: a connection on which nothing comes for half a minute is given up.
  const piece = 100_000
  for (let from = 2; from <= events; from += piece) {
    const to = Math.min(from + piece - 1, events)
    await db.$executeRaw`
      INSERT INTO "Event" ("sessionId", seq, type, payload, at, "appendId", ordinal)
      SELECT ${sessionId}, n, 'synthetic.appended', jsonb_build_object('messageId', 'msg_.m' || n, 'text', 'note ' || n, 'hidden', true),
             now(), gen_random_uuid(), 0
        FROM generate_series(${from}::int, ${to}::int) n`
    await db.$executeRaw`
      INSERT INTO "Message" (id, "sessionId", kind, seq, "createdAt", text, hidden)
      SELECT 'msg_.m' || n, ${sessionId}, 'SYNTHETIC', n, now(), 'note ' || n, true
        FROM generate_series(${from}::int, ${to}::int) n WHERE n % 5 = 0`
  }
  await db.$executeRaw`UPDATE "Session" SET seq = ${events} WHERE id = ${sessionId}`
  await db.$executeRawUnsafe('ANALYZE "Event", "Message"')
}, 180_000)
afterAll(() => served?.close())

interface Page {
  edges: { cursor: string; node: { seq: number } }[]
  pageInfo: { hasNextPage: boolean; hasPreviousPage: boolean }
}

async function page(args: string): Promise<Page> {
  const { data, errors } = await served.ask(
    `{ session(id: "${sessionId}") { messages(${args}) { edges { cursor node { seq } } pageInfo { hasNextPage hasPreviousPage } } } }`,
  )
  expect(errors).toBeUndefined()
  return data.session.messages
}

/** The fastest of several: what a busy machine adds to the others is not what is measured. */
async function fastestMs(operation: () => Promise<unknown>): Promise<number> {
  let fastest = Number.POSITIVE_INFINITY
  for (let n = 0; n < 15; n++) {
    const begun = performance.now()
    await operation()
    fastest = Math.min(fastest, performance.now() - begun)
  }
  return fastest
}

it('API-12: 20 messages of a session of one million events, at its beginning, its end or anywhere between, take at most 50 ms', async () => {
  const middle = Buffer.from(JSON.stringify(['messages', events / 2])).toString('base64url')
  for (const [args, first, more] of [
    ['first: 20', 5, { hasNextPage: true, hasPreviousPage: false }],
    ['last: 20', events - 95, { hasNextPage: false, hasPreviousPage: true }],
    [`first: 20, after: "${middle}"`, events / 2 + 5, { hasNextPage: true, hasPreviousPage: true }],
    [`last: 20, before: "${middle}"`, events / 2 - 100, { hasNextPage: true, hasPreviousPage: true }],
  ] as const) {
    const { edges, pageInfo } = await page(args)
    expect(edges.map(({ node }) => node.seq)).toEqual(Array.from({ length: 20 }, (_, n) => first + 5 * n))
    expect(pageInfo).toEqual(more)
    expect(await fastestMs(() => page(args)), args).toBeLessThan(50)
  }
  expect(await served.core.db.message.count({ where: { sessionId } })).toBe(messages)
})

it('API-12: reading it page by page keeps memory flat', async () => {
  for (let n = 0; n < 20; n++) await page('last: 20')
  collectGarbage()
  const before = process.memoryUsage().heapUsed
  for (let n = 0; n < 200; n++) await page(n % 2 ? 'first: 20' : 'last: 20')
  collectGarbage()
  expect((process.memoryUsage().heapUsed - before) / 1024 / 1024).toBeLessThan(16)
})

it('STREAM-05: a stream from the end of it begins at once, and `events` anywhere in it costs what it answers', async () => {
  const { sessionStream } = await import('../src/session-stream.ts')
  const begin = async () => {
    const stream = sessionStream(served.core, { sessionId, after: events })
    expect((await stream.next()).value).toMatchObject({ typename: 'LogSynced', through: events })
    await stream.return!()
  }
  expect(await fastestMs(begin)).toBeLessThan(50)
  const some = () => served.ask(`{ session(id: "${sessionId}") { events(after: 700000, first: 20) { seq } } }`)
  expect((await some()).data.session.events[0]).toEqual({ seq: 700_001 })
  expect(await fastestMs(some)).toBeLessThan(50)
})
