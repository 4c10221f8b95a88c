import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest'
import { createAppendQueue } from '../src/append-queue.ts'
import { connect, type Db } from '../src/db.ts'
import type { AppendRequest } from '../src/event-log.ts'
import { event } from '../src/events.ts'
import { newExecutionId } from '../src/ids.ts'
import { inconsistencies } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { type LossyWire, lossyWire } from './support/lost-reply.ts'
import { admitted, created } from './support/story.ts'
import { newSessionId, type StreamProcess, streamProcess, titled } from './support/stream-process.ts'

// The reply to a commit is lost: the append's own id in the log decides what had become of it (design section 3, ambiguous commit).

let database: TestDatabase
let beside: StreamProcess
let wire: LossyWire
let db: Db
beforeAll(async () => {
  database = await createTestDatabase()
  beside = streamProcess(database.url)
})
afterAll(async () => {
  await beside?.close()
  await database?.drop()
})
beforeEach(async () => {
  wire = await lossyWire(database.url)
  db = connect(wire.url, 4)
})
afterEach(async () => {
  await db.$disconnect()
  await wire.close()
  expect(await inconsistencies(beside.db)).toEqual([])
})

const newSession = async () => {
  const sessionId = newSessionId()
  await beside.eventLog.append({ sessionId, events: [created()] })
  return sessionId
}
const titlesOf = async (sessionId: string) =>
  (await beside.eventLog.read(sessionId, 1, 1000)).map(({ type, payload }) =>
    type === 'session.updated' ? payload.title : type,
  )

it('LOG-21: a group whose reply is lost: each append is found by its id, applied once, and told as it was stored', async () => {
  const busy = await Promise.all([newSession(), newSession()])
  const sessions = await Promise.all(Array.from({ length: 16 }, newSession))
  const committed: string[] = []
  const sizes: number[] = []
  const queue = createAppendQueue({
    db,
    origin: 'own_.lossy',
    committed: (ids) => void committed.push(...ids),
    observe: ({ groupSize }) => void sizes.push(groupSize),
  })
  wire.lose(['holdfast_append', 'to be lost'])
  for (const sessionId of busy) void queue.append({ sessionId, events: [titled('first')] })
  // Two of the group are refused by their fence or number: what was not stored must not be told as stored.
  const executionId = newExecutionId()
  const requests = sessions.map((sessionId, n): AppendRequest => {
    const events = [titled('to be lost'), admitted(`msg_lost-${process.pid}-${n}`)]
    if (n === 4) return { sessionId, events, expectedSeq: 9 }
    if (n === 5) return { sessionId, events, fence: { executionId, owner: null, phases: null } }
    if (n === 6) {
      const claim = { kind: 'acquire', executionId, owner: 'own_.lossy', leaseMs: 60_000 } as const
      return { sessionId, events: [...events, event('execution.started', { executionId })], claim }
    }
    return { sessionId, events }
  })
  const outcomes = await Promise.all(requests.map((request) => queue.append(request)))
  expect(wire.lost()).toBe(1)
  // The group was committed and is not in the books; besides the two before it only the two refused ones were asked again.
  expect(sizes).toEqual([1, 1, 1, 1])
  expect(outcomes.map(({ kind }) => kind)).toEqual(
    sessions.map((_, n) => (n === 4 ? 'stale' : n === 5 ? 'fenced' : 'appended')),
  )
  for (const [n, sessionId] of sessions.entries()) {
    const stored = await beside.eventLog.read(sessionId, 1, 100)
    const outcome = outcomes[n]!
    if (outcome.kind !== 'appended') {
      expect(stored).toEqual([])
      continue
    }
    expect(stored.map(({ appendId }) => appendId)).toEqual(requests[n]!.events.map(() => outcome.appendId))
    expect([outcome.seq, outcome.lastSeq, outcome.at]).toEqual([2, 1 + requests[n]!.events.length, stored[0]!.at])
  }
  expect(committed.filter((id) => sessions.includes(id)).toSorted()).toEqual(
    sessions.filter((_, n) => n !== 4 && n !== 5).toSorted(),
  )
  expect(await beside.db.claim.count({ where: { executionId } })).toBe(1)
})

it('LOG-21: the same for one alone, for a new session, and for a reply that is lost again and again', async () => {
  const queue = createAppendQueue({ db, origin: 'own_.lossy', committed: () => {} })
  const sessionId = await newSession()
  wire.lose(['holdfast_append', 'alone'])
  expect(await queue.append({ sessionId, events: [titled('alone')] })).toMatchObject({ kind: 'appended', seq: 2 })
  expect(wire.lost()).toBe(1)
  const fresh = newSessionId()
  wire.lose(['holdfast_append', fresh])
  expect(await queue.append({ sessionId: fresh, events: [created('fresh')] })).toMatchObject({
    kind: 'appended',
    seq: 1,
  })
  expect(wire.lost()).toBe(2)
  // The look-up loses its reply as well.
  wire.lose([sessionId], 4)
  expect(await queue.append({ sessionId, events: [titled('again')] })).toMatchObject({ kind: 'appended', seq: 3 })
  expect(wire.lost()).toBe(6)
  expect(await titlesOf(sessionId)).toEqual(['alone', 'again'])
})

it('LOG-21: one whose reply is lost keeps its place: the next of its session goes behind it and sees it', async () => {
  const queue = createAppendQueue({ db, origin: 'own_.lossy', committed: () => {} })
  const sessionId = await newSession()
  wire.lose(['holdfast_append', 'lost one'])
  const outcomes = await Promise.all([
    queue.append({ sessionId, events: [titled('lost one')], expectedSeq: 1 }),
    queue.append({ sessionId, events: [titled('stale one')], expectedSeq: 1 }),
    queue.append({ sessionId, events: [titled('next one')], expectedSeq: 2 }),
  ])
  expect(wire.lost()).toBe(1)
  expect(outcomes).toMatchObject([{ kind: 'appended', seq: 2 }, { kind: 'stale' }, { kind: 'appended', seq: 3 }])
  expect(await titlesOf(sessionId)).toEqual(['lost one', 'next one'])
})

it('LOG-21: what others append between the commit and the look-up does not hide it', async () => {
  const queue = createAppendQueue({ db, origin: 'own_.lossy', committed: () => {} })
  const sessionId = await newSession()
  wire.lose(['holdfast_append', 'hidden'])
  const appending = queue.append({ sessionId, events: [titled('hidden'), titled('hidden too')] })
  while (wire.lost() === 0) await new Promise((resolve) => setImmediate(resolve))
  await beside.eventLog.append({ sessionId, events: [titled('other')] })
  expect(await appending).toMatchObject({ kind: 'appended', seq: 2, lastSeq: 3 })
  expect(await titlesOf(sessionId)).toEqual(['hidden', 'hidden too', 'other'])
})
