import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Fence } from '../src/event-log.ts'
import { event, type NewEvent, noUsage } from '../src/events.ts'
import { newExecutionId, newMessageId } from '../src/ids.ts'
import { emptyReplay, replayEvent } from '../src/replay.ts'
import { type Beside, beside } from './support/beside.ts'
import { inconsistencies } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { everythingOf } from './support/stored.ts'
import { admitted, created, step as wholeStep } from './support/story.ts'
import { newSessionId, runningStep, type StreamProcess, streamProcess, titled } from './support/stream-process.ts'

// One append: what it writes in its commit, and what it refuses (design section 3). Nothing runs.

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

let ids = 0
const messageId = () => `msg_log-test-${++ids}`
const append = (sessionId: string, events: NewEvent[], more: object = {}) =>
  here.eventLog.append({ sessionId, events, ...more })
const newSession = async () => {
  const sessionId = newSessionId()
  expect(await append(sessionId, [created()])).toMatchObject({ kind: 'appended', seq: 1, lastSeq: 1 })
  return sessionId
}
const eventsOf = (sessionId: string) => here.db.event.findMany({ where: { sessionId }, orderBy: { seq: 'asc' } })

/** All that an append could have written. */
const everything = (sessionId: string) => everythingOf(here.db, sessionId)

/** Session ids that rang on the database's bell and in process while `work` ran; a last append marks the end of what to wait for. */
async function rings(work: () => Promise<unknown>): Promise<{ heard: string[]; notified: string[] }> {
  const marker = await newSession()
  const notified: string[] = []
  const heard: string[] = []
  const listener = new pg.Client({ connectionString: database.url })
  await listener.connect()
  const marked = new Promise<void>((resolve) => {
    listener.on('notification', ({ payload }) => {
      const told = payload!.slice(payload!.indexOf('|') + 1).split(',')
      notified.push(...told)
      if (told.includes(marker)) resolve()
    })
  })
  await listener.query('LISTEN holdfast')
  const stop = here.doorbell.listenAll((sessionIds, foreign) => void (foreign || heard.push(...sessionIds)))
  try {
    await work()
    await append(marker, [titled('mark')])
    await marked
  } finally {
    stop()
    await listener.end()
  }
  const others = (rung: string[]) => rung.filter((id) => id !== marker)
  return { heard: others(heard), notified: others(notified) }
}

