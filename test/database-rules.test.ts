import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { event } from '../src/events.ts'
import { type Beside, beside } from './support/beside.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { type RunningStep, runningStep, type StreamProcess, streamProcess } from './support/stream-process.ts'

// What the database refuses by itself, whoever writes: rows are inserted raw, past the log (design section 3).

let database: TestDatabase
let here: StreamProcess
let raw: Beside
let mine: Scene
let theirs: Scene

interface Scene extends RunningStep {
  /** A continuation; the prompt of the story is another. */
  input: string
  interaction: string
}

async function scene(): Promise<Scene> {
  const step = await runningStep(here)
  const { sessionId, messageId } = step
  const call = { messageId, index: 0, callId: 'call', name: 't' }
  const interaction = `req_.${sessionId}`
  await step.append(
    event('tool.input_started', call),
    event('tool.called', { ...call, toolInput: {} }),
    event('interaction.requested', {
      interactionId: interaction,
      kind: 'APPROVAL',
      messageId,
      callId: 'call',
      name: 't',
      toolInput: {},
      prompt: 'p',
      options: [],
      expiresAt: null,
    }),
  )
  const input = `msg_.${sessionId}`
  await insert('Input', { ...rows.Input({ ...step, input, interaction }), id: input, kind: 'CONTINUATION' })
  return { ...step, input, interaction }
}

beforeAll(async () => {
  database = await createTestDatabase()
  here = streamProcess(database.url)
  raw = await beside(database.url)
  mine = await scene()
  theirs = await scene()
  database.exempt([mine.sessionId, theirs.sessionId], 'their continuations were written past the log')
})
afterAll(async () => {
  await raw?.close()
  await here?.close()
  await database?.drop()
})

type Cells = Record<string, unknown>
const insert = (table: string, cells: Cells) => {
  const columns = Object.keys(cells)
  return raw.query(
    `INSERT INTO "${table}" (${columns.map((column) => `"${column}"`)}) VALUES (${columns.map((_, n) => `$${n + 1}`)})`,
    Object.values(cells),
  )
}
const at = new Date()

/** A row of each table that would be taken, for `scene`. */
const rows = {
  Event: (of: Scene): Cells => ({
    sessionId: of.sessionId,
    seq: 100,
    type: 'session.updated',
    payload: {},
    at,
    appendId: randomUUID(),
    ordinal: 0,
  }),
  Input: (of: Scene): Cells => ({
    id: `msg_${randomUUID()}`,
    sessionId: of.sessionId,
    kind: 'PROMPT',
    text: '',
    requestedDelivery: 'STEER',
    delivery: 'STEER',
    state: 'PENDING',
    wakePending: false,
    executionRequested: false,
    admittedSeq: 1,
    createdAt: at,
  }),
  Message: (of: Scene): Cells => ({
    id: `msg_${randomUUID()}`,
    sessionId: of.sessionId,
    kind: 'ASSISTANT',
    seq: 1000 + Math.floor(Math.random() * 1e6),
    createdAt: at,
    model: 'm',
    status: 'RUNNING',
  }),
  Part: (of: Scene): Cells => ({ sessionId: of.sessionId, messageId: of.messageId, index: 50, kind: 'TEXT' }),
  Chunk: (of: Scene): Cells => ({ sessionId: of.sessionId, messageId: of.messageId, index: 50, offset: 0, text: 'x' }),
  ToolCall: (of: Scene): Cells => ({
    sessionId: of.sessionId,
    messageId: of.messageId,
    callId: randomUUID(),
    index: 60,
    name: 't',
    status: 'STREAMING',
  }),
  Interaction: (of: Scene): Cells => ({
    id: `req_.${randomUUID()}`,
    sessionId: of.sessionId,
    messageId: of.messageId,
    callId: 'call',
    kind: 'QUESTION',
    state: 'OPEN',
    toolName: 't',
    toolInput: {},
    prompt: 'p',
    createdAt: at,
  }),
  Recovery: (of: Scene): Cells => ({
    id: `rec_${randomUUID()}`,
    sessionId: of.sessionId,
    executionId: `exe_.${randomUUID()}`,
    phase: 'UNKNOWN',
    assistantMessageId: of.messageId,
    continuationMessageId: of.input,
    wakePending: true,
    createdAt: at,
  }),
  Quarantine: (of: Scene): Cells => ({
    id: `qua_.${randomUUID()}`,
    sessionId: of.sessionId,
    kind: 'EXECUTION',
    executionId: `exe_.${randomUUID()}`,
    reason: 'r',
    quarantinedAt: at,
  }),
}
type Table = keyof typeof rows

