import { afterAll, beforeAll, expect, it } from 'vitest'
import { event } from '../src/events.ts'
import { type Served, serveLog } from './support/served.ts'
import { statementsDuring } from './support/statements.ts'
import { admitted, asking, created, promoted, step } from './support/story.ts'

let served: Served
beforeAll(async () => {
  served = await serveLog()
})
afterAll(() => served.close())

const databaseOf = () => new URL(served.database.url).pathname.slice(1)
const number = (n: number) => String(n).padStart(4, '0')

interface Page {
  edges: { cursor: string; node: { id: string; seq: number } }[]
  pageInfo: { hasNextPage: boolean; hasPreviousPage: boolean; startCursor: string | null; endCursor: string | null }
}

async function messages(session: string, args: string): Promise<Page> {
  const { data, errors } = await served.ask(`{ session(id: "${session}") { messages(${args}) {
    edges { cursor node { id seq } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } }`)
  if (errors) throw new Error(JSON.stringify(errors))
  return data.session.messages
}

async function withMessages(session: string, count: number) {
  await served.append(session, created())
  for (let n = 1; n <= count; n++) await say(session, n)
}

async function say(session: string, n: number) {
  const messageId = `msg_${session.slice(4)}${number(n)}`
  await served.append(session, admitted(messageId), promoted(messageId))
}

it('API-10: 45 messages are paged forward and backward by 20, each once, while new ones are appended', async () => {
  await withMessages('ses_paged0001', 45)
  const forward: string[] = []
  for (let after: string | null = null, more = true; more; ) {
    const page: Page = await messages('ses_paged0001', `first: 20${after ? `, after: "${after}"` : ''}`)
    expect(page.pageInfo.hasPreviousPage).toBe(after !== null)
    forward.push(...page.edges.map(({ node }) => node.id))
    if (forward.length === 20) await say('ses_paged0001', 46)
    after = page.pageInfo.endCursor
    more = page.pageInfo.hasNextPage
  }
  expect(forward).toEqual(Array.from({ length: 46 }, (_, i) => `msg_paged0001${number(i + 1)}`))

  const backward: string[] = []
  for (let before: string | null = null, more = true; more; ) {
    const page: Page = await messages('ses_paged0001', `last: 20${before ? `, before: "${before}"` : ''}`)
    expect(page.pageInfo.hasNextPage).toBe(before !== null)
    backward.unshift(...page.edges.map(({ node }) => node.id))
    before = page.pageInfo.startCursor
    more = page.pageInfo.hasPreviousPage
  }
  expect(backward).toEqual(forward)
  expect((await messages('ses_paged0001', 'after: null')).edges).toHaveLength(46)
})

it('API-10: first 0 is a page without entries that knows whether there are any', async () => {
  await served.append('ses_zero00001', created())
  expect((await messages('ses_zero00001', 'first: 0')).pageInfo).toEqual({
    hasNextPage: false,
    hasPreviousPage: false,
    startCursor: null,
    endCursor: null,
  })
  await say('ses_zero00001', 1)
  const none = await messages('ses_zero00001', 'first: 0')
  expect(none.edges).toEqual([])
  expect(none.pageInfo.hasNextPage).toBe(true)
  const { endCursor } = (await messages('ses_zero00001', 'first: 1')).pageInfo
  expect((await messages('ses_zero00001', `first: 0, after: "${endCursor}"`)).pageInfo).toMatchObject({
    hasNextPage: false,
    hasPreviousPage: true,
  })
})

