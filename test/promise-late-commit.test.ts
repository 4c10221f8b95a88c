// An append whose connection broke goes on in the database: its commit can come after it was looked for, and before it is tried again.
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { AppendRequest } from '../src/append.ts'
import { createAppendQueue } from '../src/append-queue.ts'
import type { Db, Tx } from '../src/db.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { eventually } from './support/eventually.ts'
import { created } from './support/story.ts'
import { newSessionId, type StreamProcess, streamProcess, titled } from './support/stream-process.ts'

let database: TestDatabase
let beside: StreamProcess
beforeAll(async () => {
  database = await createTestDatabase()
  beside = streamProcess(database.url)
})
afterAll(async () => {
  await beside?.close()
  await database?.drop()
})

/**
 * A client whose first append is not answered. `late` is what becomes of it in the database once the second one is asked for: it carries it
 * out, and gives the answer of the second.
 */
function forgetful(
  late: (first: (on: Tx) => Promise<unknown>, second: () => Promise<unknown>) => Promise<unknown>,
): Db {
  let first: ((on: Tx) => Promise<unknown>) | null = null
  let calls = 0
  return new Proxy(beside.db, {
    get(db, name, receiver) {
      if (name !== '$queryRaw') return Reflect.get(db, name, receiver)
      return (sql: TemplateStringsArray, ...values: unknown[]) => {
        const ask = () => db.$queryRaw(sql, ...values)
        if (!sql.join('').includes('holdfast_append')) return ask()
        calls++
        if (calls === 1) {
          first = (on) => on.$queryRaw(sql, ...values)
          return Promise.reject(Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' }))
        }
        return calls === 2 ? late(first!, ask) : ask()
      }
    },
  })
}

const queueOn = (db: Db) => createAppendQueue({ db, origin: 'own_.late', committed: () => {} })
const typesOf = async (sessionId: string) => (await beside.eventLog.read(sessionId, 0, 100)).map(({ type }) => type)

describe('PROMISE-08: an append without an answer', () => {
  it.each([
    ['a creation', true],
    ['a change that expects what it saw', false],
  ])(
    'PROMISE-087: %s that commits between the look for it and the second try is told as stored, once',
    async (_what, creates) => {
      const sessionId = newSessionId()
      if (!creates) await beside.eventLog.append({ sessionId, events: [created()] })
      const request: AppendRequest = creates
        ? { sessionId, events: [created()] }
        : { sessionId, events: [titled('mine')], expectedSeq: 1 }
      let came = 0
      const db = forgetful(async (first, second) => {
        await first(beside.db)
        came++
        return second()
      })
      expect(await queueOn(db).append(request)).toMatchObject({ kind: 'appended', seq: creates ? 1 : 2 })
      expect(came).toBe(1)
      expect(await typesOf(sessionId)).toEqual(creates ? ['session.created'] : ['session.created', 'session.updated'])
    },
  )

  it('PROMISE-088: a creation whose INSERT is not committed yet while it is tried again is its own', async () => {
    const sessionId = newSessionId()
    let waited = 0
    const db = forgetful(async (first, second) => {
      let met: Promise<unknown> = Promise.resolve()
      await beside.db.$transaction(async (tx) => {
        await first(tx)
        // A Prisma promise is not asked before somebody waits for it.
        met = (async () => second())()
        // The row is not there yet for whoever looks, and in the way of whoever inserts.
        await eventually('the second waits for the first', async () => {
          const rows = await beside.db.$queryRaw<unknown[]>`
            SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%holdfast_append%'`
          return rows.length > 0
        })
        waited++
      })
      return met
    })
    expect(await queueOn(db).append({ sessionId, events: [created()] })).toMatchObject({ kind: 'appended', seq: 1 })
    expect(waited).toBe(1)
    expect(await typesOf(sessionId)).toEqual(['session.created'])
  })
})