/** The row is taken as it is, and refused with `over`, by the rule that is named. */
async function refused(table: Table, over: Cells, code: string, constraint: string | RegExp): Promise<void> {
  for (const [cells, isRefused] of [
    [rows[table](mine), false],
    [{ ...rows[table](mine), ...over }, true],
  ] as const) {
    await raw.query('BEGIN')
    const inserting = insert(table, cells)
    if (isRefused)
      await expect(inserting, `${table} ${JSON.stringify(over)}`).rejects.toMatchObject({
        code,
        constraint: typeof constraint === 'string' ? constraint : expect.stringMatching(constraint),
      })
    else await inserting
    await raw.query('ROLLBACK')
  }
}

describe('DB-11: what belongs to a session refers to rows of that session only', () => {
  const foreignKey = '23503'
  const cases: [string, Table, () => Cells, string][] = [
    ['a part to a message', 'Part', () => ({ messageId: theirs.messageId }), 'Part_sessionId_messageId_fkey'],
    ['live text to a message', 'Chunk', () => ({ messageId: theirs.messageId }), 'Chunk_sessionId_messageId_fkey'],
    [
      'a tool call to a message',
      'ToolCall',
      () => ({ messageId: theirs.messageId }),
      'ToolCall_sessionId_messageId_fkey',
    ],
    [
      'an interaction to a tool call',
      'Interaction',
      () => ({ messageId: theirs.messageId }),
      'Interaction_sessionId_messageId_callId_fkey',
    ],
    [
      'a recovery to an assistant message',
      'Recovery',
      () => ({ assistantMessageId: theirs.messageId }),
      'Recovery_sessionId_assistantMessageId_fkey',
    ],
    [
      'a recovery to a continuation',
      'Recovery',
      () => ({ continuationMessageId: theirs.input }),
      'Recovery_sessionId_continuationMessageId_fkey',
    ],
  ]
  it.each(cases)('DB-11: %s', async (_, table, over, constraint) => {
    await refused(table, over(), foreignKey, constraint)
  })

  it.each(Object.keys(rows) as Table[])('DB-11: a row of %s needs its session', async (table) => {
    await refused(table, { sessionId: 'ses_nobody-has-it' }, foreignKey, new RegExp(`^${table}_sessionId_`))
  })

  it('DB-11: nor can a row be moved to another session behind what refers to it', async () => {
    for (const [sql, id] of [
      ['UPDATE "Message" SET "sessionId" = $1, seq = 5000 WHERE id = $2', mine.messageId],
      ['UPDATE "Input" SET "sessionId" = $1 WHERE id = $2', mine.input],
    ]) {
      await raw.query('BEGIN')
      await insert('Recovery', rows.Recovery(mine))
      // restrict_violation, or foreign_key_violation: it depends on the server's version.
      await expect(raw.query(sql!, [theirs.sessionId, id])).rejects.toMatchObject({
        code: expect.stringMatching(/^(23001|23503)$/),
      })
      await raw.query('ROLLBACK')
    }
  })
})