it('API-11: a wrong page is refused with BAD_USER_INPUT and reaches no list', async () => {
  await served.append('ses_wrong0001', created())
  const foreign = Buffer.from('["sessions","2026-01-01T00:00:00.000Z","ses_x"]').toString('base64url')
  const beyondInt = Buffer.from('["messages",99999999999]').toString('base64url')
  const wrong = [
    'first: -1',
    'first: 201',
    'last: -1',
    'last: 201',
    'first: 1, last: 1',
    'after: ""',
    'after: "x"',
    `after: "${foreign}"`,
    `before: "${beyondInt}"`,
    'before: "bWVzc2FnZXM="',
  ]
  for (const args of wrong) {
    const { data, errors } = await served.ask(
      `{ session(id: "ses_wrong0001") { messages(${args}) { edges { cursor } } } }`,
    )
    expect(
      errors?.map((error) => error.extensions.code),
      args,
    ).toEqual(['BAD_USER_INPUT'])
    expect(data.session).toBeNull()
  }
  for (const field of ['sessions', 'interactions', 'quarantine']) {
    for (const args of ['first: -1', 'first: 201', 'after: "bm8"', 'after: "WyJzZXNzaW9ucyIsIm5vIHRpbWUiLCJ4Il0"']) {
      const { errors } = await served.ask(`{ ${field}(${args}) { edges { cursor } } }`)
      expect(errors?.[0]?.extensions.code, `${field} ${args}`).toBe('BAD_USER_INPUT')
    }
  }
  // A cursor of another list is refused although it looks alike.
  const alike = Buffer.from('["interactions","2026-01-01T00:00:00.000Z","req_x"]').toString('base64url')
  expect((await served.ask(`{ interactions(after: "${alike}") { edges { cursor } } }`)).errors).toBeUndefined()
  const { errors: refused } = await served.ask(`{ quarantine(after: "${alike}") { edges { cursor } } }`)
  expect(refused?.[0]?.extensions.code).toBe('BAD_USER_INPUT')
  // Times that JavaScript writes in this very way and the database does not know.
  for (const list of ['sessions', 'interactions', 'quarantine'])
    for (const time of ['+275760-09-13T00:00:00.000Z', '-000001-01-01T00:00:00.000Z', '0000-01-01T00:00:00.000Z']) {
      expect(new Date(time).toISOString()).toBe(time)
      const cursor = Buffer.from(JSON.stringify([list, time, 'x'])).toString('base64url')
      const { errors } = await served.ask(`{ ${list}(after: "${cursor}") { edges { cursor } } }`)
      expect(errors?.[0]?.extensions.code, `${list} ${time}`).toBe('BAD_USER_INPUT')
    }
  for (const args of ['first: -1', 'first: 1001', 'after: -1']) {
    const { errors } = await served.ask(`{ session(id: "ses_wrong0001") { events(${args}) { seq } } }`)
    expect(errors?.[0]?.extensions.code, args).toBe('BAD_USER_INPUT')
  }
  expect(served.logged()).toEqual([])
})

it('API-12: a page of history is limited by the database', async () => {
  await withMessages('ses_limit0001', 3)
  const bound: unknown[][] = []
  const texts = await statementsDuring(databaseOf(), () => messages('ses_limit0001', 'first: 2'), bound)
  const reads = texts.filter((text) => text.includes('"Message"'))
  expect(reads).toHaveLength(1)
  // One more than the page, to know whether there is another one.
  expect(reads[0]).toMatch(/LIMIT \$2/)
  expect(bound[texts.indexOf(reads[0]!)]?.[1]).toBe(3)
})

const everything = `{ sessions(first: 200) { edges { node {
  id seq status approvedTools usage { inputTokens }
  messages { edges { node { id ... on AssistantMessage { parts { ... on ToolCall { callId } ... on TextPart { text } } } } } }
  inputs { id session { id } } pending: inputs(state: PENDING) { id }
  interactions { id session { id } } settled: interactions(open: false) { id }
  execution { id } recoveries { id session { id } } events(first: 5) { seq }
} } } }`

