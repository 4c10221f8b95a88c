// Live text in chunks has no hole, whatever becomes of a flush and its answer: what a recovery makes of it is what the model has said, up to
// some point (point 9 of the promise).
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { connect, type Db } from '../src/db.ts'
import { createLiveText, type LiveText } from '../src/live-text.ts'
import { readOpen } from '../src/runner/settle-open.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { fault } from './support/faults.ts'
import { type LossyWire, lossyWire } from './support/lost-reply.ts'
import { type RunningStep, runningStep, type StreamProcess, streamProcess } from './support/stream-process.ts'

let database: TestDatabase
let here: StreamProcess
let wire: LossyWire
let db: Db
let live: LiveText
let warned: string[]

beforeAll(async () => {
  database = await createTestDatabase()
  here = streamProcess(database.url)
  wire = await lossyWire(database.url)
  db = connect(wire.url, 2)
})
afterAll(async () => {
  await db?.$disconnect()
  await wire?.close()
  await here?.close()
  await database?.drop()
})
afterEach(() => live.close())

/** A step whose text is flushed over the wire, when the test says so. */
async function talking(): Promise<RunningStep & { say(text: string): Promise<void>; kept(): Promise<string> }> {
  const step = await runningStep(here)
  warned = []
  live = createLiveText({ db, owner: here.owner, flushMs: 1e9, warn: (error) => warned.push(error.message) })
  const { sessionId, messageId, executionId } = step
  await step.begin()
  live.begin({ sessionId, messageId, index: 0, kind: 'TEXT', callId: null }, executionId)
  return {
    ...step,
    async say(text) {
      live.add(sessionId, messageId, 0, text)
      await live.flush()
    },
    // What a recovery would make of it now.
    kept: async () => (await readOpen(here.db, sessionId)).parts[0]!.text,
  }
}

const chunks = ({ sessionId }: RunningStep) =>
  here.db.chunk.findMany({ where: { sessionId }, orderBy: { offset: 'asc' }, select: { offset: true, text: true } })

it('PROMISE-090: a flush whose answer is lost, written or not, leaves no hole when the text goes on', async () => {
  const step = await talking()
  await step.say('zero ')
  const before = wire.lost()
  wire.lose(['holdfast_write_chunks'])
  await step.say('one ')
  expect(wire.lost()).toBe(before + 1)
  // It was carried out: nobody here knows.
  expect(await step.kept()).toBe('zero one ')
  await step.say('two \u{1f600} ')
  await step.say('three')
  expect(await chunks(step)).toEqual([
    { offset: 0, text: 'zero ' },
    { offset: 5, text: 'one two \u{1f600} ' },
    { offset: 16, text: 'three' },
  ])
  expect(await step.kept()).toBe('zero one two \u{1f600} three')

  const notWritten = await fault(database.url, {
    table: 'Chunk',
    when: `NEW."sessionId" = '${step.sessionId}'`,
    times: 1,
  })
  await step.say(' four')
  expect(await notWritten.fired()).toBe(1)
  expect(warned).toHaveLength(2)
  await notWritten.lift()
  await step.say(' five')
  expect(await step.kept()).toBe('zero one two \u{1f600} three four five')
})

it('PROMISE-091: a flush that reaches the database behind the one that took its place takes nothing away', async () => {
  const step = await talking()
  await step.say('one two ')
  const late = [{ s: step.sessionId, x: step.executionId, o: here.owner, m: step.messageId, i: 0, f: 0, t: 'one ' }]
  const [row] = await here.db.$queryRaw<{ written: number[] }[]>`
    SELECT holdfast_write_chunks(${JSON.stringify(late)}::text::jsonb) AS written`
  expect(row!.written).toEqual([0])
  await step.say('three')
  expect(await step.kept()).toBe('one two three')
})

it('PROMISE-092: chunks that are gone, as after a failover, are written again from the beginning; behind a hole nothing is believed', async () => {
  const step = await talking()
  await step.say('one ')
  await step.say('two ')
  await here.db.chunk.deleteMany({ where: { sessionId: step.sessionId } })
  // Not behind what is gone, but all of it, with the next flush.
  await step.say('three ')
  expect(await step.kept()).toBe('')
  await step.say('four')
  expect(await step.kept()).toBe('one two three four')

  const other = await talking()
  const { sessionId, messageId } = other
  await here.db.chunk.createMany({
    data: [
      { sessionId, messageId, index: 0, offset: 0, text: 'one ' },
      { sessionId, messageId, index: 0, offset: 8, text: 'three' },
    ],
  })
  expect(await other.kept()).toBe('one ')
})

it('PROMISE-290: of two parts that grow at once the end of one leaves the other its text, and the end of both leaves nothing', async () => {
  live = createLiveText({ db, owner: here.owner, flushMs: 1e9 })
  const [sessionId, messageId] = ['ses_twoparts0', 'msg_twoparts0']
  const texts = () => [...live.partsOf(sessionId)].map(({ index, text }) => [index, text])
  for (const index of [0, 1]) {
    live.begin({ sessionId, messageId, index, kind: 'TEXT', callId: null }, 'exe_.twoparts')
    live.add(sessionId, messageId, index, `part ${index}`)
  }
  await live.end(sessionId, messageId, 0)
  live.add(sessionId, messageId, 1, ' goes on')
  expect(texts()).toEqual([[1, 'part 1 goes on']])
  await live.end(sessionId, messageId, 1)
  expect(texts()).toEqual([])
})
