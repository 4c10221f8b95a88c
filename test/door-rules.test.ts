// What the database functions look at by themselves, each rule alone (design section 3): settled rows stay as they are, live text needs its
// claim, an append is applied once.
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { event, type NewEvent, noUsage } from '../src/events.ts'
import { newExecutionId, newMessageId } from '../src/ids.ts'
import { type Beside, beside } from './support/beside.ts'
import { inconsistencies } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { admitted } from './support/story.ts'
import { type RunningStep, runningStep, type StreamProcess, streamProcess } from './support/stream-process.ts'

let database: TestDatabase
let here: StreamProcess
let outside: Beside
beforeAll(async () => {
  database = await createTestDatabase()
  here = streamProcess(database.url)
  outside = await beside(database.url)
})
afterAll(async () => {
  await outside?.close()
  await here?.close()
  await database?.drop()
})

const eventsOf = (sessionId: string) => here.db.event.count({ where: { sessionId } })
const decision = (interactionId: string, state: 'APPROVED' | 'DECLINED') =>
  event('interaction.settled', {
    interactionId,
    state,
    answer: null,
    feedback: null,
    editedInput: null,
    remember: false,
  })
const call = ({ messageId }: RunningStep, callId: string, index: number) => ({ messageId, index, callId, name: 't' })
const ending = ({ messageId }: RunningStep) =>
  event('step.ended', { messageId, finish: 'stop', usage: noUsage, continues: false })

describe('LOG-13: settled rows are not touched again', () => {
  /** Tells the story, then expects the late event to be refused by this rule, with nothing written. */
  const cases: [string, (step: RunningStep) => { story: NewEvent[]; late: NewEvent }][] = [
    [
      'input_pending',
      () => {
        const messageId = newMessageId().replace('.', '-')
        const late = event('prompt.delivery_changed', { messageId, delivery: 'QUEUE' })
        return { story: [admitted(messageId), event('prompt.withdrawn', { messageId })], late }
      },
    ],
    [
      'part_open',
      ({ messageId }) => {
        const end = event('text.ended', { messageId, index: 0, text: 'x' })
        return { story: [event('text.started', { messageId, index: 0 }), end], late: end }
      },
    ],
    [
      'tool_call_open',
      (step) => {
        const { messageId } = step
        const start = event('tool.started', { messageId, callId: 'c' })
        const called = event('tool.called', { ...call(step, 'c', 0), toolInput: {} })
        return { story: [event('tool.input_started', call(step, 'c', 0)), called, start], late: start }
      },
    ],
    [
      'interaction_open',
      (step) => {
        const { messageId } = step
        const interactionId = `req_.${messageId}`
        const asks = { interactionId, kind: 'APPROVAL' as const, messageId, callId: 'c', name: 't', toolInput: {} }
        const story = [
          event('tool.input_started', call(step, 'c', 0)),
          event('tool.called', { ...call(step, 'c', 0), toolInput: {} }),
          event('interaction.requested', { ...asks, prompt: 'May it?', options: [], expiresAt: null }),
          decision(interactionId, 'APPROVED'),
        ]
        return { story, late: decision(interactionId, 'DECLINED') }
      },
    ],
    [
      'quarantine_open',
      ({ messageId, executionId }) => {
        const quarantineId = `qua_.${messageId}`
        const story = [
          event('quarantine.opened', { quarantineId, executionId, quarantineKind: 'EXECUTION', reason: 'odd' }),
          event('quarantine.resolved', { quarantineId, action: 'RETRY' }),
        ]
        return { story, late: event('quarantine.resolved', { quarantineId, action: 'DISCARD' }) }
      },
    ],
    [
      'step_tools_settled',
      (step) => ({ story: [event('text.started', { messageId: step.messageId, index: 0 })], late: ending(step) }),
    ],
  ]
  it.each(cases)('settled rows: %s', async (constraint, tell) => {
    const step = await runningStep(here)
    const { story, late } = tell(step)
    // One after the other, as in life.
    for (const one of story) await step.append(one)
    const before = await eventsOf(step.sessionId)
    await expect(here.eventLog.append({ sessionId: step.sessionId, events: [late] })).rejects.toMatchObject({
      sqlState: 'HF001',
      constraint,
    })
    expect(await eventsOf(step.sessionId)).toBe(before)
  })
})

it('CLAIM-11: live text is written under its own claim alone: execution, owner and lease, while its part or call streams', async () => {
  const step = await runningStep(here)
  const other = await runningStep(here)
  const { sessionId, messageId, executionId } = step
  await step.append(event('text.started', { messageId, index: 0 }))
  await step.append(event('tool.input_started', call(step, 'c', 1)))
  const write = async (over: object) => {
    const one = { s: sessionId, x: executionId, o: here.owner, m: messageId, i: 0, f: 0, t: 'text', ...over }
    const [row] = await outside.query('SELECT holdfast_write_chunks($1::jsonb) AS written', [JSON.stringify([one])])
    return row.written
  }
  expect(await write({ x: other.executionId })).toEqual([])
  expect(await write({ o: 'own_.other' })).toEqual([])
  await database.shiftClock(600_001)
  expect(await write({})).toEqual([])
  await database.shiftClock(0)
  expect(await here.db.chunk.count({ where: { sessionId } })).toBe(0)
  expect(await write({})).toEqual([0])
  expect(await write({ i: 1, t: '{' })).toEqual([0])
  await step.append(event('tool.called', { ...call(step, 'c', 1), toolInput: {} }))
  expect(await write({ i: 1, f: 1, t: '}' })).toEqual([])
  expect(await here.db.chunk.findMany({ where: { sessionId } })).toMatchObject([{ index: 0 }])
})

it('LOG-21: an append is applied once, whoever repeats it', async () => {
  const { sessionId } = await runningStep(here)
  const last = await here.db.event.findFirstOrThrow({ where: { sessionId }, orderBy: { seq: 'desc' } })
  const first = await here.db.event.findFirstOrThrow({ where: { appendId: last.appendId, ordinal: 0 } })
  const again = outside.query(
    `INSERT INTO "Event" ("sessionId", seq, type, payload, at, "appendId", ordinal) VALUES ($1, 99, 'session.updated', '{}', now(), $2, 0)`,
    [sessionId, first.appendId],
  )
  await expect(again).rejects.toMatchObject({ code: '23505', constraint: 'Event_append_once' })
})

it('REC-42: an execution is set aside once at a time', async () => {
  const { sessionId } = await runningStep(here)
  const open = (executionId: string) =>
    here.eventLog.append({
      sessionId,
      events: [
        event('quarantine.opened', {
          quarantineId: `qua_.${newMessageId()}`,
          executionId,
          quarantineKind: 'EXECUTION',
          reason: 'odd',
        }),
      ],
    })
  const executionId = newExecutionId()
  expect(await open(executionId)).toMatchObject({ kind: 'appended' })
  await expect(open(executionId)).rejects.toMatchObject({ sqlState: '23505', constraint: 'Quarantine_one_open' })
  expect(await open(newExecutionId())).toMatchObject({ kind: 'appended' })
})

it('every session of this file is consistent with its log', async () => {
  expect(await inconsistencies(here.db)).toEqual([])
})