describe('DB-12: values and second terminals that the model does not know', () => {
  const check = '23514'
  const unique = '23505'
  const cases: [Table, Cells, string][] = [
    ['Input', { kind: 'NOTE' }, 'Input_kind_check'],
    ['Input', { delivery: 'LATER' }, 'Input_delivery_check'],
    ['Input', { requestedDelivery: 'LATER' }, 'Input_delivery_check'],
    ['Input', { state: 'LOST' }, 'Input_state_check'],
    ['Input', { state: 'PROMOTED' }, 'Input_promoted_check'],
    ['Input', { promotedSeq: 3 }, 'Input_promoted_check'],
    ['Input', { state: 'WITHDRAWN', wakePending: true }, 'Input_armed_check'],
    ['Message', { kind: 'SYSTEM' }, 'Message_kind_check'],
    ['Message', { status: 'LOST', settledAt: at }, 'Message_status_check'],
    ['Message', { status: 'COMPLETED', settledAt: at }, 'Message_status_check'],
    ['Message', { status: null }, 'Message_status_check'],
    ['Message', { kind: 'COMPACTION', status: 'ENDED', settledAt: at }, 'Message_status_check'],
    ['Message', { kind: 'USER', text: '', status: 'RUNNING' }, 'Message_status_check'],
    ['Message', { status: 'ENDED' }, 'Message_settled_check'],
    ['Message', { settledAt: at }, 'Message_settled_check'],
    ['Message', { errorCode: 'ABORTED' }, 'Message_error_check'],
    ['Message', { status: 'ENDED', settledAt: at, errorCode: 'ABORTED', errorMessage: 'x' }, 'Message_error_check'],
    ['Message', { kind: 'USER', status: null }, 'Message_text_check'],
    ['Message', { model: null }, 'Message_model_check'],
    ['Part', { kind: 'IMAGE' }, 'Part_kind_check'],
    ['ToolCall', { status: 'LOST' }, 'ToolCall_status_check'],
    ['ToolCall', { status: 'FAILED', errorCode: 'ABORTED', errorMessage: 'x' }, 'ToolCall_settled_check'],
    ['ToolCall', { settledAt: at }, 'ToolCall_settled_check'],
    ['ToolCall', { status: 'COMPLETED', settledAt: at }, 'ToolCall_terminal_check'],
    [
      'ToolCall',
      { status: 'COMPLETED', settledAt: at, output: {}, errorCode: 'ABORTED', errorMessage: 'x' },
      'ToolCall_terminal_check',
    ],
    ['ToolCall', { output: {} }, 'ToolCall_terminal_check'],
    ['Interaction', { kind: 'POLL' }, 'Interaction_kind_check'],
    ['Interaction', { state: 'LOST', settledAt: at }, 'Interaction_state_check'],
    ['Interaction', { state: 'APPROVED' }, 'Interaction_settled_check'],
    ['Interaction', { settledAt: at }, 'Interaction_settled_check'],
    ['Interaction', { wakePending: true }, 'Interaction_armed_check'],
    ['Recovery', { phase: 'SAFE' }, 'Recovery_phase_check'],
    ['Quarantine', { kind: 'SESSION' }, 'Quarantine_kind_check'],
    ['Quarantine', { action: 'IGNORE', resolvedAt: at }, 'Quarantine_action_check'],
    ['Quarantine', { action: 'RETRY' }, 'Quarantine_action_check'],
    ['Quarantine', { resolvedAt: at }, 'Quarantine_action_check'],
    ['Event', { seq: 0 }, 'Event_seq_check'],
  ]
  it.each(cases)('DB-12: %s %j is refused by %s', async (table, over, constraint) => {
    await refused(table, over, check, constraint)
  })

  it('DB-12: a claim has a phase of the model, and a session counts from one up', async () => {
    for (const phase of ['RUNNING', ''])
      await expect(
        raw.query(`UPDATE "Claim" SET phase = $1 WHERE "sessionId" = $2`, [phase, mine.sessionId]),
      ).rejects.toMatchObject({ code: check, constraint: 'Claim_phase_check' })
    for (const [column, constraint] of [
      ['seq', 'Session_seq_check'],
      ['recoveries', 'Session_counts_check'],
      ['compactions', 'Session_counts_check'],
    ])
      await expect(
        raw.query(`UPDATE "Session" SET ${column} = -1 WHERE id = $1`, [mine.sessionId]),
      ).rejects.toMatchObject({ code: check, constraint })
  })

  it('DB-12: a second terminal of a step, a tool, an execution or a promotion is refused by the log', async () => {
    const ends: [string, string[], Cells][] = [
      ['Event_step_terminal', ['step.ended', 'step.failed', 'step.interrupted'], { messageId: 'm' }],
      ['Event_tool_terminal', ['tool.succeeded', 'tool.failed'], { messageId: 'm', callId: 'c' }],
      ['Event_execution_end', ['execution.settled', 'step.recovered'], { executionId: 'e' }],
      ['Event_promoted', ['prompt.promoted'], { messageId: 'm' }],
    ]
    let seq = 200
    const row = (type: string, payload: Cells) => ({ ...rows.Event(mine), seq: seq++, type, payload })
    for (const [constraint, types, payload] of ends) {
      for (const first of types)
        for (const second of types) {
          await raw.query('BEGIN')
          await insert('Event', row(first, payload))
          // Another step of the same session may end.
          await insert('Event', row(second, Object.fromEntries(Object.keys(payload).map((key) => [key, 'other']))))
          await expect(insert('Event', row(second, payload)), `${first}, ${second}`).rejects.toMatchObject({
            code: unique,
            constraint,
          })
          await raw.query('ROLLBACK')
        }
    }
  })
})
