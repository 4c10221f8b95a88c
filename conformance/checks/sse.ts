import type { Check } from '../check.ts'
import { expectEqual, expectThat } from '../outcome.ts'
import { type EventStream, openEventStream } from '../sse.ts'
import { subscription, upTo, watchEventStream } from '../watching.ts'
import type { Item, World } from '../world.ts'

/** Proxies close what has been silent for 30 s; two of these fit in with room to spare. */
export const silenceMsMax = 12_000

const items = (stream: EventStream) =>
  stream.frames.all
    .filter(({ event }) => event === 'next')
    .map(({ id, data }) => ({ id, item: JSON.parse(data).data?.sessionEvents as Item | undefined }))

async function open({ target }: World, id: string, after = 0, headers?: Record<string, string>): Promise<EventStream> {
  return openEventStream(target, { query: subscription, variables: { id, after } }, headers)
}

const synced = (stream: EventStream) =>
  stream.frames.until('LogSynced', () => items(stream).some(({ item }) => item?.__typename === 'LogSynced'))

async function threeEvents(world: World): Promise<string> {
  const id = await world.session()
  for (const title of ['two', 'three'])
    await world.ask(
      'mutation ($id: ID!, $title: String) { updateSession(input: { sessionId: $id, title: $title }) { __typename } }',
      { id, title },
    )
  return id
}

export const sseChecks: Check[] = [
  {
    id: 'C-SSE-01',
    title: 'an event stream says what it is and forbids buffering and transformation',
    async run(world) {
      const stream = await open(world, await world.session())
      expectEqual('status', stream.status, 200)
      const header = (name: string) => stream.headers.get(name) ?? ''
      expectThat(
        'content-type',
        header('content-type').startsWith('text/event-stream'),
        'text/event-stream',
        header('content-type'),
      )
      for (const word of ['no-cache', 'no-transform'])
        expectThat('cache-control', header('cache-control').includes(word), word, header('cache-control'))
      expectEqual('x-accel-buffering', header('x-accel-buffering'), 'no')
      stream.close()
    },
  },
  {
    id: 'C-SSE-02',
    title: 'each item with a seq has it as its id line, and no other item has one',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      const stream = await open(world, id)
      await synced(stream)
      await world.admit(id, 'Hello there')
      await stream.frames.until('the end of the execution', () =>
        items(stream).some(({ item }) => item?.__typename === 'ExecutionSettled'),
      )
      const all = items(stream)
      expectThat(
        'items',
        all.length > 8 && all.some(({ item }) => item?.seq === null),
        'an answer with live text',
        all.length,
      )
      const wrong = all.find((each) => each.id !== (each.item?.seq == null ? null : String(each.item.seq)))
      expectEqual('an item whose id line is not its seq', wrong ?? null, null)
      stream.close()
    },
  },
  {
    id: 'C-SSE-03',
    title: 'a Last-Event-ID header stands for after, whatever after says; one that is no seq is BAD_USER_INPUT',
    async run(world) {
      const id = await threeEvents(world)
      for (const last of upTo(0, 3)) {
        const stream = await open(world, id, 1, { 'last-event-id': String(last) })
        await synced(stream)
        expectEqual(
          `seqs with Last-Event-ID ${last}`,
          items(stream).map(({ item }) => item!.seq),
          [...upTo(last + 1, 3), null],
        )
        stream.close()
      }
      const refused = await watchEventStream(world.target, id, 0, { 'last-event-id': 'yesterday' })
      expectEqual('codes', await refused.end('a stream that is refused'), ['BAD_USER_INPUT'])
    },
  },
  {
    id: 'C-SSE-04',
    title: 'an idle stream is never silent for more than 12 s',
    slow: true,
    async run(world) {
      const stream = await open(world, await world.session())
      await synced(stream)
      const seen = stream.frames.all.length
      await stream.frames.until('something on an idle stream', (all) => all.length > seen, silenceMsMax)
      expectEqual(
        'what keeps it awake',
        stream.frames.all.slice(seen).every(({ comment }) => comment),
        true,
      )
      stream.close()
    },
  },
  {
    id: 'C-SSE-05',
    title: 'the end of an operation is an event complete, also of a query and after an error',
    async run({ target }) {
      for (const query of [
        '{ __typename }',
        'subscription { sessionEvents(sessionId: "ses_conformance-nowhere") { seq } }',
      ]) {
        const stream = await openEventStream(target, { query })
        await stream.frames.end(`the end of ${query}`)
        expectEqual(
          `events of ${query}`,
          stream.frames.all.filter(({ comment }) => !comment).map(({ event }) => event),
          ['next', 'complete'],
        )
      }
    },
  },
  {
    id: 'C-SSE-06',
    title: 'an open stream comes before its first event: headers are not held back',
    async run(world) {
      const id = await world.session()
      const stream = await open(world, id, 1)
      await stream.frames.until('the first byte', (all) => all.length > 0)
      await synced(stream)
      expectEqual(
        'items',
        items(stream).map(({ item }) => item!.__typename),
        ['LogSynced'],
      )
      stream.close()
    },
  },
]