it('API-13: the number of statements does not grow with the rows', async () => {
  const own = await serveLog()
  try {
    const name = new URL(own.database.url).pathname.slice(1)
    const grow = async (from: number, to: number) => {
      for (let n = from; n <= to; n++) {
        const id = number(n)
        await own.append(`ses_many${id}`, created(), admitted(`msg_many${id}`), promoted(`msg_many${id}`))
        await own.append(`ses_many${id}`, ...step(`msg_.many${id}`, 'Answer'))
        await own.append(`ses_many${id}`, ...asking(`msg_.asks${id}`, `req_.many${id}`))
        await own.append(`ses_many${id}`, admitted(`msg_next${id}`))
      }
    }
    const counted = async () => {
      let answer = await own.ask('{ __typename }')
      const texts = await statementsDuring(name, async () => {
        answer = await own.ask(everything)
      })
      expect(answer.errors).toBeUndefined()
      return { answer, statements: texts.length, texts }
    }
    await grow(1, 2)
    const few = await counted()
    await grow(3, 50)
    const many = await counted()
    expect(many.answer.data.sessions.edges).toHaveLength(50)
    const { node } = many.answer.data.sessions.edges[0]
    expect(node.messages.edges).toHaveLength(3)
    expect(node.inputs).toHaveLength(2)
    expect(node.pending).toHaveLength(1)
    expect(node.interactions).toHaveLength(1)
    expect(node.messages.edges[2].node.parts).toEqual([{ callId: 'call_1' }])
    expect(many.statements).toBe(few.statements)
    // No transaction is open twice, and all of it is one snapshot.
    expect(many.texts.filter((text) => /^BEGIN/i.test(text))).toHaveLength(1)
  } finally {
    await own.close()
  }
})

it('API-04: every id resolves by node; a message id gives its input until it is promoted, and its message afterwards', async () => {
  const session = 'ses_nodes0001'
  await served.append(session, created(), admitted('msg_nodes0001'), admitted('msg_nodes0002', 'Later'))
  await served.append(
    session,
    event('prompt.admitted', {
      messageId: 'msg_nodes0003',
      inputKind: 'COMPACTION',
      text: '',
      attachments: [],
      delivery: 'STEER',
      requestExecution: false,
    }),
  )
  const seen = new Set<string>()
  const typeOf = async (id: string) => {
    const { data, errors } = await served.ask('query ($id: ID!) { node(id: $id) { __typename id } }', { id })
    expect(errors).toBeUndefined()
    if (data.node) expect(data.node.id).toBe(id)
    if (data.node) seen.add(data.node.__typename)
    return data.node?.__typename ?? null
  }
  expect(await typeOf(session)).toBe('Session')
  expect(await typeOf('msg_nodes0001')).toBe('SessionInput')
  expect(await typeOf('msg_nodes0003')).toBe('SessionInput')
  await served.append(session, promoted('msg_nodes0001'), ...asking('msg_.nodes1', 'req_.nodes1'))
  expect(await typeOf('msg_nodes0001')).toBe('UserMessage')
  expect(await typeOf('msg_nodes0002')).toBe('SessionInput')
  expect(await typeOf('msg_.nodes1')).toBe('AssistantMessage')
  expect(await typeOf('req_.nodes1')).toBe('Interaction')
  await served.append(
    session,
    event('quarantine.opened', {
      quarantineId: 'qua_.nodes1',
      executionId: 'exe_.story',
      quarantineKind: 'RECOVERY',
      reason: 'test',
    }),
  )
  expect(await typeOf('qua_.nodes1')).toBe('QuarantineEntry')
  // What recovery hands out, and what the system itself writes into the history.
  const recovered = {
    executionId: 'exe_.nodes1',
    assistantMessageId: 'msg_.nodes1',
    continuationMessageId: 'msg_.nodes2',
    phase: 'UNKNOWN' as const,
    handover: false,
  }
  await served.append(
    session,
    event('step.recovered', recovered),
    event('synthetic.appended', { messageId: 'msg_.nodes3', text: 'continue', hidden: false }),
    event('prompt.promoted', {
      messageId: 'msg_nodes0003',
      inputKind: 'COMPACTION',
      text: '',
      attachments: [],
      hidden: false,
    }),
    event('compaction.started', { messageId: 'msg_nodes0003', automatic: false }),
  )
  const handed = await served.ask(`{ session(id: "${session}") { recoveries { id continuationMessageId } } }`)
  expect(await typeOf(handed.data.session.recoveries[0].id)).toBe('Recovery')
  expect(await typeOf(handed.data.session.recoveries[0].continuationMessageId)).toBe('SessionInput')
  expect(await typeOf('msg_.nodes3')).toBe('SyntheticMessage')
  expect(await typeOf('msg_nodes0003')).toBe('CompactionMessage')
  // Each kind of Node that there is has been asked for.
  const { data: kinds } = await served.ask('{ __type(name: "Node") { possibleTypes { name } } }')
  expect(kinds.__type.possibleTypes.map(({ name }: { name: string }) => name).sort()).toEqual([...seen].sort())
  for (const unknown of [
    '',
    'ses_',
    'ses_unknown01',
    'msg_unknown01',
    'exe_.story',
    'nonsense',
    'ses_\u0000',
    "x' OR 1=1",
  ])
    expect(await typeOf(unknown), unknown).toBeNull()
})