describe('what an append writes', () => {
  it('LOG-01: consecutive numbers from 1 on, rows and projections in one transaction, the bell after the commit', async () => {
    const sessionId = newSessionId()
    const m = messageId()
    // What a listener finds through another connection at the moment the bell rings.
    let found: Promise<unknown[]> | null = null
    const stop = here.doorbell.listenAll((rung) => {
      if (rung.includes(sessionId)) found ??= outside.query('SELECT seq FROM "Session" WHERE id = $1', [sessionId])
    })
    const outcome = await append(sessionId, [created('a'), admitted(m, 'one', true), titled('b')])
    stop()
    expect(outcome).toMatchObject({ kind: 'appended', seq: 1, lastSeq: 3 })
    expect(await found).toEqual([{ seq: 3 }])
    expect(await append(sessionId, [titled('c'), titled('d')])).toMatchObject({ seq: 4, lastSeq: 5 })
    expect((await eventsOf(sessionId)).map(({ seq, type }) => [seq, type])).toEqual([
      [1, 'session.created'],
      [2, 'prompt.admitted'],
      [3, 'session.updated'],
      [4, 'session.updated'],
      [5, 'session.updated'],
    ])
    expect(await here.db.session.findUnique({ where: { id: sessionId } })).toMatchObject({ seq: 5, title: 'd' })
    expect(await here.db.input.findUnique({ where: { id: m } })).toMatchObject({ admittedSeq: 2, wakePending: true })
    const [transactions] = await outside.query(
      `SELECT count(DISTINCT xmin::text)::int AS n FROM (
         SELECT xmin FROM "Event" WHERE "sessionId" = $1 AND seq <= 3 UNION ALL SELECT xmin FROM "Input" WHERE id = $2) x`,
      [sessionId, m],
    )
    expect(transactions).toEqual({ n: 1 })
  })

  it('LOG-01: until the commit no reader and no bell knows of it', async () => {
    const sessionId = await newSession()
    const before = await everything(sessionId)
    // Holds the transaction at its very end, when everything has been written.
    await outside.query(`CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END $$`)
    await outside.query(`CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON "Event" DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW WHEN (NEW."sessionId" = '${sessionId}') EXECUTE FUNCTION hold()`)
    await outside.query('BEGIN')
    await outside.query('SELECT pg_advisory_xact_lock(4711)')
    const heard: string[] = []
    const stop = here.doorbell.listenAll((rung) => void heard.push(...rung))
    const appending = append(sessionId, [admitted(messageId(), 'held', true)])
    await outside.blocked()
    expect(await everything(sessionId)).toEqual(before)
    expect(heard).not.toContain(sessionId)
    await outside.query('COMMIT')
    expect(await appending).toMatchObject({ kind: 'appended', seq: 2 })
    expect(heard).toContain(sessionId)
    stop()
    await outside.query('DROP FUNCTION hold() CASCADE')
  })

  it('LOG-26: all events of an append carry one id, in their order, which no other append has', async () => {
    const sessionId = newSessionId()
    const first = await append(sessionId, [created(), titled('a'), titled('b')])
    const second = await append(sessionId, [titled('c'), titled('d')])
    const stored = await eventsOf(sessionId)
    const appendIds = [first, second].map((outcome) => (outcome.kind === 'appended' ? outcome.appendId : ''))
    expect(new Set(appendIds).size).toBe(2)
    expect(stored.map(({ appendId, ordinal }) => [appendId, ordinal])).toEqual([
      [appendIds[0], 0],
      [appendIds[0], 1],
      [appendIds[0], 2],
      [appendIds[1], 0],
      [appendIds[1], 1],
    ])
    // The database itself takes an append id once only, in whichever session.
    const other = await newSession()
    await expect(
      outside.query(
        `INSERT INTO "Event" ("sessionId", seq, type, payload, at, "appendId", ordinal)
         VALUES ($1, 2, 'session.updated', '{}', now(), $2, 0)`,
        [other, appendIds[0]],
      ),
    ).rejects.toMatchObject({ code: '23505', constraint: 'Event_append_once' })
  })

  it('LOG-05: a bell or a listener that throws leaves the commit standing and the caller served', async () => {
    const sessionId = await newSession()
    let thrown = 0
    const fail = () => {
      thrown++
      throw new Error('a listener fails')
    }
    const stops = [here.doorbell.listen(sessionId, fail), here.doorbell.listenAll(fail)]
    expect(await append(sessionId, [titled('stands')])).toMatchObject({ kind: 'appended', seq: 2 })
    expect(await append(sessionId, [titled('too')])).toMatchObject({ kind: 'appended', seq: 3 })
    for (const stop of stops) stop()
    expect(thrown).toBeGreaterThanOrEqual(2)
    expect((await eventsOf(sessionId)).map(({ seq }) => seq)).toEqual([1, 2, 3])
    // The bell as a whole.
    const { ring } = here.doorbell
    here.doorbell.ring = fail
    expect(await append(sessionId, [titled('as well')])).toMatchObject({ kind: 'appended', seq: 4 })
    here.doorbell.ring = ring
    expect(await append(sessionId, [titled('and on')])).toMatchObject({ kind: 'appended', seq: 5 })
  })

  it('LOG-06: an event can neither be updated nor deleted nor truncated', async () => {
    const sessionId = await newSession()
    const before = await eventsOf(sessionId)
    const refused = { code: 'HF010' }
    await expect(
      outside.query(`UPDATE "Event" SET type = 'x' WHERE "sessionId" = $1`, [sessionId]),
    ).rejects.toMatchObject(refused)
    await expect(outside.query(`DELETE FROM "Event" WHERE "sessionId" = $1`, [sessionId])).rejects.toMatchObject(
      refused,
    )
    await expect(outside.query(`TRUNCATE "Event"`)).rejects.toMatchObject(refused)
    await expect(outside.query(`TRUNCATE "Session" CASCADE`)).rejects.toMatchObject(refused)
    await expect(here.db.event.deleteMany({ where: { sessionId } })).rejects.toThrow(/immutable/)
    // restrict_violation, or foreign_key_violation: it depends on the server's version.
    await expect(outside.query(`DELETE FROM "Session" WHERE id = $1`, [sessionId])).rejects.toMatchObject({
      code: expect.stringMatching(/^(23001|23503)$/),
    })
    expect(await eventsOf(sessionId)).toEqual(before)
  })
})

