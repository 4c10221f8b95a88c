import { pause } from '../arrivals.ts'
import type { Check } from '../check.ts'
import { expectEqual, expectThat } from '../outcome.ts'
import { named, seqs, upTo, type Watching } from '../watching.ts'
import { type Item, transports, type World } from '../world.ts'

const retitle =
  'mutation ($id: ID!, $title: String) { updateSession(input: { sessionId: $id, title: $title }) { __typename } }'
const rename = (world: World, id: string, title: string) => world.ask(retitle, { id, title })

/** A session with this many events. */
async function withEvents({ ask, session }: World, count: number): Promise<string> {
  const id = await session({ title: 'event 1' })
  const perRequest = 50
  for (let from = 2; from <= count; from += perRequest) {
    const some = upTo(from, Math.min(count, from + perRequest - 1))
    await ask(
      `mutation { ${some.map((n) => `e${n}: updateSession(input: { sessionId: "${id}", title: "event ${n}" }) { __typename }`).join(' ')} }`,
    )
  }
  return id
}

/** What came until LogSynced has to be exactly this: the events from..to, then one LogSynced through `to`. */
async function expectReplay(watching: Watching, from: number, to: number): Promise<void> {
  const synced = await watching.synced()
  const items = watching.items.all
  const before = items.slice(0, items.indexOf(synced))
  expectEqual(
    `seqs of a replay after ${from - 1}`,
    before.map(({ seq }) => seq),
    upTo(from, to),
  )
  expectEqual('LogSynced', [synced.seq, synced.through], [null, to])
}

async function expectLive(world: World, watching: Watching, id: string, title: string): Promise<Item> {
  await rename(world, id, title)
  return watching.see(`the event of ${title}`, (item) => item.title === title)
}

const syncs = (watching: Watching) => watching.items.all.filter(named('LogSynced')).length

