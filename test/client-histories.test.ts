// The promise that a view rests on (STREAM-26), over the API as a client has it: what the events of a log come to, from its beginning
// or from a snapshot in its middle, is what a query shows. Many histories at once, as appends of many sessions share a commit.

import type { TypedDocumentNode } from '@graphql-typed-document-node/core'
import fc from 'fast-check'
import { type DocumentNode, type FieldNode, Kind, type OperationDefinitionNode, parse, print } from 'graphql'
import { afterAll, beforeAll, expect, it } from 'vitest'
import {
  emptyView,
  fetchTransport,
  type Item,
  reduce,
  SessionLogDocument,
  SessionSnapshotDocument,
  type SessionView,
  type Snapshot,
  type StreamItem,
  type Transport,
  viewOfSnapshot,
} from '../src/client/index.ts'
import { event, eventTypes, type NewEvent } from '../src/events.ts'
import { type Op, ops, randomHistory, tour } from './support/random-history.ts'
import { type Served, serveLog } from './support/served.ts'

const histories = Number(process.env.HOLDFAST_HISTORIES ?? 1000)
const seed = Number(process.env.HOLDFAST_SEED ?? Math.floor(Math.random() * 2 ** 31))
/** So many sessions go at the same time. */
const width = 60

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

type Queried = Snapshot & { events: StreamItem[] }

/** The client's own selections for several sessions in one operation, as the document limits allow: a query each takes twice the time. */
const together = 6
function documentFor(count: number): TypedDocumentNode<Record<string, Queried>, Record<string, unknown>> {
  const rootOf = ({ definitions }: DocumentNode) =>
    (definitions[0] as OperationDefinitionNode).selectionSet.selections[0] as FieldNode
  const fields = print(rootOf(SessionSnapshotDocument).selectionSet!)
  const sessions = Array.from(
    { length: count },
    (_, n) => `s${n}: session(id: $s${n}) { ...on Session ${fields} events(first: 1000) { ...SessionEventFields } }`,
  )
  const fragments = new Map(
    [...SessionSnapshotDocument.definitions, ...SessionLogDocument.definitions].flatMap((definition) =>
      definition.kind === Kind.FRAGMENT_DEFINITION ? [[definition.name.value, print(definition)]] : [],
    ),
  )
  const ids = sessions.map((_, n) => `$s${n}: ID!`).join(', ')
  return parse(
    `query (${ids}, $last: Int, $inputs: InputState) { ${sessions.join('\n')} }\n${[...fragments.values()].join('\n')}`,
  )
}
const documents = Array.from({ length: together + 1 }, (_, count) => (count === 0 ? null : documentFor(count)))

async function query(ids: string[]): Promise<Queried[]> {
  const variables = { last: 200, inputs: null, ...Object.fromEntries(ids.map((id, n) => [`s${n}`, id])) }
  const { data, errors } = await transport.execute(documents[ids.length]!, variables)
  expect(errors).toBeUndefined()
  return ids.map((_, n) => data![`s${n}`]!)
}

const folded = (items: StreamItem[], view: SessionView) =>
  items.reduce<SessionView>((now, item) => reduce(now, item as Item), view)

interface Ran {
  sessionId: string
  /** A snapshot from the middle, of some. */
  between: SessionView | null
}

/**
 * What ends its commit: its time tells when it was archived and which approval was the first, and nobody resolves one quarantine
 * and opens another at once.
 */
const last = new Set(['session.updated', 'interaction.settled', 'quarantine.resolved'])
/** The op and those before it, the nearest first: what cannot happen yet is led up to. */
const leadingTo = (op: Op) => ops.slice(0, ops.indexOf(op) + 1).reverse()

it(`STREAM-26: the events from 0, and those behind a snapshot, come to what is queried: ${histories} random histories (HOLDFAST_SEED=${seed})`, async () => {
  const choice = fc.tuple(fc.constantFrom(...ops), fc.nat(1000))
  const all = fc.sample(fc.array(choice, { minLength: 10, maxLength: 30 }), { numRuns: histories, seed })
  // In one of them every event type comes up; every fourth stops somewhere on the same way, deep in a step with its tools and people.
  all[0] = tour.map((op, n) => [op, n * 7 + 6])
  for (let n = 1; n < all.length; n += 4)
    all[n] = tour.slice(0, 1 + (all[n]![0]![1] % tour.length)).map((op, k) => [op, all[n]![k % all[n]!.length]![1] + k])
  const types = new Set<string>()
  let events = 0

  async function run(choices: [Op, number][], n: number): Promise<Ran> {
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
      const chosen = leadingTo(op).reduce<NewEvent[] | null>((found, each) => found ?? history.choose(each, dice), null)
      if (chosen === null) continue
      batch.push(...chosen)
      if (dice % 6 === 0 || op === 'archive' || chosen.some(({ type }) => last.has(type))) await commit()
      if (between === null && n % 8 === 0 && dice % 4 === 0) between = await snapshot(sessionId)
    }
    await commit()
    return { sessionId, between }
  }

  function check({ sessionId, between }: Ran, { events: log, ...session }: Queried): void {
    const shown = viewOfSnapshot(session)
    expect(log).toHaveLength(session.seq)
    expect(queried(folded(log, emptyView(sessionId))), sessionId).toEqual(queried(shown))
    if (between) expect(queried(folded(log, between)), `${sessionId} from ${between.seq}`).toEqual(queried(shown))
    for (const item of log) types.add(item.__typename)
    events += log.length
  }

  for (let n = 0; n < all.length; n += width) {
    const ran = await Promise.all(all.slice(n, n + width).map((choices, k) => run(choices as [Op, number][], n + k)))
    for (let k = 0; k < ran.length; k += together) {
      const some = ran.slice(k, k + together)
      const sessions = await query(some.map(({ sessionId }) => sessionId))
      for (const [at, session] of sessions.entries()) check(some[at]!, session)
    }
  }
  expect(events).toBeGreaterThan(histories * 10)
  expect(types.size).toBe(eventTypes.length)
}, 180_000)
