import { within } from '../arrivals.ts'
import type { Check } from '../check.ts'
import { post, type Target } from '../http.ts'
import { expectEqual, expectThat } from '../outcome.ts'
import { watchEventStream } from '../watching.ts'
import { openSocket } from '../websocket.ts'
import { newSessionId, type World } from '../world.ts'

const foreign = { origin: 'https://conformance.invalid' }

/** Whoever has this token, or none, gets UNAUTHENTICATED on each transport and no data. */
async function expectUnauthenticated(world: World, token: string | null): Promise<void> {
  const target: Target = { ...world.target, token }
  const session = await world.session()
  const create = `mutation { createSession(input: { sessionId: "${newSessionId()}" }) { __typename } }`
  for (const query of ['{ models { id } }', create, `{ session(id: "${session}") { id } }`]) {
    const { body, status, text } = await post(target, { query })
    expectThat(
      `the answer to ${query}`,
      !body?.data && body?.errors?.[0]?.extensions?.code === 'UNAUTHENTICATED',
      'UNAUTHENTICATED and no data',
      `HTTP ${status} ${text}`,
    )
  }
  const stream = await post(
    target,
    { query: `subscription { sessionEvents(sessionId: "${session}") { seq } }` },
    { accept: 'text/event-stream' },
  )
  expectThat(
    'over SSE',
    stream.text.includes('UNAUTHENTICATED') && !stream.text.includes('"seq"'),
    'UNAUTHENTICATED and no event',
    stream.text,
  )

  // Either the hello is refused, which closes the socket, or each operation is.
  const socket = await openSocket(target, { greet: false })
  socket.send({ type: 'connection_init', ...(token !== null && { payload: { authorization: `Bearer ${token}` } }) })
  await socket.received.until('an answer to the hello', (all) => all.length > 0).catch(() => {})
  if (socket.isOpen()) {
    socket.send({
      type: 'subscribe',
      id: 's',
      payload: { query: `subscription { sessionEvents(sessionId: "${session}") { seq } }` },
    })
    await socket.received.until('a refusal', (all) => all.some(({ id }) => id === 's')).catch(() => {})
    const answers = socket.received.all.filter(({ id }) => id === 's')
    const refused = JSON.stringify(answers).includes('UNAUTHENTICATED') || !socket.isOpen()
    expectThat(
      'over WebSocket',
      refused && !JSON.stringify(answers).includes('"seq"'),
      'UNAUTHENTICATED and no event',
      answers,
    )
  } else
    expectThat(
      'the close',
      [4401, 4403].includes((await within('the close', socket.closed)).code),
      '4401 or 4403',
      await socket.closed,
    )
  socket.close()
}

export const securityChecks: Check[] = [
  {
    id: 'C-SEC-01',
    title: 'a page of another origin is refused, over HTTP and WebSocket, and changes nothing',
    async run(world) {
      const sessionId = newSessionId()
      const { status, body } = await post(
        world.target,
        { query: `mutation { createSession(input: { sessionId: "${sessionId}" }) { __typename } }` },
        foreign,
      )
      expectThat('over HTTP', status === 403 && !body?.data, '403 and no data', { status, body })
      const { session } = await world.ask('query ($id: ID!) { session(id: $id) { id } }', { id: sessionId })
      expectEqual('the session', session, null)
      const socket = await openSocket(world.target, { greet: false, headers: foreign })
      expectEqual('over WebSocket', socket.isOpen(), false)
    },
  },
  {
    id: 'C-SEC-02',
    title: 'without a token every operation is UNAUTHENTICATED on every transport',
    needs: ['token'],
    run: (world) => expectUnauthenticated(world, null),
  },
  {
    id: 'C-SEC-03',
    title: 'with a wrong token every operation is UNAUTHENTICATED on every transport',
    needs: ['token'],
    run: (world) => expectUnauthenticated(world, `${world.target.token}x`),
  },
  {
    id: 'C-SEC-04',
    title: 'the token opens HTTP, SSE and WebSocket',
    needs: ['token'],
    async run(world) {
      const id = await world.session()
      for (const via of ['sse', 'websocket'] as const) await (await world.watch(id, 0, via)).synced()
      const header = await watchEventStream(world.target, id, 0)
      await header.synced()
      header.close()
    },
  },
  {
    id: 'C-SEC-05',
    title:
      'no tool shows more than its name, description, schema and whether it needs approval; no model more than its id and size',
    async run({ ask }) {
      const { tool, model } = await ask(
        '{ tool: __type(name: "ToolDefinition") { fields { name } } model: __type(name: "Model") { fields { name } } }',
      )
      const names = (type: { fields: { name: string }[] }) => type.fields.map(({ name }) => name).sort()
      expectEqual(
        'fields',
        [names(tool), names(model)],
        [
          ['description', 'inputSchema', 'name', 'needsApproval'],
          ['contextTokens', 'id'],
        ],
      )
    },
  },
]