export const replayChecks: Check[] = [
  {
    id: 'C-STREAM-01',
    title: 'after 0: every event in order exactly once, one LogSynced at the watermark, then what happens live',
    async run(world) {
      for (const via of transports) {
        const id = await withEvents(world, 7)
        const watching = await world.watch(id, 0, via)
        await expectReplay(watching, 1, 7)
        for (const n of [8, 9]) await expectLive(world, watching, id, `event ${n}`)
        // Two in one request: what commits close together comes one by one.
        await world.ask(
          `mutation { a: updateSession(input: { sessionId: "${id}", title: "event 10" }) { __typename } b: updateSession(input: { sessionId: "${id}", title: "event 11" }) { __typename } }`,
        )
        await watching.see('event 11', named('SessionUpdated'))
        await watching.see('event 11', (item) => item.title === 'event 11')
        expectEqual(`all seqs over ${via}`, seqs(watching.items.all), upTo(1, 11))
        expectEqual(`LogSynced over ${via}`, syncs(watching), 1)
        watching.close()
      }
    },
  },
  {
    id: 'C-STREAM-02',
    title: 'after k, for every k: the events behind k exactly once, one LogSynced, then live',
    async run(world) {
      const id = await withEvents(world, 6)
      for (const via of transports)
        for (const k of upTo(0, 6)) {
          const watching = await world.watch(id, k, via)
          await expectReplay(watching, k + 1, 6)
          watching.close()
        }
      const late = await world.watch(id, 4)
      await late.synced()
      await expectLive(world, late, id, 'event 7')
      expectEqual('after 4, with a live one', [seqs(late.items.all), syncs(late)], [[5, 6, 7], 1])
    },
  },
  {
    id: 'C-STREAM-03',
    title: 'a log of many pages is replayed without a gap or a repeat, also while it grows',
    async run(world) {
      const id = await withEvents(world, 420)
      for (const via of transports) {
        const before = await world.seq(id)
        const opening = world.watch(id, 0, via)
        const growing = (async () => {
          for (let n = 0; n < 10; n++) await rename(world, id, `${via} ${n}`)
        })()
        const watching = await opening
        await growing
        await watching.see('the last event', (item) => item.seq === before + 10)
        const synced = await watching.synced()
        expectEqual(`seqs over ${via}`, seqs(watching.items.all), upTo(1, before + 10))
        expectEqual(`LogSynced over ${via}`, syncs(watching), 1)
        const place = watching.items.all.indexOf(synced)
        expectEqual('events before LogSynced', seqs(watching.items.all.slice(0, place)), upTo(1, synced.through))
        expectThat('through', synced.through >= before, `at least ${before}`, synced.through)
        watching.close()
      }
    },
  },
  {
    id: 'C-STREAM-04',
    title: 'with nothing behind the cursor LogSynced comes at once, with the watermark',
    async run(world) {
      const id = await withEvents(world, 3)
      for (const via of transports) await expectReplay(await world.watch(id, 3, via), 4, 3)
    },
  },
  {
    id: 'C-STREAM-05',
    title: 'no event is shown before its commit: whoever sees it finds it in Session.events',
    async run(world) {
      const id = await world.session({ title: 'event 1' })
      const watching = await world.watch(id)
      await watching.synced()
      let looked = 1
      for (const n of upTo(2, 12)) {
        // Not awaited: the event may be seen before the mutation has answered, and that is the moment that counts.
        const renaming = rename(world, id, `event ${n}`)
        const seen = await watching.see(`event ${n}`, (item) => item.seq === n)
        const { session } = await world.ask(
          'query ($id: ID!, $after: Int) { session(id: $id) { seq events(after: $after, first: 1) { __typename seq ... on SessionUpdated { title } } } }',
          { id, after: n - 1 },
        )
        expectEqual(`event ${n}, looked up when it was seen`, session.events[0], {
          __typename: 'SessionUpdated',
          seq: n,
          title: seen.title,
        })
        expectThat('Session.seq then', session.seq >= n, `at least ${n}`, session.seq)
        looked++
        await renaming
      }
      expectEqual('events looked up', looked, 12)
    },
  },
  {
    id: 'C-STREAM-11',
    title:
      'a negative cursor is BAD_USER_INPUT, one beyond the watermark CURSOR_AHEAD, each with the end of the operation',
    async run(world) {
      const id = await world.session()
      for (const via of transports)
        for (const [after, code] of [
          [-1, 'BAD_USER_INPUT'],
          [99, 'CURSOR_AHEAD'],
        ] as const) {
          const watching = await world.watch(id, after, via)
          const codes = await watching.end(`a stream after ${after} over ${via}`)
          expectEqual(`codes after ${after} over ${via}`, codes, [code])
          expectEqual('items', watching.items.all.length, 0)
        }
    },
  },
  {
    id: 'C-STREAM-10',
    title: 'an unknown session is one error NOT_FOUND and the end of the operation, never a silent stream',
    async run(world) {
      for (const via of transports) {
        const watching = await world.watch('ses_conformance-nowhere', 0, via)
        const codes = await watching.end(`a stream of an unknown session over ${via}`)
        expectEqual(`codes over ${via}`, codes, ['NOT_FOUND'])
        expectEqual('items', watching.items.all.length, 0)
        if (via === 'websocket')
          expectThat('completion', watching.completed(), 'error or complete', watching.items.closed)
      }
    },
  },
  {
    id: 'C-STREAM-14',
    title: 'a reader that pauses in front of a long backlog misses nothing and gets it in order',
    async run(world) {
      const id = await world.session()
      // More than sockets hold on their own, so that the server has to wait for its reader; small enough that it reads several at a time.
      const text = 'x'.repeat(25_000)
      const backlog = 240
      for (let n = 0; n < backlog; n++) await world.admit(id, `${n} ${text}`, { resume: false })
      for (const via of transports) {
        const last = (await world.seq(id)) + 5
        const watching = await world.watch(id, 1, via)
        watching.pause()
        // Long enough that a server which puts things away for an absent reader has done so.
        await pause(2000)
        for (let n = 0; n < 5; n++) await world.admit(id, `${via} ${n}`, { resume: false })
        watching.resume()
        await watching.items
          .until('the whole backlog', (all) => seqs(all).at(-1) === last)
          .catch((error) => {
            // Says first what a reader could not explain: a gap.
            expectEqual('seqs', seqs(watching.items.all), upTo(2, last))
            throw error
          })
        expectEqual(`seqs over ${via}`, seqs(watching.items.all), upTo(2, last))
        const texts = watching.items.all.filter(named('PromptAdmitted')).map((item) => item.text as string)
        const wrong = texts.slice(0, backlog).findIndex((got, n) => got !== `${n} ${text}`)
        expectEqual('the first text that is not as admitted', wrong, -1)
        watching.close()
      }
    },
  },
]
