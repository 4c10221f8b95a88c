import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { emptyView, type Item, reduce } from '../src/client/reduce.ts'
import type { SessionView } from '../src/client/view.ts'
import { eventTypes } from '../src/events.ts'
import { type StreamItem, typenameOf } from '../src/stream-item.ts'
import { verifySession } from '../src/verify.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { type Op, ops, randomHistory, tour } from './support/random-history.ts'
import {
  createSession,
  is,
  runningStep,
  type StreamProcess,
  streamProcess,
  takeUntil,
} from './support/stream-process.ts'
import { viewOfTables } from './support/view-of-tables.ts'

let database: TestDatabase
let here: StreamProcess

beforeAll(async () => {
  database = await createTestDatabase()
  here = streamProcess(database.url)
})
afterAll(async () => {
  await here.close()
  await database.drop()
})

/** What a query shows of a view: without what is live only. */
function atRest(view: SessionView): Omit<SessionView, 'executionId'> {
  const { executionId: _, ...shown } = structuredClone(view)
  for (const message of shown.messages) if (message.type === 'AssistantMessage') delete message.retry
  return shown
}

/** The item as a GraphQL client gets it: as JSON, under __typename, and without what the schema does not show. */
function overTheWire(item: StreamItem): Item {
  const { typename, tenant, state, providerExecuted, tailSeq, archivedAt, ...shown } = item as StreamItem &
    Record<string, unknown>
  if (typename === 'ToolStarted') delete (shown as { toolInput?: unknown }).toolInput
  const settled = typename === 'InteractionSettled' ? { state } : {}
  return JSON.parse(JSON.stringify({ ...shown, ...settled, __typename: typename })) as Item
}

interface Ran {
  sessionId: string
  items: StreamItem[]
  types: Set<string>
}

let histories = 0

/** Runs a history, and compares both views with the tables after every append. */
async function run(choices: [Op, number][]): Promise<Ran> {
  const sessionId = await createSession(here)
  const history = randomHistory(`history${++histories}-x`)
  const stream = here.stream(sessionId)
  const items = await takeUntil(stream, is('LogSynced'))
  let view = items.reduce<SessionView>(reduce, emptyView(sessionId))
  let wire = items.map(overTheWire).reduce<SessionView>(reduce, emptyView(sessionId))
  const types = new Set<string>(['session.created'])
  for (const [op, dice] of choices) {
    const events = history.choose(op, dice)
    if (events === null) continue
    const outcome = await here.eventLog.append({ sessionId, events })
    if (outcome.kind !== 'appended') throw new Error(`${op}: ${outcome.kind}`)
    history.appended(outcome.at)
    for (const { type } of events) types.add(type)
    const more = await takeUntil(stream, (item) => item.seq === outcome.lastSeq)
    items.push(...more)
    view = more.reduce<SessionView>(reduce, view)
    wire = more.map(overTheWire).reduce<SessionView>(reduce, wire)
    const tables = await viewOfTables(here.db, sessionId)
    expect(atRest(view), op).toEqual(tables)
    expect(atRest(wire), op).toEqual(tables)
  }
  await stream.return!()
  return { sessionId, items, types }
}

