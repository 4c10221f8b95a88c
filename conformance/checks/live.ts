import type { Check } from '../check.ts'
import { expectEqual, expectThat } from '../outcome.ts'
import { joined, logged, named, seqs, upTo, type Watching } from '../watching.ts'
import { type Item, type Transport, transports, type World } from '../world.ts'

const slowly = '/slow 40 one two three four five six seven eight nine ten'
const settled = (watching: Watching) => watching.see('ExecutionSettled', named('ExecutionSettled'), 30_000)
const isDelta = (item: Item) => typeof item.offset === 'number'
const deltasOf = (items: readonly Item[], typename: string) => items.filter(named(typename))

/** Each part's deltas begin at 0 and each one where the one before ended. */
function expectContiguous(items: readonly Item[]): void {
  const ends = new Map<string, number>()
  for (const { messageId, index, offset, text } of items.filter(isDelta)) {
    const part = `${messageId}/${index}`
    expectEqual(`the offset of the next delta of part ${index}`, offset, ends.get(part) ?? 0)
    expectThat('a delta', text.length > 0, 'some text', text)
    ends.set(part, offset + text.length)
  }
}

/** Watches a whole slow answer from its admission on. */
async function watchAnswer(world: World, prompt: string, via: Transport = 'websocket'): Promise<Item[]> {
  const id = await world.session()
  const watching = await world.watch(id, 0, via)
  await watching.synced()
  await world.admit(id, prompt)
  await settled(watching)
  watching.close()
  return [...watching.items.all]
}

