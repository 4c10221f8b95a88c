import { within } from '../arrivals.ts'
import type { Check } from '../check.ts'
import { expectEqual, expectThat } from '../outcome.ts'
import { named, subscription, watchSocket } from '../watching.ts'
import type { Socket } from '../websocket.ts'
import { silenceMsMax } from './sse.ts'

const hello = (socket: Socket, id: string) =>
  socket.send({ type: 'subscribe', id, payload: { query: '{ __typename }' } })

/** What a client does wrong, and the code that its socket is closed with. `greeted`: after it has said hello. */
const breaks: {
  id: string
  code: number
  what: string
  greeted: boolean
  act(socket: Socket, session: string): Promise<void> | void
}[] = [
  { id: 'C-WS-03', code: 4400, what: 'sends what is no message', greeted: true, act: (socket) => socket.send('{') },
  {
    id: 'C-WS-04',
    code: 4400,
    what: 'sends a type that is not there',
    greeted: true,
    act: (socket) => socket.send({ type: 'start', id: '1' }),
  },
  {
    id: 'C-WS-05',
    code: 4401,
    what: 'subscribes before the hello',
    greeted: false,
    act: (socket) => hello(socket, '1'),
  },
  {
    id: 'C-WS-06',
    code: 4409,
    what: 'uses an id that is taken',
    greeted: true,
    async act(socket, session) {
      const payload = { query: subscription, variables: { id: session } }
      socket.send({ type: 'subscribe', id: 'same', payload })
      await socket.got('next', 'same')
      socket.send({ type: 'subscribe', id: 'same', payload })
    },
  },
  {
    id: 'C-WS-07',
    code: 4429,
    what: 'says hello twice',
    greeted: true,
    act: (socket) => socket.send({ type: 'connection_init' }),
  },
]

export const websocketChecks: Check[] = [
  {
    id: 'C-WS-01',
    title: 'graphql-transport-ws: hello is answered, a query ends with one next and complete, ping with pong',
    async run({ socket: open }) {
      const socket = await open()
      expectEqual('the subprotocol', socket.protocol, 'graphql-transport-ws')
      hello(socket, 'q')
      await socket.got('complete', 'q')
      expectEqual(
        'messages of q',
        socket.received.all.filter(({ id }) => id === 'q').map(({ type }) => type),
        ['next', 'complete'],
      )
      socket.send({ type: 'ping' })
      await socket.got('pong')
      // One that nobody asked for is taken.
      socket.send({ type: 'pong' })
      hello(socket, 'q')
      await socket.got('complete', 'q', 2)
    },
  },
  {
    id: 'C-WS-02',
    title: 'a document that does not parse or validate ends with one error, and the socket goes on',
    async run({ socket: open }) {
      const socket = await open()
      for (const [id, query] of Object.entries({ unparsed: '{', unknown: '{ nowhere }' })) {
        socket.send({ type: 'subscribe', id, payload: { query } })
        const { payload } = await socket.got('error', id)
        expectThat('its payload', typeof payload[0]?.message === 'string', 'GraphQL errors', payload)
      }
      hello(socket, 'q')
      await socket.got('complete', 'q')
    },
  },
  ...breaks.map(
    ({ id, code, what, greeted, act }): Check => ({
      id,
      title: `a client that ${what} is closed with ${code}; another socket does not notice`,
      async run(world) {
        const session = await world.session()
        const witness = await world.watch(session)
        await witness.synced()
        const socket = await world.socket({ greet: greeted })
        await act(socket, session)
        expectEqual('the code', (await within('the close', socket.closed)).code, code)
        await world.admit(session, 'still there?', { resume: false })
        await witness.see('an event on the other socket', named('PromptAdmitted'))
      },
    }),
  ),
  {
    id: 'C-WS-08',
    title: 'complete ends that operation alone: nothing more comes under its id, which is free again',
    async run(world) {
      const id = await world.session()
      const socket = await world.socket()
      const rename = (title: string) =>
        world.ask(
          'mutation ($id: ID!, $title: String) { updateSession(input: { sessionId: $id, title: $title }) { __typename } }',
          { id, title },
        )
      const subscribe = (name: string) =>
        socket.send({ type: 'subscribe', id: name, payload: { query: subscription, variables: { id, after: 1 } } })
      subscribe('a')
      await socket.got('next', 'a')
      const other = watchSocket(socket, id, 1)
      await other.synced()
      socket.send({ type: 'complete', id: 'a' })
      // Answered in order: behind it, the complete has been read.
      socket.send({ type: 'ping' })
      await socket.got('pong')
      await rename('for the other alone')
      await other.see('the event on the other operation', named('SessionUpdated'))
      await rename('and once more')
      await other.items.until('two events', (all) => all.filter(named('SessionUpdated')).length === 2)
      expectEqual(
        'messages of a',
        socket.received.all.filter((message) => message.id === 'a').map(({ type }) => type),
        ['next'],
      )
      socket.send({ type: 'complete', id: 'nobody' })
      subscribe('a')
      await socket.got('next', 'a', 2)
      expectThat('the socket', socket.isOpen(), 'open', 'closed')
    },
  },
  {
    id: 'C-WS-09',
    title: 'an idle socket is pinged at most 12 s apart',
    slow: true,
    async run(world) {
      const watching = await world.socket()
      await watching.pings.until('a ping on an idle socket', (all) => all.length > 0, silenceMsMax)
    },
  },
  {
    id: 'C-WS-10',
    title: 'another subprotocol is refused with 4406, or at the handshake',
    async run({ socket: open }) {
      const socket = await open({ protocol: 'graphql-ws', greet: false })
      const { code } = await within('the close', socket.closed)
      expectThat('the code', code === 4406 || code === 1006, '4406, or 1006 for a refused handshake', code)
    },
  },
]
