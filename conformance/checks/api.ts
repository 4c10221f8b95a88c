import type { Check } from '../check.ts'
import { type Anything, answer } from '../http.ts'
import { expectEqual, expectThat } from '../outcome.ts'
import { named, upTo } from '../watching.ts'
import { newSessionId, type World } from '../world.ts'

const create = `mutation ($input: CreateSessionInput!) { createSession(input: $input) { __typename
  ... on CreateSessionPayload { created session { id title model status seq } } ... on SessionConflictError { message sessionId differingFields } ... on InvalidInputError { message field } } }`
const update = `mutation ($input: UpdateSessionInput!) { updateSession(input: $input) { __typename
  ... on UpdateSessionPayload { session { title instructions } } ... on SessionChangedError { message sessionId } ... on SessionNotFoundError { message sessionId } } }`
const archive = `mutation ($input: ArchiveSessionInput!) { archiveSession(input: $input) { __typename ... on UpdateSessionPayload { session { archivedAt } } } }`
const node = 'query ($id: ID!) { node(id: $id) { __typename id } }'

const created = async ({ ask }: World, input: Record<string, unknown>): Promise<Anything> =>
  (await ask(create, { input })).createSession

interface Page {
  edges: { cursor: string; node: { id: string; seq: number } }[]
  pageInfo: { hasNextPage: boolean; hasPreviousPage: boolean; startCursor: string | null; endCursor: string | null }
}

async function messages({ ask }: World, id: string, page: string): Promise<Page> {
  const { session } = await ask(
    `query ($id: ID!) { session(id: $id) { messages(${page}) { edges { cursor node { id seq } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } }`,
    { id },
  )
  return session.messages
}