export const liveChecks: Check[] = [
  {
    id: 'C-STREAM-06',
    title: 'text comes as it grows; deltas by offset begin at 0, follow each other and join to TextEnded.text',
    needs: ['echo'],
    async run(world) {
      for (const via of transports) {
        const items = await watchAnswer(world, slowly, via)
        const ended = items.find(named('TextEnded'))!
        expectThat(
          `deltas over ${via}`,
          deltasOf(items, 'TextDelta').length >= 5,
          'at least 5 of a slow answer',
          items.length,
        )
        expectEqual('the first offset', deltasOf(items, 'TextDelta')[0]!.offset, 0)
        expectEqual(`deltas joined by offset over ${via}`, joined(items, ended.messageId, ended.index), ended.text)
        expectContiguous(items)
        expectEqual('seqs of all that has one', seqs(items), upTo(1, logged(items).length))
      }
      // Faster than any stream: the text that was never a delta of its own has to come before the end all the same.
      const items = await watchAnswer(world, '/slow 0 /length 2000')
      const ended = items.find(named('TextEnded'))!
      expectEqual('deltas of a fast answer', joined(items, ended.messageId, ended.index), ended.text)
      expectContiguous(items)
    },
  },
  {
    id: 'C-STREAM-07',
    title:
      'a stream that starts in the middle of an answer gets the text so far in one delta from offset 0 before LogSynced, then what follows without a hole',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      const first = await world.watch(id)
      await world.admit(id, slowly.replace('40', '150'))
      await first.items.until('five deltas', (all) => all.filter(isDelta).length >= 5)
      const seen = joined(first.items.all, first.items.all.find(isDelta)!.messageId, 0)
      const now = await world.seq(id)
      // Opened together, so that all of them meet the answer in its middle.
      const opening = transports.flatMap((via) =>
        [0, now].map(async (after) => ({ via, after, late: await world.watch(id, after, via) })),
      )
      for (const { via, after, late } of await Promise.all(opening)) {
        await late.synced()
        const before = late.items.all.slice(0, late.items.all.findIndex(named('LogSynced')))
        const deltas = before.filter(isDelta)
        expectEqual(`deltas before LogSynced over ${via} after ${after}`, deltas.length, 1)
        expectEqual('its offset', deltas[0]!.offset, 0)
        expectThat(
          'its text',
          deltas[0]!.text.startsWith(seen),
          `at least what was seen before: ${seen}`,
          deltas[0]!.text,
        )
        expectEqual('TextStarted before it', before.some(named('TextStarted')), after === 0)
        const ended = await late.see('TextEnded', named('TextEnded'), 30_000)
        expectThat('deltas behind LogSynced', late.items.all.filter(isDelta).length > 1, 'some', late.items.all.length)
        expectContiguous(late.items.all)
        expectEqual('joined', joined(late.items.all, ended.messageId, ended.index), ended.text)
      }
    },
  },
  {
    id: 'C-STREAM-08',
    title: 'behind TextEnded, ReasoningEnded or ToolCalled no delta of that part follows',
    needs: ['echo', 'wait'],
    async run(world) {
      for (const via of transports) {
        const items = await watchAnswer(
          world,
          '/reason Let me think about it\n/slow 30 well then /tool wait {"ms":50}',
          via,
        )
        const over = new Set<string>()
        for (const item of items) {
          const part = `${item.messageId}/${item.index}`
          if (isDelta(item)) expectThat('a delta of a part', !over.has(part), `none behind the end of ${part}`, item)
          if (/^(TextEnded|ReasoningEnded|ToolCalled)$/.test(item.__typename)) over.add(part)
        }
        expectThat('parts that ended', over.size >= 4, 'reasoning, two texts and a call', [...over])
        for (const ended of items.filter(({ __typename }) => /^(Text|Reasoning)Ended$/.test(__typename)))
          expectEqual('deltas joined', joined(items, ended.messageId, ended.index), ended.text)
      }
    },
  },
  {
    id: 'C-STREAM-09',
    title: 'live-only items have seq null and are in no replay; what has a seq is in Session.events and looks the same',
    needs: ['echo', 'wait'],
    async run(world) {
      const id = await world.session()
      const watching = await world.watch(id)
      await watching.synced()
      await world.admit(id, '/slow 20 watch this /tool wait {"ms":200}')
      await settled(watching)
      const live = /^(TextDelta|ReasoningDelta|ToolInputDelta|ToolProgress|LogSynced|StreamEnded)$/
      const items = watching.items.all
      for (const kind of ['TextDelta', 'LogSynced'])
        expectThat(
          'live items',
          items.some(named(kind)),
          kind,
          items.map((item) => item.__typename),
        )
      const wrong = items.find(({ __typename, seq }) => live.test(__typename) !== (seq === null))
      expectEqual('an item whose seq is not as its kind', wrong ?? null, null)
      const log = await world.log(id)
      expectEqual(
        'live-only items in Session.events',
        log.filter(({ __typename }) => live.test(__typename)),
        [],
      )
      expectEqual('Session.events', log, logged(items))
      const again = await world.watch(id)
      await again.synced()
      expectEqual('a replay', again.items.all.slice(0, -1), log)
    },
  },
  {
    id: 'C-STREAM-12',
    title: 'a client that comes back at any cursor gets exactly what it had not seen',
    needs: ['echo', 'wait'],
    async run(world) {
      const id = await world.session()
      const log = await world.run(id, '/reason Hm\nHello /tool wait {"ms":20}')
      for (const k of upTo(0, log.length)) {
        const via = transports[k % 2]!
        const watching = await world.watch(id, k, via)
        await watching.synced()
        expectEqual(`a stream after ${k} over ${via}`, watching.items.all.slice(0, -1), log.slice(k))
        watching.close()
      }
    },
  },
  {
    id: 'C-STREAM-13',
    title: 'a snapshot with its seq, and the stream after that seq, are the whole transcript',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      await world.run(id, 'first')
      await world.admit(id, slowly)
      await world.logged(id, 'TextStarted', 2)
      for (let n = 0; n < 6; n++) {
        const { session } = await world.ask(transcript, { id })
        const watching = await world.watch(id, session.seq, transports[n % 2])
        if (n === 5) await world.rest(id, 2)
        await watching.synced()
        await world.rest(id, 2)
        const last = await world.seq(id)
        if (session.seq < last) await watching.see('the last event', ({ seq }) => seq === last)
        const texts = textsOf(session)
        for (const item of watching.items.all) applyText(texts, item)
        const { session: whole } = await world.ask(transcript, { id })
        expectEqual(
          `texts of a snapshot at ${session.seq} and what followed`,
          [...texts].sort(),
          [...textsOf(whole)].sort(),
        )
        watching.close()
      }
    },
  },
  {
    id: 'C-STREAM-15',
    title: 'several streams of one session, on one socket and beside it, all see the same events',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      const all = await Promise.all([
        world.watch(id),
        world.watch(id),
        world.watch(id, 0, 'sse'),
        world.watch(id, 0, 'sse'),
      ])
      await world.admit(id, slowly)
      for (const watching of all) await settled(watching)
      const log = await world.log(id)
      for (const watching of all) expectEqual('events of one of four streams', logged(watching.items.all), log)
    },
  },
  {
    id: 'C-STREAM-16',
    title: 'closing a subscription does not stop the work',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      const watching = await world.watch(id, 0, 'sse')
      await world.admit(id, slowly)
      await watching.see('TextDelta', named('TextDelta'))
      watching.close()
      const log = await world.rest(id)
      expectEqual('the end', [log.at(-1)!.outcome, log.some(named('InterruptRequested'))], ['SUCCEEDED', false])
    },
  },
  {
    id: 'C-STREAM-17',
    title: 'progress of a tool is shown between its start and its end only',
    needs: ['echo', 'wait'],
    async run(world) {
      const items = await watchAnswer(world, 'Wait /tool wait {"ms":500}')
      const place = (typename: string) => items.findIndex(named(typename))
      const progress = items.flatMap((item, at) => (item.__typename === 'ToolProgress' ? [at] : []))
      expectThat('notes of progress', progress.length > 0, 'at least one', progress.length)
      const [first, last] = [progress[0]!, progress.at(-1)!]
      expectThat(
        'their place',
        place('ToolStarted') < first && last < place('ToolSucceeded'),
        'between ToolStarted and ToolSucceeded',
        items.map((item) => item.__typename),
      )
    },
  },
]

const transcript = `query ($id: ID!) { session(id: $id) { seq messages(first: 50) { edges { node {
  __typename id ... on UserMessage { text } ... on AssistantMessage { status parts { ... on TextPart { index text } } }
} } } } }`

type Texts = Map<string, string>

function textsOf(session: { messages: { edges: { node: Item }[] } }): Texts {
  const texts: Texts = new Map()
  for (const { node } of session.messages.edges) {
    if (node.__typename === 'UserMessage') texts.set(node.id, node.text)
    if (node.status) texts.set(`${node.id} status`, node.status)
    for (const part of node.parts ?? []) if (part.text !== undefined) texts.set(`${node.id}/${part.index}`, part.text)
  }
  return texts
}

function applyText(texts: Texts, item: Item): void {
  const part = `${item.messageId}/${item.index}`
  if (item.__typename === 'PromptPromoted') texts.set(item.messageId, item.text)
  if (item.__typename === 'StepStarted') texts.set(`${item.messageId} status`, 'RUNNING')
  if (item.__typename === 'StepEnded') texts.set(`${item.messageId} status`, 'ENDED')
  if (item.__typename === 'TextEnded') texts.set(part, item.text)
  if (item.__typename === 'TextDelta') texts.set(part, (texts.get(part) ?? '').slice(0, item.offset) + item.text)
}