it('SEC-04: what belongs to another tenant is as if it did not exist', async () => {
  await served.append(
    'ses_other0001',
    event('session.created', { tenant: 'other', title: 'Theirs', instructions: null, model: 'demo/echo' }),
    admitted('msg_other0001'),
    promoted('msg_other0001'),
    ...asking('msg_.other1', 'req_.other1'),
  )
  const { data } = await served.ask(`{ session(id: "ses_other0001") { id } a: node(id: "ses_other0001") { id }
    b: node(id: "msg_other0001") { id } c: node(id: "req_.other1") { id }
    sessions(first: 200, search: "Theirs") { edges { cursor } } interactions(first: 200) { edges { node { id } } } }`)
  expect(data).toMatchObject({ session: null, a: null, b: null, c: null, sessions: { edges: [] } })
  expect(data.interactions.edges.map((edge: { node: { id: string } }) => edge.node.id)).not.toContain('req_.other1')
  const { errors } = await served.ask('{ verifySession(id: "ses_other0001") { events } }')
  expect(errors?.[0]?.extensions.code).toBe('NOT_FOUND')
})

it('API-17: times are UTC with milliseconds and JSON comes back as it was given', async () => {
  await served.append('ses_values001', created(), admitted('msg_values001'), promoted('msg_values001'))
  await served.append('ses_values001', ...asking('msg_.values1', 'req_.values1'))
  const { data } = await served.ask(`{ session(id: "ses_values001") { createdAt interactions { toolInput }
    messages(last: 1) { edges { node { ... on AssistantMessage { parts { ... on ToolCall { input } } } } } }
    events(first: 100) { at ... on ToolCalled { toolInput } } } }`)
  expect(data.session.createdAt).toMatch(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/)
  const input = { to: 'all', n: [1, null] }
  expect(data.session.interactions[0].toolInput).toEqual(input)
  expect(data.session.messages.edges[0].node.parts[0].input).toEqual(input)
  expect(data.session.events.find((item: object) => 'toolInput' in item).toolInput).toEqual(input)
})

it('API-20: usage beyond 32 bits is an exact number', async () => {
  const usage = { inputTokens: 3_000_000_000, outputTokens: 1, reasoningTokens: 0, cachedInputTokens: 0 }
  await served.append('ses_usage0001', created(), admitted('msg_usage0001'), promoted('msg_usage0001'))
  await served.append('ses_usage0001', ...step('msg_.usage1', 'Long', usage))
  const { data, errors } =
    await served.ask(`{ session(id: "ses_usage0001") { usage { inputTokens } events { ... on StepEnded { usage { inputTokens outputTokens } } }
    messages(last: 1) { edges { node { ... on AssistantMessage { usage { inputTokens } } } } } } }`)
  expect(errors).toBeUndefined()
  expect(data.session.usage.inputTokens).toBe(3_000_000_000)
  expect(data.session.messages.edges[0].node.usage.inputTokens).toBe(3_000_000_000)
  expect(data.session.events.at(-1).usage).toEqual({ inputTokens: 3_000_000_000, outputTokens: 1 })
})