describe('what an append refuses, whole', () => {
  it('LOG-02: a projection that fails takes events, numbers, rows and the bell with it', async () => {
    const sessionId = await newSession()
    const before = await everything(sessionId)
    const m = messageId()
    const { heard, notified } = await rings(async () => {
      const good = admitted(m, 'good', true)
      const refused = expect.objectContaining({ name: 'AppendRefusedError', sqlState: 'HF001' })
      await expect(append(sessionId, [good, event('prompt.withdrawn', { messageId: 'msg_nobody' })])).rejects.toEqual(
        refused,
      )
      await expect(
        append(sessionId, [good, event('text.ended', { messageId: 'msg_nobody', index: 0, text: '' })]),
      ).rejects.toEqual(refused)
      // A part of a message that is not there.
      await expect(
        append(sessionId, [good, event('text.started', { messageId: 'msg_nobody', index: 0 })]),
      ).rejects.toMatchObject({ sqlState: '23503' })
    })
    expect(await everything(sessionId)).toEqual(before)
    expect(await here.db.input.findUnique({ where: { id: m } })).toBeNull()
    expect([heard, notified]).toEqual([[], []])
    expect(await append(sessionId, [admitted(m)])).toMatchObject({ kind: 'appended', seq: 2 })
  })

  it('LOG-02: a claim move that fails takes everything with it', async () => {
    const owner = await runningStep(here)
    const sessionId = await newSession()
    const before = await everything(sessionId)
    const { heard, notified } = await rings(async () => {
      // The execution has a claim already, of another session.
      const executionId = owner.executionId
      await expect(
        append(sessionId, [event('execution.started', { executionId }), admitted(messageId())], {
          claim: { kind: 'acquire', executionId, owner: 'own_.x', leaseMs: 1000 },
        }),
      ).rejects.toMatchObject({ name: 'AppendRefusedError', sqlState: '23505', constraint: 'Claim_executionId_key' })
      expect(await everything(sessionId)).toEqual(before)
      // The claim's row is not there any more when it is to be moved: the fence had held.
      await outside.query(`CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$`)
      await outside.query(`CREATE TRIGGER lose BEFORE UPDATE OR DELETE ON "Claim" FOR EACH ROW EXECUTE FUNCTION lose()`)
      const held = await everything(owner.sessionId)
      const fence: Fence = { executionId, owner: here.owner, phases: ['UNKNOWN'] }
      for (const claim of [{ kind: 'move', to: 'SAFE' }, { kind: 'remove' }])
        await expect(append(owner.sessionId, [titled('x')], { fence, claim })).rejects.toMatchObject({
          sqlState: 'HF003',
        })
      await outside.query('DROP FUNCTION lose() CASCADE')
      expect(await everything(owner.sessionId)).toEqual(held)
    })
    expect([heard, notified]).toEqual([[], []])
  })

  it('LOG-03: a fence that does not hold, its phase included, refuses; one that holds does not', async () => {
    const { sessionId, executionId } = await runningStep(here)
    const mine: Fence = { executionId, owner: here.owner, phases: ['UNKNOWN'] }
    const claim = (await here.db.claim.findUnique({ where: { sessionId } }))!
    const before = await everything(sessionId)
    const wrong: Partial<Fence>[] = [
      { executionId: newExecutionId() },
      { owner: 'own_.other' },
      { phases: ['READY', 'SAFE', 'CONTINUE', 'CANCELLING', 'CANCELLED'] },
      { phases: [] },
      { expiresAt: new Date(claim.expiresAt.getTime() + 1) },
      { expired: true },
    ]
    for (const over of wrong) {
      const events = [titled('fenced'), admitted(messageId())]
      expect(await append(sessionId, events, { fence: { ...mine, ...over } }), JSON.stringify(over)).toEqual({
        kind: 'fenced',
      })
    }
    await database.shiftClock(600_001)
    expect(await append(sessionId, [titled('late')], { fence: mine })).toEqual({ kind: 'fenced' })
    await database.shiftClock(0)
    expect(await append(await newSession(), [titled('none')], { fence: mine })).toEqual({ kind: 'fenced' })
    expect(await append(sessionId, [titled('claimed')], { unclaimed: true })).toEqual({ kind: 'claimed' })
    expect(await everything(sessionId)).toEqual(before)
    expect(await append(sessionId, [titled('mine')], { fence: { ...mine, expiresAt: claim.expiresAt } })).toMatchObject(
      {
        kind: 'appended',
      },
    )
  })

  it('LOG-25: an expected number that has moved refuses; read again it is taken', async () => {
    const sessionId = await newSession()
    const seqOf = async () => (await here.db.session.findUniqueOrThrow({ where: { id: sessionId } })).seq
    const decidedOn = await seqOf()
    await append(sessionId, [titled('somebody else')])
    const before = await everything(sessionId)
    for (const expectedSeq of [decidedOn, 99])
      expect(await append(sessionId, [titled('stale'), admitted(messageId())], { expectedSeq })).toEqual({
        kind: 'stale',
      })
    expect(await everything(sessionId)).toEqual(before)
    expect(await append(sessionId, [titled('again')], { expectedSeq: await seqOf() })).toMatchObject({ seq: 3 })
    // Two that decided on the same: one.
    const expectedSeq = await seqOf()
    const both = await Promise.all(['a', 'b'].map((title) => append(sessionId, [titled(title)], { expectedSeq })))
    expect(both.map(({ kind }) => kind)).toEqual(['appended', 'stale'])
  })

  it('LOG-14: a step with an id that another message or input has is refused, in whichever session, the old row unchanged', async () => {
    const { sessionId, executionId, messageId: taken } = await runningStep(here)
    const input = (await here.db.input.findFirstOrThrow({ where: { sessionId } })).id
    const other = await newSession()
    // Not promoted: no message has its id yet.
    const pending = messageId()
    await append(other, [admitted(pending)])
    const before = [await everything(sessionId), await everything(other)]
    for (const id of [taken, input, pending])
      for (const into of [sessionId, other])
        expect(await append(into, [event('step.started', { messageId: id, model: 'm', executionId })])).toEqual({
          kind: 'conflict',
        })
    const twice = event('step.started', { messageId: newMessageId(), model: 'm', executionId })
    await expect(append(other, [twice, twice])).rejects.toMatchObject({ sqlState: 'HF001' })
    expect([await everything(sessionId), await everything(other)]).toEqual(before)
  })

  it('LOG-13: a second terminal of a step or tool is refused by the projection', async () => {
    const step = await runningStep(here)
    const { sessionId, messageId: m } = step
    const call = { messageId: m, index: 0, callId: 'c' }
    const output = event('tool.succeeded', { messageId: m, callId: 'c', output: 1 })
    const failed = event('tool.failed', { messageId: m, callId: 'c', error: { code: 'TOOL_ERROR', message: 'x' } })
    await step.append(
      event('tool.input_started', { ...call, name: 't' }),
      event('tool.called', { ...call, name: 't', toolInput: {} }),
    )
    // Both in one append, and one after the other.
    await expect(append(sessionId, [output, failed])).rejects.toMatchObject({ sqlState: 'HF001' })
    await step.append(output)
    const ends = [
      event('step.ended', { messageId: m, finish: 'stop', usage: noUsage, continues: false }),
      event('step.failed', {
        messageId: m,
        error: { code: 'TOOL_ERROR', message: 'x' },
        usage: noUsage,
        continues: false,
      }),
      event('step.interrupted', { messageId: m, error: { code: 'ABORTED', message: 'x' }, usage: noUsage }),
    ]
    // Without the log's own unique rules: what is left is the projection.
    const rules = ['Event_step_terminal', 'Event_tool_terminal']
    const definitions = await outside.query('SELECT indexdef FROM pg_indexes WHERE indexname = ANY ($1)', [rules])
    expect(definitions).toHaveLength(2)
    for (const name of rules) await outside.query(`DROP INDEX "${name}"`)
    try {
      const refused = { sqlState: 'HF001', constraint: 'tool_call_open' }
      for (const second of [output, failed]) await expect(append(sessionId, [second])).rejects.toMatchObject(refused)
      for (const [first, second] of [
        [0, 1],
        [1, 2],
      ] as const)
        await expect(append(sessionId, [ends[first]!, ends[second]!])).rejects.toMatchObject({ sqlState: 'HF001' })
      await step.append(ends[0]!)
      const before = await everything(sessionId)
      for (const second of ends)
        await expect(append(sessionId, [second])).rejects.toMatchObject({
          sqlState: 'HF001',
          constraint: 'message_running',
        })
      expect(await everything(sessionId)).toEqual(before)
    } finally {
      for (const { indexdef } of definitions) await outside.query(indexdef)
    }
    // With them the log itself refuses.
    for (const second of ends)
      await expect(append(sessionId, [second])).rejects.toMatchObject({ constraint: 'Event_step_terminal' })
    await expect(append(sessionId, [output])).rejects.toMatchObject({ constraint: 'Event_tool_terminal' })
  })

  it('LOG-15: a step does not end while a tool call of it is open', async () => {
    const step = await runningStep(here)
    const { sessionId, messageId: m } = step
    const ends = (): NewEvent[] => [
      event('step.ended', { messageId: m, finish: 'stop', usage: noUsage, continues: false }),
    ]
    const failed = event('step.failed', {
      messageId: m,
      error: { code: 'OUTCOME_UNKNOWN', message: 'x' },
      usage: noUsage,
      continues: false,
    })
    const interrupted = event('step.interrupted', {
      messageId: m,
      error: { code: 'ABORTED', message: 'x' },
      usage: noUsage,
    })
    const refused = { sqlState: 'HF001', constraint: 'step_tools_settled' }
    const call = { messageId: m, index: 0, callId: 'c' }
    const stages: NewEvent[][] = [
      [event('tool.input_started', { ...call, name: 't' })],
      [event('tool.called', { ...call, name: 't', toolInput: {} })],
      [event('tool.started', { messageId: m, callId: 'c' })],
    ]
    for (const opening of stages) {
      await step.append(...opening)
      for (const end of [ends(), [failed], [interrupted]])
        await expect(append(sessionId, end), opening[0]!.type).rejects.toMatchObject(refused)
    }
    // Opened in the very append that ends the step.
    await expect(
      append(sessionId, [
        event('tool.succeeded', { messageId: m, callId: 'c', output: 1 }),
        event('tool.input_started', { messageId: m, index: 1, callId: 'd', name: 't' }),
        ...ends(),
      ]),
    ).rejects.toMatchObject(refused)
    expect(await here.db.message.findUnique({ where: { id: m } })).toMatchObject({ status: 'RUNNING' })
    await step.append(event('tool.succeeded', { messageId: m, callId: 'c', output: 1 }), ...ends())
    expect(await here.db.toolCall.count({ where: { sessionId, settledAt: null } })).toBe(0)
  })

  it('LOG-15: nothing enters a step that has ended, in a later append or behind its end in the same one', async () => {
    const step = await runningStep(here)
    const { sessionId, messageId: m } = step
    const end = event('step.ended', { messageId: m, finish: 'stop', usage: noUsage, continues: false })
    const call = { messageId: m, index: 1, callId: 'c', name: 't' }
    const failed = event('tool.failed', { messageId: m, callId: 'c', error: { code: 'TOOL_ERROR', message: 'x' } })
    const entering: NewEvent[][] = [
      [event('text.started', { messageId: m, index: 1 })],
      [event('reasoning.started', { messageId: m, index: 1 })],
      [event('text.started', { messageId: m, index: 1 }), event('text.ended', { messageId: m, index: 1, text: 'x' })],
      [event('tool.input_started', call)],
      [event('tool.input_started', call), event('tool.called', { ...call, toolInput: {} }), failed],
    ]
    for (const late of entering)
      await expect(append(sessionId, [end, ...late])).rejects.toMatchObject({ sqlState: 'HF001' })
    // In front of its end they go along, and a step may have all of its life in one append.
    const whole = newMessageId()
    await step.append(
      event('text.started', { messageId: m, index: 0 }),
      event('text.ended', { messageId: m, index: 0, text: 'x' }),
      end,
    )
    await step.append(...wholeStep(whole, 'all at once'))
    const before = await everything(sessionId)
    const refused = { sqlState: 'HF001', constraint: 'step_running' }
    for (const late of entering) await expect(append(sessionId, late)).rejects.toMatchObject(refused)
    // Nor a message that is no step.
    const { id: prompt } = await here.db.message.findFirstOrThrow({ where: { sessionId, kind: 'USER' } })
    await expect(append(sessionId, [event('text.started', { messageId: prompt, index: 0 })])).rejects.toMatchObject(
      refused,
    )
    expect(await everything(sessionId)).toEqual(before)
    // A log that says otherwise is not taken by a replay.
    const state = emptyReplay()
    const stored = await here.eventLog.read(sessionId, 0, 100)
    for (const one of stored) replayEvent(state, one)
    const { seq, ...place } = stored.at(-1)!
    for (const [late] of entering)
      expect(() => replayEvent(state, { ...place, ...late!, seq: seq + 1 })).toThrow(/is not running/)
  })
})

