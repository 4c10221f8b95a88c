// The promise that a view rests on (STREAM-26), over the API as a client has it: what the events of a log come to, from its beginning
// or from a snapshot in its middle, is what a query shows. Many histories at once, as appends of many sessions share a commit.

import fc from 'fast-check'
import { afterAll, beforeAll, expect, it } from 'vitest'
import {
  emptyView,
  fetchTransport,
  type Item,
  reduce,
  SessionLogDocument,
  SessionSnapshotDocument,
  type SessionView,
  type StreamItem,
  type Transport,
  viewOfSnapshot,
} from '../src/client/index.ts'
import { event, eventTypes, type NewEvent } from '../src/events.ts'
import { type Op, ops, randomHistory } from './support/random-history.ts'
import { type Served, serveLog } from './support/served.ts'

const histories = Number(process.env.HOLDFAST_HISTORIES ?? 1000)
const seed = Number(process.env.HOLDFAST_SEED ?? Math.floor(Math.random() * 2 ** 31))
/** So many sessions go at the same time. */
const width = 50

let served: Served
let transport: Transport

beforeAll(async () => {
  served = await serveLog({ pool: 8 })
  transport = fetchTransport({ url: served.endpoint })
  // Remembered approvals count while the tool is what the person saw; the events of a random history name no definition.
  Object.assign(served.core, {
    tools: new Map(['tool0', 'tool1', 'tool2'].map((name) => [name, { name, definition: null }])),
  })
})
afterAll(() => served?.close())

/** What a query shows: no history here has a claim, which is not in the log. */
const queried = ({ executionId: _, ...view }: SessionView) => view

async function snapshot(id: string): Promise<SessionView> {
  const { data } = await transport.execute(SessionSnapshotDocument, { id, last: 200, inputs: null })
  return viewOfSnapshot(data!.session!)
}

async function logOf(id: string): Promise<StreamItem[]> {
  const { data } = await transport.execute(SessionLogDocument, { id, first: 1000 })
  expect(data!.session!.seq).toBe(data!.session!.events.length)
  return data!.session!.events
}

const folded = (items: StreamItem[], view: SessionView) =>
  items.reduce<SessionView>((now, item) => reduce(now, item as Item), view)

const timed = new Set(['session.updated', 'interaction.settled'])
const fromHere = (op: Op) => [...ops.slice(ops.indexOf(op)), ...ops.slice(0, ops.indexOf(op))]

it(`STREAM-26: the events from 0, and those behind a snapshot, come to what is queried: ${histories} random histories (HOLDFAST_SEED=${seed})`, async () => {
  const choice = fc.tuple(fc.constantFrom(...ops), fc.nat(1000))
  const all = fc.sample(fc.array(choice, { minLength: 10, maxLength: 40 }), { numRuns: histories, seed })
  const types = new Set<string>()
  let events = 0

  async function run(choices: [Op, number][], n: number): Promise<void> {
    const sessionId = `ses_history-${n}`
    const history = randomHistory(`client${n}-x`)
    const created = { tenant: 'default', title: null, instructions: null, model: 'demo/echo' }
    await served.append(sessionId, event('session.created', created))
    let between: SessionView | null = null
    let batch: NewEvent[] = []
    const commit = async () => {
      if (batch.length > 0) history.appended((await served.append(sessionId, ...batch)).at)
      batch = []
    }
    for (const [op, dice] of choices) {
      // What cannot happen now gives way to the next that can: every draw moves the session on.
      const chosen = fromHere(op).reduce<NewEvent[] | null>((found, each) => found ?? history.choose(each, dice), null)
      batch.push(...chosen!)
      // The commit's time decides about these: when it was archived, which approval was the first.
      if (dice % 3 === 0 || op === 'archive' || chosen!.some(({ type }) => timed.has(type))) await commit()
      if (between === null && n % 4 === 0 && dice % 8 === 0) between = await snapshot(sessionId)
    }
    await commit()
    const log = await logOf(sessionId)
    const shown = await snapshot(sessionId)
    const whole = folded(log, emptyView(sessionId))
    expect(queried(whole), `history ${n}`).toEqual(queried(shown))
    if (between) expect(queried(folded(log, between)), `history ${n} from ${between.seq}`).toEqual(queried(shown))
    for (const item of log) types.add(item.__typename)
    events += log.length
  }

  for (let n = 0; n < all.length; n += width)
    await Promise.all(all.slice(n, n + width).map((choices, k) => run(choices as [Op, number][], n + k)))
  expect(events).toBeGreaterThan(histories * 10)
  if (histories >= 200) expect(types.size).toBe(eventTypes.length)
}, 120_000)