it('API-21: interactions and quarantine are paged while new ones come, each once', async () => {
  const own = await serveLog()
  try {
    const add = async (n: number) => {
      const id = number(n)
      await own.append(
        `ses_inbox${id}`,
        created(),
        admitted(`msg_inbox${id}`),
        promoted(`msg_inbox${id}`),
        ...asking(`msg_.inbox${id}`, `req_.inbox${id}`),
      )
      await own.append(
        `ses_inbox${id}`,
        event('quarantine.opened', {
          quarantineId: `qua_.inbox${id}`,
          executionId: `exe_.${id}`,
          quarantineKind: 'RECOVERY',
          reason: 'test',
        }),
      )
    }
    for (let n = 1; n <= 5; n++) await add(n)
    let next = 6
    for (const field of ['interactions', 'quarantine']) {
      const seen: string[] = []
      for (let after: string | null = null, more = true; more; ) {
        const { data } = await own.ask(
          `query ($after: String) { ${field}(first: 2, after: $after) {
          edges { node { id session { id } } } pageInfo { hasNextPage endCursor } } }`,
          { after },
        )
        seen.push(...data[field].edges.map((edge: { node: { id: string } }) => edge.node.id))
        if (seen.length === 2) await add(next++)
        more = data[field].pageInfo.hasNextPage
        after = data[field].pageInfo.endCursor
      }
      expect(seen).toHaveLength(next - 1)
      expect(new Set(seen).size).toBe(seen.length)
    }
  } finally {
    await own.close()
  }
})

it('STREAM-24: seq and messages of one operation are of one point in time', async () => {
  await served.append('ses_moment001', created())
  let stop = false
  const writing = (async () => {
    for (let n = 1; !stop; n++) await say('ses_moment001', n)
  })()
  try {
    const seen = new Set<number>()
    // The history is read last, after as many statements as there are fields. The writer has to have moved the session in between.
    for (let look = 0; look < 15 || seen.size < 3; look++) {
      const { data } = await served.ask(`{ session(id: "ses_moment001") { seq inputs { id } events(first: 1000) { seq }
        messages(last: 1) { edges { node { seq } } } status } }`)
      const { seq, inputs, events, messages } = data.session
      // Each prompt is two events, so the log ends with the promotion of the last one.
      expect(messages.edges[0]?.node.seq ?? 1).toBe(seq)
      expect(events.at(-1).seq).toBe(seq)
      expect(inputs).toHaveLength((seq - 1) / 2)
      seen.add(seq)
    }
  } finally {
    stop = true
    await writing
  }
})

it('DB-04: one connection is enough for many callers who read at once', async () => {
  const own = await serveLog({ pool: 1 })
  try {
    await own.append('ses_pool00001', created(), admitted('msg_pool00001'), promoted('msg_pool00001'))
    const answers = await Promise.all(Array.from({ length: 12 }, () => own.ask(everything)))
    for (const answer of answers) expect(answer.errors).toBeUndefined()
    const verified = await Promise.all(
      Array.from({ length: 3 }, () => own.ask('{ verifySession(id: "ses_pool00001") { consistent } }')),
    )
    for (const answer of verified) expect(answer.data).toEqual({ verifySession: { consistent: true } })
  } finally {
    await own.close()
  }
})

it('a query cannot write: its transaction is read-only', async () => {
  const texts = await statementsDuring(databaseOf(), () => served.ask('{ sessions { edges { cursor } } }'))
  expect(texts.some((text) => text.includes("set_config('transaction_read_only', 'on', true)"))).toBe(true)
  expect(texts.some((text) => /REPEATABLE READ/.test(text))).toBe(true)
})