export const apiChecks: Check[] = [
  {
    id: 'C-API-01',
    title:
      'createSession has its effect once: repeated, after an update, and twice at once; other arguments are a conflict',
    async run(world) {
      const sessionId = world.own(newSessionId())
      const input = { sessionId, title: 'first', model: world.target.model }
      const both = await Promise.all([created(world, input), created(world, input)])
      expectEqual('created, twice at once', both.map((each) => each.created).sort(), [false, true])
      await world.ask(update, { input: { sessionId, title: 'second' } })
      const again = await created(world, input)
      expectEqual('repeated after an update', [again.created, again.session?.title], [false, 'second'])
      const { __typename, differingFields } = await created(world, { ...input, title: 'other' })
      expectEqual('with another title', [__typename, differingFields], ['SessionConflictError', ['title']])
      expectEqual(
        'the log',
        (await world.log(sessionId)).map((item) => item.__typename),
        ['SessionCreated', 'SessionUpdated'],
      )
    },
  },
  {
    id: 'C-API-02',
    title:
      'a malformed session id or an unknown model is InvalidInputError with the field and the rule; nothing is written',
    async run(world) {
      for (const [field, over] of [
        ['sessionId', { sessionId: 'session-12345678' }],
        ['sessionId', { sessionId: 'ses_1234567' }],
        ['sessionId', { sessionId: 'ses_12345678.9' }],
        ['model', { model: 'nobody/nothing' }],
      ] as const) {
        const input = { sessionId: newSessionId(), ...over }
        const refused = await created(world, input)
        expectEqual(
          `the answer to ${JSON.stringify(over)}`,
          [refused.__typename, refused.field],
          ['InvalidInputError', field],
        )
        expectThat('its message', refused.message.length > 10, 'the rule', refused.message)
        const { session } = await world.ask('query ($id: ID!) { session(id: $id) { id } }', { id: input.sessionId })
        expectEqual('the session', session, null)
      }
    },
  },
  {
    id: 'C-API-03',
    title: 'updateSession changes what is given and leaves the rest; what changes nothing appends nothing',
    async run(world) {
      const sessionId = await world.session({ title: 'a', instructions: 'be brief' })
      const change = async (over: object) =>
        (await world.ask(update, { input: { sessionId, ...over } })).updateSession.session
      expectEqual('a new title', await change({ title: 'b' }), { title: 'b', instructions: 'be brief' })
      expectEqual('the same again', await change({ title: 'b' }), { title: 'b', instructions: 'be brief' })
      expectEqual('seq', await world.seq(sessionId), 2)
      const nowhere = (await world.ask(update, { input: { sessionId: newSessionId(), title: 'x' } })).updateSession
      expectEqual('an unknown one', nowhere.__typename, 'SessionNotFoundError')
    },
  },
  {
    id: 'C-API-04',
    title: 'ifSeq: with the seq of now as without it, with another SessionChangedError and nothing written',
    async run(world) {
      const sessionId = await world.session()
      const change = async (ifSeq: number, title: string) =>
        (await world.ask(update, { input: { sessionId, title, ifSeq } })).updateSession
      expectEqual('now', (await change(1, 'b')).__typename, 'UpdateSessionPayload')
      const stale = await change(1, 'c')
      expectEqual('another', [stale.__typename, stale.sessionId], ['SessionChangedError', sessionId])
      expectEqual('seq', await world.seq(sessionId), 2)
    },
  },
  {
    id: 'C-API-05',
    title: 'archive and back, each once; a new prompt takes a session out of the archive',
    async run(world) {
      const sessionId = await world.session()
      const set = async (archived: boolean) =>
        (await world.ask(archive, { input: { sessionId, archived } })).archiveSession.session.archivedAt
      for (const archived of [true, true, false, true])
        expectEqual(`archivedAt after ${archived}`, (await set(archived)) !== null, archived)
      expectEqual(
        'SessionUpdated',
        (await world.log(sessionId)).filter(named('SessionUpdated')).map((item) => item.archived),
        [true, false, true],
      )
      await world.admit(sessionId, 'Hello?', { resume: false })
      const { session } = await world.ask('query ($id: ID!) { session(id: $id) { archivedAt } }', { id: sessionId })
      expectEqual('after a new prompt', session.archivedAt, null)
    },
  },
  {
    id: 'C-API-06',
    title:
      'node resolves every id that is handed out; a msg_ id is its input, then its message; unknown and malformed ids are null',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      const resolved = async (each: string) => (await world.ask(node, { id: each })).node
      const { input } = await world.admit(id, 'Hello!', { resume: false })
      expectEqual('a session', await resolved(id), { __typename: 'Session', id })
      expectEqual('a pending prompt', await resolved(input.id), { __typename: 'SessionInput', id: input.id })
      await world.ask('mutation ($id: ID!) { resumeSession(input: { sessionId: $id }) { __typename } }', { id })
      const log = await world.rest(id)
      expectEqual('a promoted one', await resolved(input.id), { __typename: 'UserMessage', id: input.id })
      const { messageId } = log.find(named('StepStarted'))!
      expectEqual('an answer', await resolved(messageId), { __typename: 'AssistantMessage', id: messageId })
      expectThat('an id of the server', messageId.includes('.'), 'a dot in it', messageId)
      for (const unknown of ['ses_conformance-nowhere', 'msg_.nowhere', 'nonsense', '', 'ses_\u0000'])
        expectEqual(`node(${JSON.stringify(unknown)})`, await resolved(unknown), null)
    },
  },
  {
    id: 'C-API-07',
    title:
      'messages are paged forward and backward, each once in seq order, with cursors that stay good while new ones come',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      for (let n = 0; n < 5; n++) await world.run(id, `/slow 1 ${n}`)
      const all = (await messages(world, id, 'first: 100')).edges.map((edge) => edge.node.seq)
      expectEqual('messages', [all.length, all], [10, [...all].sort((a, b) => a - b)])
      const first = await messages(world, id, 'first: 4')
      await world.run(id, '/slow 1 one more')
      const forward = [first]
      while (forward.at(-1)!.pageInfo.hasNextPage && forward.length < 9)
        forward.push(await messages(world, id, `first: 4, after: "${forward.at(-1)!.pageInfo.endCursor}"`))
      const backward = [await messages(world, id, 'last: 5')]
      while (backward[0]!.pageInfo.hasPreviousPage && backward.length < 9)
        backward.unshift(await messages(world, id, `last: 5, before: "${backward[0]!.pageInfo.startCursor}"`))
      const whole = (await messages(world, id, 'first: 100')).edges.map((edge) => edge.node.seq)
      for (const [name, pages, sizes] of [
        ['forward', forward, [4, 4, 4]],
        ['backward', backward, [2, 5, 5]],
      ] as const) {
        expectEqual(
          `seqs ${name}`,
          pages.flatMap(({ edges }) => edges.map((edge) => edge.node.seq)),
          whole,
        )
        expectEqual(
          `sizes ${name}`,
          pages.map(({ edges }) => edges.length),
          sizes,
        )
      }
      const none = await messages(world, id, 'first: 0')
      expectEqual('first 0', [none.edges.length, none.pageInfo.hasNextPage], [0, true])
    },
  },
  {
    id: 'C-API-08',
    title:
      'cursors of another list, first below 0 or too large, first with last: an error with a code that names no database',
    async run(world) {
      const id = await world.session()
      const sessions: Anything = await world.ask('{ sessions(first: 1) { edges { cursor } } }')
      for (const page of [
        `after: "${sessions.sessions.edges[0].cursor}"`,
        'after: "nonsense"',
        'first: -1',
        'first: 1000000',
        'first: 1, last: 1',
      ]) {
        const { errors } = await answer(
          world.target,
          `query ($id: ID!) { session(id: $id) { messages(${page}) { edges { cursor } } } }`,
          { id },
        )
        expectEqual(
          `codes of messages(${page})`,
          errors?.map(({ extensions }) => extensions?.code),
          ['BAD_USER_INPUT'],
        )
        expectThat(
          'its message',
          !/prisma|postgres|sql/i.test(errors![0]!.message),
          'nothing of a database',
          errors![0]!.message,
        )
      }
    },
  },
  {
    id: 'C-API-09',
    title: 'sessions: newest activity first, found by words of title and prompt, archived ones only when asked for',
    async run(world) {
      const word = `w${crypto.randomUUID().replaceAll('-', '').slice(0, 12)}`
      const [one, two] = [await world.session({ title: `${word} one` }), await world.session({ title: 'two' })]
      await world.admit(two, `${word} in a prompt`, { resume: false })
      const found = async (over = '') =>
        (
          (
            await world.ask(
              `query ($word: String) { sessions(first: 5, search: $word ${over}) { edges { node { id } } } }`,
              { word },
            )
          ).sessions.edges as Anything[]
        ).map((edge) => edge.node.id)
      expectEqual('by word', await found(), [two, one])
      await world.ask(update, { input: { sessionId: one, instructions: 'moved' } })
      expectEqual('newest activity first', await found(), [one, two])
      await world.ask(archive, { input: { sessionId: two } })
      expectEqual('not archived', await found(), [one])
      expectEqual('archived', await found(', archived: true'), [two])
      expectEqual(
        'by status',
        [await found(', status: [IDLE]'), await found(', status: [RUNNING, WAITING]')],
        [[one], []],
      )
    },
  },
  {
    id: 'C-API-10',
    title: 'Session.events is paged by seq: after and first',
    async run(world) {
      const id = await world.session()
      for (let n = 0; n < 4; n++) await world.admit(id, `${n}`, { resume: false })
      const page = async (after: number, first: number) =>
        (
          (
            await world.ask(
              'query ($id: ID!, $a: Int, $f: Int) { session(id: $id) { events(after: $a, first: $f) { seq } } }',
              { id, a: after, f: first },
            )
          ).session.events as { seq: number }[]
        ).map(({ seq }) => seq)
      expectEqual(
        'pages',
        [await page(0, 2), await page(2, 2), await page(4, 2), await page(5, 2)],
        [upTo(1, 2), upTo(3, 4), [5], []],
      )
    },
  },
  {
    id: 'C-API-11',
    title: 'times are RFC 3339 in UTC with milliseconds, and usage is counted',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      const log = await world.run(id, 'Hello!')
      const rfc3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/
      for (const { at } of log) expectThat('a time', rfc3339.test(at), 'RFC 3339 in UTC with milliseconds', at)
      const { session } = await world.ask(
        'query ($id: ID!) { session(id: $id) { createdAt updatedAt usage { inputTokens outputTokens } } }',
        { id },
      )
      expectEqual('createdAt and updatedAt', [session.createdAt, session.updatedAt], [log[0]!.at, log.at(-1)!.at])
      const { usage } = log.find(named('StepEnded'))!
      expectEqual('usage', session.usage, { inputTokens: usage.inputTokens, outputTokens: usage.outputTokens })
      expectThat('tokens', usage.outputTokens > 0, 'some', usage)
    },
  },
  {
    id: 'C-API-12',
    title:
      'every execution that started has exactly one end, every step one terminal, and the log replays to what the tables say',
    needs: ['echo', 'wait'],
    async run(world) {
      const id = await world.session()
      await world.run(id, 'one /tool wait {"ms":10}')
      const log = await world.run(id, '/fail invalid')
      const ids = (pattern: RegExp, key: string) =>
        log.filter(({ __typename }) => pattern.test(__typename)).map((item) => item[key])
      expectEqual(
        'ends of executions',
        ids(/^(ExecutionSettled|StepRecovered)$/, 'executionId'),
        ids(/^ExecutionStarted$/, 'executionId'),
      )
      expectEqual(
        'ends of steps',
        ids(/^Step(Ended|Failed|Interrupted)$/, 'messageId'),
        ids(/^StepStarted$/, 'messageId'),
      )
      expectEqual(
        'the failed one',
        [log.at(-1)!.outcome, log.find(named('StepFailed'))!.error.code],
        ['FAILED', 'PROVIDER_INVALID'],
      )
      const { verifySession } = await world.ask(
        'query ($id: ID!) { verifySession(id: $id) { consistent events differences } }',
        { id },
      )
      expectEqual('verifySession', verifySession, { consistent: true, events: log.length, differences: [] })
    },
  },
  {
    id: 'C-API-13',
    title: 'compactSession admits a compaction once, and the transcript stays',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      for (const text of ['one', 'two', 'three']) await world.run(id, `/slow 1 ${text}`)
      const input = { sessionId: id, messageId: `msg_${crypto.randomUUID()}` }
      const compact =
        'mutation ($input: CompactSessionInput!) { compactSession(input: $input) { __typename ... on CompactSessionPayload { input { id kind } } ... on Error { message } } }'
      const first = (await world.ask(compact, { input })).compactSession
      expectEqual('the answer', first, {
        __typename: 'CompactSessionPayload',
        input: { id: input.messageId, kind: 'COMPACTION' },
      })
      expectEqual('the same again', (await world.ask(compact, { input })).compactSession, first)
      const log = await world.rest(id, 4)
      expectEqual('CompactionEnded', log.filter(named('CompactionEnded')).length, 1)
      expectEqual('messages', (await messages(world, id, 'first: 50')).edges.length, 7)
    },
  },
]