describe('a view that is kept by the events alone', () => {
  it('LOG-27, STREAM-26: equals the tables at every seq of a log in which every event type comes up', async () => {
    const { types, sessionId, items } = await run(tour.map((op, n) => [op, n * 7 + 6]))
    expect([...types].sort()).toEqual([...eventTypes].sort())
    // From any snapshot on, and with an overlap, the end is the same.
    const logged = items.filter((item) => item.seq !== null)
    const whole = logged.reduce<SessionView>(reduce, emptyView(sessionId))
    for (let n = 0; n <= logged.length; n += 5) {
      const snapshot = logged.slice(0, n).reduce<SessionView>(reduce, emptyView(sessionId))
      expect(logged.slice(Math.max(0, n - 3)).reduce<SessionView>(reduce, snapshot)).toEqual(whole)
    }
    expect(await verifySession(here.db, sessionId)).toMatchObject({
      consistent: true,
      events: logged.length,
      differences: [],
    })
  }, 60_000)

  it('LOG-27, LOG-07, LOG-10: equals the tables at every seq of random histories, and so does the replay of the log', async () => {
    const choice = fc.tuple(fc.constantFrom(...ops), fc.nat(1000))
    await fc.assert(
      fc.asyncProperty(fc.array(choice, { minLength: 50, maxLength: 100 }), async (choices) => {
        const { sessionId } = await run(choices)
        expect(await verifySession(here.db, sessionId)).toMatchObject({ consistent: true, differences: [] })
      }),
      { numRuns: 6, interruptAfterTimeLimit: 60_000 },
    )
  }, 120_000)

  it('LOG-10: a cell that is altered by hand is named by table, key and column', async () => {
    const { sessionId } = await run(tour.slice(0, 20).map((op, n) => [op, n]))
    database.exempt([sessionId], 'a cell of it is altered by hand')
    const input = await here.db.input.findFirstOrThrow({ where: { sessionId } })
    await here.db.input.update({
      where: { id: input.id },
      data: { delivery: input.delivery === 'STEER' ? 'QUEUE' : 'STEER' },
    })
    const verified = await verifySession(here.db, sessionId)
    expect(verified).toMatchObject({ consistent: false })
    expect(verified!.differences).toHaveLength(1)
    expect(verified!.differences[0]).toContain(`Input ${input.id}.delivery`)
  })

  it('STREAM-09: live text is shown as it comes, applied twice it is the same, and the end of the part has the last word', async () => {
    const step = await runningStep(here)
    const stream = here.stream(step.sessionId)
    let view = (await takeUntil(stream, is('LogSynced'))).reduce<SessionView>(reduce, emptyView(step.sessionId))
    await step.begin()
    step.add('so far')
    const items = await takeUntil(stream, is('TextDelta'))
    view = [...items, ...items.slice(-1)].reduce<SessionView>(reduce, view)
    const textOf = () => view.messages.flatMap((message) => (message.type === 'AssistantMessage' ? message.parts : []))
    expect(textOf()).toEqual([{ type: 'TextPart', index: 0, text: 'so far', complete: false }])
    await step.end('so far, and done')
    const rest = await takeUntil(stream, is('TextEnded'))
    view = rest.reduce<SessionView>(reduce, view)
    expect(textOf()).toEqual([{ type: 'TextPart', index: 0, text: 'so far, and done', complete: true }])
    // A delta that arrives late, from a stream before, changes nothing.
    expect(reduce(view, items.at(-1)!)).toEqual(view)
    const beyond = { ...items.at(-1)!, offset: 'so far, and done'.length, text: ' stray' }
    expect(reduce(view, beyond)).toEqual(view)
    await stream.return!()
  })

  it('refuses an event that skips one, passes over what it has, and leaves what it was given unchanged', () => {
    const view = Object.freeze(emptyView('ses_x'))
    const created = {
      typename: 'SessionCreated',
      sessionId: 'ses_x',
      seq: 1,
      at: new Date(0),
      title: null,
      instructions: null,
      model: 'm',
    }
    const one = reduce(view, created)
    expect(view.seq).toBe(0)
    expect(reduce(one, created)).toBe(one)
    expect(() => reduce(one, { ...created, seq: 3 })).toThrow(/event 3 cannot be applied to a view of seq 1/)
    expect(reduce(one, { typename: 'SomethingNew', sessionId: 'ses_x', seq: 2, at: new Date(0) }).seq).toBe(2)
  })

  it('each event type has the name that the schema gives it', () => {
    expect(typenameOf('prompt.execution_requested')).toBe('PromptExecutionRequested')
    expect(typenameOf('tool.input_started')).toBe('ToolInputStarted')
    expect(new Set(eventTypes.map(typenameOf)).size).toBe(eventTypes.length)
  })
})
