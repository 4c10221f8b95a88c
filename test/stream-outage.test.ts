import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { UnavailableError } from '../src/errors.ts'
import { sessionStream } from '../src/session-stream.ts'
import type { StreamItem } from '../src/stream-item.ts'
import { testClock } from './support/clock.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { databaseProxy } from './support/database-proxy.ts'
import {
  append,
  createSession,
  is,
  joined,
  runningStep,
  type StreamProcess,
  seqs,
  streamProcess,
  takeUntil,
  titled,
  until,
} from './support/stream-process.ts'

let database: TestDatabase
let writer: StreamProcess
let admin: pg.Client

beforeAll(async () => {
  database = await createTestDatabase()
  writer = streamProcess(database.url)
  const at = new URL(database.url)
  at.pathname = '/postgres'
  admin = new pg.Client({ connectionString: at.href })
  await admin.connect()
})
afterAll(async () => {
  await admin.end()
  await writer.close()
  await database.drop()
})

const name = () => new URL(database.url).pathname.slice(1)

describe('STREAM-23: the database goes away during a stream', () => {
  it('STREAM-23: it goes on without gap or repeat when the database is back after 5 s', async () => {
    const proxy = await databaseProxy(database.url)
    const reading = streamProcess(proxy.url, { pollMs: 200 })
    const sessionId = await createSession(writer)
    const stream = reading.stream(sessionId)
    const items = await takeUntil(stream, is('LogSynced'))
    const taking = takeUntil(stream, (item) => item.seq === 12)
    for (let n = 0; n < 5; n++) await append(writer, sessionId, titled(`before ${n}`))
    expect(await proxy.down()).toBeGreaterThan(0)
    await expect(reading.db.$queryRaw`SELECT 1`).rejects.toThrow()
    // Written by others meanwhile, and the stream tries: it is rung although nothing can be read.
    for (let n = 0; n < 3; n++) await append(writer, sessionId, titled(`meanwhile ${n}`))
    const ringing = setInterval(() => reading.doorbell.ring([sessionId]), 100)
    await new Promise((resolve) => setTimeout(resolve, 5_000))
    clearInterval(ringing)
    await proxy.up()
    for (let n = 0; n < 3; n++) await append(writer, sessionId, titled(`after ${n}`))
    items.push(...(await taking))
    expect(seqs(items)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
    await stream.return!()
    await reading.close()
    await proxy.close()
  })

  it('STREAM-23: connections that are ended again and again cost no event and no text', async () => {
    const reading = streamProcess(database.url, { pollMs: 100 })
    const step = await runningStep(writer)
    const stream = reading.stream(step.sessionId)
    const items: StreamItem[] = []
    const taking = (async () => {
      for await (const item of stream) {
        items.push(item)
        if (item.typename === 'StepEnded') return
      }
    })()
    let ended = 0
    let whole = ''
    await step.begin()
    for (let turn = 0; turn < 10; turn++) {
      const { rowCount } = await admin.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()`,
        [name()],
      )
      ended += rowCount ?? 0
      whole += `turn ${turn} `
      step.add(`turn ${turn} `)
      await append(writer, step.sessionId, titled(`${turn}`))
      // Every other time the reader has come through before the next one, else it may still be at it.
      const isHere = (item: StreamItem) => item.typename === 'SessionUpdated' && item.title === `${turn}`
      if (turn % 2 === 1) await until(() => items.some(isHere), `title ${turn}`)
    }
    await step.end(whole)
    await step.settle()
    await taking
    expect(ended).toBeGreaterThan(10)
    expect(seqs(items)).toEqual(Array.from({ length: 19 }, (_, n) => n + 1))
    expect(joined(items)).toBe(whole)
    await stream.return!()
    await reading.close()
  })

  it('STREAM-23: when it stays away the stream ends with an error, and coming back with the cursor leaves no gap', async () => {
    const clock = testClock()
    const reading = streamProcess(database.url, { clock })
    const sessionId = await createSession(writer)
    let failed = 0
    let away = false
    const gone = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
    const failing: StreamProcess = {
      ...reading,
      eventLog: {
        ...reading.eventLog,
        async read(...args) {
          if (!away) return reading.eventLog.read(...args)
          failed++
          throw gone
        },
      },
    }
    const stream = sessionStream(failing, { sessionId, after: 0 })
    const items = await takeUntil(stream, is('LogSynced'))
    away = true
    const pending = stream.next()
    const outcome = pending.then(
      () => null,
      (error: unknown) => error,
    )
    let settled = false
    void outcome.then(() => (settled = true))
    await append(writer, sessionId, titled('unseen'))
    const from = clock.now()
    await until(async () => {
      await clock.advance(500)
      return settled
    }, 'the stream to give up')
    expect(failed).toBeGreaterThan(5)
    // Bounded tries: the back-off grows to about a second.
    expect(failed).toBeLessThan(100)
    expect(clock.now() - from).toBeGreaterThanOrEqual(30_000)
    expect(await outcome).toBeInstanceOf(UnavailableError)
    expect(await stream.next()).toEqual({ done: true, value: undefined })
    expect(reading.doorbell.listeners() + clock.timers().length).toBe(0)
    away = false
    const back = reading.stream(sessionId, seqs(items).at(-1)!)
    expect(seqs(await takeUntil(back, is('LogSynced')))).toEqual([2])
    await back.return!()
    await reading.close()
  })

  it('STREAM-23: an error that no try can mend ends the stream at once', async () => {
    const sessionId = await createSession(writer)
    const broken = {
      ...writer,
      eventLog: { read: async () => Promise.reject(new Error('a type this version does not know')) },
    }
    const stream = sessionStream(broken, { sessionId, after: 0 })
    await expect(stream.next()).rejects.toThrow('does not know')
    expect((await stream.next()).done).toBe(true)
  })
})
