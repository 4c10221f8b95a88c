// Two tenants on one server, each with a key of its own: what belongs to one is for the other as if it did not exist, in every
// operation of the schema.
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { event, type NewEvent } from '../src/events.ts'
import { type HttpServer, serveHttp } from '../src/http/serve.ts'
import { continuationIdOf, recoveryIdOf } from '../src/ids.ts'
import { schema } from '../src/schema/index.ts'
import { startCore, type TestCore } from './support/core.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { admitted, asking, promoted } from './support/story.ts'
import { askAs, closeSockets, keyOfA, keyOfB, post, socketOf, twoTenants } from './support/tokens.ts'

let database: TestDatabase
let node: TestCore
let http: HttpServer
let endpoint: string
beforeAll(async () => {
  database = await createTestDatabase()
  node = await startCore({ url: database.url, config: { auth: twoTenants } })
  http = await serveHttp(node.core, { host: '127.0.0.1', port: 0 })
  endpoint = `${http.url}graphql`
  for (const tenant of ['a', 'b'])
    await append(
      idsOf(tenant).older,
      event('session.created', { tenant, title: `old plan of ${tenant}`, instructions: null, model: 'demo/echo' }),
    )
  for (const tenant of ['a', 'b']) await tell(tenant)
})
afterEach(closeSockets)
afterAll(async () => {
  await http?.close(1000)
  await node?.stop()
  await database?.drop()
})

/** One of each thing that has an id, all of them of one tenant. */
const idsOf = (tenant: string) => ({
  session: `ses_tenant_${tenant}1`,
  /** Moved before all the others. */
  older: `ses_older_${tenant}`,
  pending: `msg_pending_${tenant}`,
  message: `msg_message_${tenant}`,
  answer: `msg_.answer${tenant}`,
  interaction: `req_.asked${tenant}`,
  recovery: recoveryIdOf(`exe_.cut${tenant}`),
  quarantine: `qua_.aside${tenant}`,
})
const ofA = idsOf('a')
/** Well formed, and nobody's. */
const ofNobody = idsOf('x')

async function append(sessionId: string, ...events: NewEvent[]) {
  const outcome = await node.core.eventLog.append({ sessionId, events })
  if (outcome.kind !== 'appended') throw new Error(`append: ${outcome.kind}`)
}

async function tell(tenant: string) {
  const ids = idsOf(tenant)
  const executionId = `exe_.cut${tenant}`
  await append(
    ids.session,
    event('session.created', { tenant, title: `secret plan of ${tenant}`, instructions: null, model: 'demo/echo' }),
    admitted(ids.message),
    promoted(ids.message),
    ...asking(ids.answer, ids.interaction),
  )
  await append(
    ids.session,
    event('quarantine.opened', {
      quarantineId: ids.quarantine,
      executionId,
      quarantineKind: 'RECOVERY',
      reason: 'test',
    }),
    event('step.recovered', {
      executionId,
      assistantMessageId: null,
      continuationMessageId: continuationIdOf(executionId),
      phase: 'READY',
      handover: false,
    }),
    admitted(ids.pending),
  )
}

type Ids = typeof ofA
interface Attempt {
  field: string
  query: string
  variables: object
}
const mutation = (field: string, input: object, select = '__typename ... on Error { message }'): Attempt => {
  const type = schema.getMutationType()!.getFields()[field]!.args[0]!.type
  return { field, query: `mutation ($input: ${type}) { ${field}(input: $input) { ${select} } }`, variables: { input } }
}