describe('armed inputs', () => {
  it('LOG-17: wakePending is set and cleared by each event that concerns it, live as on replay', async () => {
    const sessionId = await newSession()
    const state = emptyReplay()
    let replayed = 0
    /** Appends, and compares the armed inputs of the tables with those of the log. */
    const armed = async (...events: NewEvent[]): Promise<string[]> => {
      expect(await append(sessionId, events)).toMatchObject({ kind: 'appended' })
      for (const stored of await here.eventLog.read(sessionId, replayed, 100)) {
        replayEvent(state, stored)
        replayed = stored.seq
      }
      const rows = await here.db.input.findMany({ where: { sessionId }, orderBy: { id: 'asc' } })
      for (const row of rows)
        expect(state.tables.Input.get(row.id)).toMatchObject({ wakePending: row.wakePending, state: row.state })
      return rows.filter(({ wakePending }) => wakePending).map(({ id }) => id)
    }
    const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((letter) => `msg_log-armed-${letter}`) as [
      string,
      string,
      string,
      string,
    ]
    const promoted = (id: string) =>
      event('prompt.promoted', { messageId: id, inputKind: 'PROMPT', text: 'Hello', attachments: [], hidden: false })
    const failure = (
      code: 'PROVIDER_AUTH' | 'PROVIDER_QUOTA' | 'PROVIDER_UNAVAILABLE',
      continues = false,
    ): NewEvent[] => {
      const m = newMessageId()
      const error = { code, message: 'x' }
      return [
        event('step.started', { messageId: m, model: 'm', executionId: 'exe_.armed' }),
        event('step.failed', { messageId: m, error, usage: noUsage, continues }),
      ]
    }
    expect(await armed(admitted(a, 'Hello', false))).toEqual([])
    expect(await armed(admitted(b, 'Hello', true))).toEqual([b])
    expect(await armed(event('prompt.execution_requested', { messageId: a }))).toEqual([a, b])
    expect(await armed(event('interrupt.requested', { interruptedExecutionId: null }))).toEqual([])
    expect(await armed(event('execution.started', { executionId: 'exe_.armed' }))).toEqual([a, b])
    expect(await armed(promoted(a))).toEqual([b])
    expect(await armed(event('prompt.withdrawn', { messageId: b }))).toEqual([])
    expect(await armed(event('execution.started', { executionId: 'exe_.armed2' }))).toEqual([])
    expect(await armed(admitted(c, 'Hello', true), admitted(d, 'Hello', false))).toEqual([c])
    expect(await armed(event('session.parked', { reason: 'r' }))).toEqual([])
    expect(await armed(event('session.resume_requested', {}))).toEqual([c, d])
    expect(await armed(event('prompt.delivery_changed', { messageId: c, delivery: 'QUEUE' }))).toEqual([c, d])
    expect(await armed(...failure('PROVIDER_UNAVAILABLE'))).toEqual([c, d])
    expect(await armed(...failure('PROVIDER_AUTH', true))).toEqual([c, d])
    expect(await armed(...failure('PROVIDER_AUTH'))).toEqual([])
    expect(await armed(event('session.resume_requested', {}))).toEqual([c, d])
    expect(await armed(...failure('PROVIDER_QUOTA'))).toEqual([])
    // In one append: the order of its events decides.
    const again = event('session.resume_requested', {})
    const stop = event('interrupt.requested', { interruptedExecutionId: null })
    expect(await armed(again, stop)).toEqual([])
    expect(await armed(stop, again)).toEqual([c, d])
  })
})

it('every session of this file is consistent with its log', async () => {
  expect(await inconsistencies(here.db)).toEqual([])
})
