// What listens to live text and to activity: nobody is cut off by another's end, and a reader that is away costs nothing.
import { afterAll, beforeAll, expect, it } from 'vitest'
import { activityStream } from '../src/activity-stream.ts'
import type { Db } from '../src/db.ts'
import { event } from '../src/events.ts'
import { readWatermark } from '../src/stream-watermark.ts'
import { testClock } from './support/clock.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { createSession, runningStep, type StreamProcess, streamProcess } from './support/stream-process.ts'

let database: TestDatabase
let here: StreamProcess
beforeAll(async () => {
  database = await createTestDatabase()
  here = streamProcess(database.url, { clock: testClock(), deaf: true })
})
afterAll(async () => {
  await here?.close()
  await database?.drop()
})

it('PROMISE-277: who stops listening to live text twice cuts nobody off who began in between, and a session that nobody listens to is not kept', async () => {
  const step = await runningStep(here)
  await step.begin()
  const stopFirst = here.live.listen(step.sessionId, () => {})
  stopFirst()
  let heard = 0
  const stopSecond = here.live.listen(step.sessionId, () => heard++)
  stopFirst()
  step.add('x')
  expect(heard).toBe(1)
  stopSecond()
  expect(here.live.listeners()).toBe(0)
})

it('PROMISE-278: while its reader is away an activity stream reads nothing, and all that has rung in one statement afterwards', async () => {
  let statements = 0
  const db = new Proxy(here.db, {
    get: (target, property) =>
      property !== '$queryRaw'
        ? Reflect.get(target, property)
        : (...sql: Parameters<Db['$queryRaw']>) => {
            statements++
            return target.$queryRaw(...sql)
          },
  }) as Db
  const sessions = [await createSession(here), await createSession(here), await createSession(here)]
  const stream = activityStream({ ...here, db }, { tenant: 'default' })
  for (const sessionId of sessions) {
    here.doorbell.ring([sessionId], true)
    await new Promise((resolve) => setImmediate(resolve))
  }
  const got = [await stream.next(), await stream.next(), await stream.next()].map(({ value }) => value.sessionId)
  expect(got.sort()).toEqual([...sessions].sort())
  expect(statements).toBe(1)
  await stream.return!()
})

it('STREAM-27: where a stream passes to live, only parts and calls that have not ended count as open', async () => {
  const step = await runningStep(here)
  const { messageId, sessionId } = step
  const call = { messageId, name: 'work' }
  await step.append(
    event('text.started', { messageId, index: 0 }),
    event('text.ended', { messageId, index: 0, text: 'said' }),
    event('tool.input_started', { ...call, index: 1, callId: 'call_done' }),
    event('tool.called', { ...call, index: 1, callId: 'call_done', toolInput: {} }),
    event('tool.started', { messageId, callId: 'call_done' }),
    event('tool.succeeded', { messageId, callId: 'call_done', output: 'done' }),
    event('tool.input_started', { ...call, index: 2, callId: 'call_runs' }),
    event('tool.called', { ...call, index: 2, callId: 'call_runs', toolInput: {} }),
    event('tool.started', { messageId, callId: 'call_runs' }),
    event('tool.input_started', { ...call, index: 3, callId: 'call_begins' }),
    event('reasoning.started', { messageId, index: 4 }),
  )
  const { parts, running } = (await readWatermark(here.db, sessionId))!
  expect(parts.map(({ index, kind }) => [index, kind])).toEqual([
    [4, 'REASONING'],
    [3, 'TOOL_INPUT'],
  ])
  expect(running).toEqual([{ messageId, callId: 'call_runs' }])
})