/** Every way of naming a thing, for the things with these ids. */
const attempts = ({ session, pending, message, answer, interaction, recovery, quarantine }: Ids): Attempt[] => [
  ...[session, pending, message, answer, interaction, recovery, quarantine].map((id) => ({
    field: 'node',
    query: 'query ($id: ID!) { node(id: $id) { __typename id } }',
    variables: { id },
  })),
  { field: 'session', query: 'query ($id: ID!) { session(id: $id) { id title } }', variables: { id: session } },
  {
    field: 'verifySession',
    query: 'query ($id: ID!) { verifySession(id: $id) { events } }',
    variables: { id: session },
  },
  mutation('updateSession', { sessionId: session, title: 'mine now' }),
  mutation('updateSession', { sessionId: session, title: 'mine now', ifSeq: 1 }),
  mutation('archiveSession', { sessionId: session }),
  mutation('admitPrompt', { sessionId: session, messageId: 'msg_intruder1', text: 'Hello' }),
  mutation('admitPrompt', { sessionId: session, messageId: pending, text: 'Hello' }),
  mutation('withdrawPrompt', { sessionId: session, messageId: pending }),
  mutation('changeDelivery', { sessionId: session, messageId: pending, delivery: 'QUEUE' }),
  mutation('resumeSession', { sessionId: session }),
  mutation('interruptSession', { sessionId: session }),
  mutation('interruptSession', { sessionId: session, executionId: 'exe_.story' }),
  mutation('compactSession', { sessionId: session, messageId: 'msg_intruder2' }),
  mutation('decideApproval', { interactionId: interaction, decision: 'APPROVE' }),
  mutation('decideApproval', { interactionId: interaction, decision: 'DECLINE_AND_STOP' }),
  mutation('answerQuestion', { interactionId: interaction, answer: 'yes' }),
  mutation('dismissQuestion', { interactionId: interaction }),
  mutation('resolveQuarantine', { id: quarantine, action: 'DISCARD' }),
]

/** What was answered, with the ids taken out by which it was asked. */
const answerTo = async ({ query, variables }: Attempt, ids: Ids) => {
  const response = await post(endpoint, query, { token: keyOfB, variables })
  let text = `${response.status} ${await response.text()}`
  for (const [name, id] of Object.entries(ids)) text = text.replaceAll(id, `<${name}>`)
  return text
}

const stored = async () => ({
  events: await node.core.db.event.findMany({ where: { sessionId: ofA.session }, orderBy: { seq: 'asc' } }),
  claims: await node.core.db.claim.count(),
  intruders: await node.core.db.input.count({ where: { id: { startsWith: 'msg_intruder' } } }),
})

describe("what names another tenant's thing", () => {
  const missing = attempts(ofNobody)
  it.each(
    attempts(ofA).map(
      (attempt, n) => [attempt.field, JSON.stringify(attempt.variables), attempt, missing[n]!] as const,
    ),
  )(
    'SEC-04: %s %s is answered like an id that does not exist, and changes nothing',
    async (_field, _variables, attempt, unknown) => {
      const before = await stored()
      const answer = await answerTo(attempt, ofA)
      expect(answer).toBe(await answerTo(unknown, ofNobody))
      expect(answer).not.toContain('secret plan')
      expect(await stored()).toEqual(before)
      expect(before.events.length).toBeGreaterThan(8)
    },
  )

  it.each([0, 999])(
    'SEC-04: sessionEvents after %i is answered like a session that does not exist, over WebSocket and SSE',
    async (after) => {
      const watch = (id: string) => `subscription { sessionEvents(sessionId: "${id}", after: ${after}) { __typename } }`
      const client = socketOf({ endpoint }, { authorization: `Bearer ${keyOfB}` })
      const over = async (id: string) => {
        const socket = await client.iterate({ query: watch(id) }).next()
        const sse = await (await post(endpoint, watch(id), { token: keyOfB, accept: 'text/event-stream' })).text()
        return (JSON.stringify(socket) + sse).replaceAll(id, '<session>')
      }
      const answer = await over(ofA.session)
      expect(answer).toBe(await over(ofNobody.session))
      expect(answer).toContain('NOT_FOUND')
    },
  )

  it('SEC-04, SEC-05: every operation of the schema is tried here', () => {
    const fields = (type = schema.getQueryType()) => Object.keys(type!.getFields())
    const tried = new Set(missing.map(({ field }) => field))
    // Lists, the two streams and createSession: below. models and tools are the server's and nobody's.
    for (const field of [
      'sessions',
      'interactions',
      'quarantine',
      'models',
      'tools',
      'sessionEvents',
      'sessionActivity',
      'createSession',
    ])
      tried.add(field)
    const all = [...fields(), ...fields(schema.getMutationType()), ...fields(schema.getSubscriptionType())]
    expect(all.filter((field) => !tried.has(field))).toEqual([])
  })
})

describe('what a tenant reads', () => {
  it.each([
    ['a', keyOfA],
    ['b', keyOfB],
  ])(
    'SEC-05: lists, inbox, quarantine and node give tenant %s its own, all of it and nothing else',
    async (tenant, key) => {
      const ids = idsOf(tenant)
      const list = '(first: 200) { edges { node { id } } }'
      const { data, errors } = await askAs(
        { endpoint },
        key,
        `query ($ids: String!) { sessions${list} found: sessions(first: 200, search: $ids) { edges { node { id } } }
        interactions(first: 200, open: null) { edges { node { id session { id } } } } quarantine${list}
        ${Object.entries(ids)
          .map(([name, id]) => `as_${name}: node(id: "${id}") { id }`)
          .join(' ')}
        verify: verifySession(id: "${ids.session}") { consistent differences } }`,
        { ids: 'secret plan' },
      )
      expect(errors).toBeUndefined()
      const listed = (field: string) => data[field].edges.map((edge: { node: { id: string } }) => edge.node.id)
      expect(listed('sessions')).toEqual([ids.session, ids.older])
      expect(listed('found')).toEqual([ids.session])
      expect(listed('interactions')).toEqual([ids.interaction])
      expect(listed('quarantine')).toEqual([ids.quarantine])
      for (const [name, id] of Object.entries(ids)) expect(data[`as_${name}`], name).toEqual({ id })
      expect(data.verify).toEqual({ consistent: true, differences: [] })
    },
  )

  it("SEC-05: a cursor of another tenant's list shows nothing of it", async () => {
    // The sessions of the two stand by turns in the list of all.
    const ofB = idsOf('b')
    const everywhere = await node.core.db.session.findMany({ orderBy: [{ updatedAt: 'desc' }, { id: 'desc' }] })
    expect(everywhere.map(({ id }) => id)).toEqual([ofB.session, ofA.session, ofB.older, ofA.older])
    const page = (key: string, args: string, select = 'node { id }') =>
      askAs({ endpoint }, key, `{ sessions(${args}) { edges { ${select} } } }`)
    const idsOn = async (key: string, args: string) => {
      const { data, errors } = await page(key, args)
      expect(errors).toBeUndefined()
      return data.sessions.edges.map(({ node }: { node: { id: string } }) => node.id)
    }
    const { data } = await page(keyOfA, 'first: 10', 'cursor node { id }')
    const [newest, oldest] = data.sessions.edges as { cursor: string; node: { id: string } }[]
    expect([newest!.node.id, oldest!.node.id]).toEqual([ofA.session, ofA.older])
    expect(await idsOn(keyOfA, `first: 10, after: "${newest!.cursor}"`)).toEqual([ofA.older])
    expect(await idsOn(keyOfB, `first: 10, after: "${newest!.cursor}"`)).toEqual([ofB.older])
    expect(await idsOn(keyOfB, `last: 10, before: "${newest!.cursor}"`)).toEqual([ofB.session])
    expect(await idsOn(keyOfB, `last: 10, before: "${oldest!.cursor}"`)).toEqual([ofB.session, ofB.older])
    expect(await idsOn(keyOfB, `first: 10, after: "${oldest!.cursor}"`)).toEqual([])
  })

  it("SEC-05: sessionActivity tells of a tenant's own sessions alone, over WebSocket and SSE", async () => {
    const query = 'subscription { sessionActivity { id title } }'
    const seen: Record<string, string[]> = { a: [], b: [] }
    const sse = { text: '' }
    for (const [tenant, key] of [
      ['a', keyOfA],
      ['b', keyOfB],
    ] as const)
      socketOf({ endpoint }, { authorization: `Bearer ${key}` }).subscribe<{
        sessionActivity: { id: string; title: string }
      }>(
        { query },
        {
          next: ({ data }) => void seen[tenant]!.push(`${data!.sessionActivity.id} ${data!.sessionActivity.title}`),
          error: () => {},
          complete: () => {},
        },
      )
    const response = await post(endpoint, query, { token: keyOfB, accept: 'text/event-stream' })
    const reader = response.body!.getReader()
    const reading = (async () => {
      for (;;) {
        const { done, value } = await reader.read()
        if (done) return
        sse.text += new TextDecoder().decode(value)
      }
    })()
    const count = async (which: 'streamsOpened' | 'streamsEnded') =>
      (await node.core.metrics[which].get()).values[0]?.value ?? 0
    const listening = async () => (await count('streamsOpened')) - (await count('streamsEnded'))
    await vi.waitFor(async () => expect(await listening()).toBe(3), { timeout: 10_000 })
    for (const tenant of ['a', 'b'])
      await append(
        idsOf(tenant).session,
        event('session.updated', {
          title: `new title of ${tenant}`,
          instructions: null,
          model: 'demo/echo',
          archived: false,
        }),
      )
    await vi.waitFor(
      () => {
        for (const tenant of ['a', 'b'])
          expect(seen[tenant]!.at(-1)).toBe(`${idsOf(tenant).session} new title of ${tenant}`)
        expect(sse.text).toContain('new title of b')
      },
      { timeout: 10_000 },
    )
    expect(new Set(seen.a!.map((each) => each.split(' ')[0]))).toEqual(new Set([ofA.session]))
    expect(new Set(seen.b!.map((each) => each.split(' ')[0]))).toEqual(new Set([idsOf('b').session]))
    expect(sse.text).not.toContain(ofA.session)
    await reader.cancel()
    await reading
  })
})

describe('ids that another tenant has taken', () => {
  const create =
    'mutation ($input: CreateSessionInput!) { createSession(input: $input) { __typename ... on CreateSessionPayload { created } ... on SessionConflictError { message sessionId differingFields } } }'

  it('SEC-14: createSession with the id of another tenant is a conflict that tells nothing, with the same arguments too', async () => {
    const conflict = {
      __typename: 'SessionConflictError',
      sessionId: ofA.session,
      differingFields: ['sessionId'],
      message: `the id ${ofA.session} is taken: sessionId differs`,
    }
    for (const more of [{}, { title: 'secret plan of a', model: 'demo/echo' }, { title: 'other' }]) {
      const { data } = await askAs({ endpoint }, keyOfB, create, { input: { sessionId: ofA.session, ...more } })
      expect(data.createSession).toEqual(conflict)
    }
  })

  it('SEC-14: two tenants create the same id at once: one has it, the other a conflict; each may repeat its call', async () => {
    const input = { sessionId: 'ses_contested1', title: 'mine' }
    const both = () => Promise.all([keyOfA, keyOfB].map((key) => askAs({ endpoint }, key, create, { input })))
    const first = (await both()).map(({ data }) => data.createSession.__typename)
    expect(first.toSorted()).toEqual(['CreateSessionPayload', 'SessionConflictError'])
    const again = (await both()).map(({ data }) => data.createSession.__typename)
    expect(again).toEqual(first)
  })

  it('SEC-14: a message id of another tenant is a conflict in messageId, like one of another session of its own', async () => {
    for (const id of ['ses_ownofb0001', 'ses_ownofb0002'])
      expect((await askAs({ endpoint }, keyOfB, create, { input: { sessionId: id } })).data.createSession.created).toBe(
        true,
      )
    const own = 'msg_ownofb0001'
    const admit = (sessionId: string, messageId: string) =>
      mutation(
        'admitPrompt',
        { sessionId, messageId, text: 'Hello', resume: false },
        '__typename ... on PromptConflictError { differingFields message }',
      )
    const compact = (sessionId: string, messageId: string) =>
      mutation(
        'compactSession',
        { sessionId, messageId },
        '__typename ... on PromptConflictError { differingFields message }',
      )
    const asB = async ({ query, variables, field }: Attempt) =>
      (await askAs({ endpoint }, keyOfB, query, variables)).data[field]
    expect(await asB(admit('ses_ownofb0002', own))).toEqual({ __typename: 'PromptAdmission' })
    for (const make of [admit, compact]) {
      const expected = JSON.stringify(await asB(make('ses_ownofb0001', own)))
      expect(expected).toContain('"differingFields":["messageId"]')
      for (const taken of [ofA.pending, ofA.message])
        expect(JSON.stringify(await asB(make('ses_ownofb0001', taken))).replaceAll(taken, own)).toBe(expected)
    }
  })
})
