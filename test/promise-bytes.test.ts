// Bytes, not only counts: what is not asked for is not read, what is read has room in the process, and what nobody waits for ends.
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { createAppendQueue } from '../src/append-queue.ts'
import { createByteBudget } from '../src/byte-budget.ts'
import { earlierMessages } from '../src/client/follow-earlier.ts'
import { readSnapshot } from '../src/client/follow-once.ts'
import { fetchTransport, realClock, type Snapshot } from '../src/client/index.ts'
import { connect } from '../src/db.ts'
import { OverloadedError } from '../src/errors.ts'
import { event } from '../src/events.ts'
import { boundedCache } from '../src/http/bounded-cache.ts'
import { lowerHistory, readHistory } from '../src/runner/history.ts'
import { sessionStream } from '../src/session-stream.ts'
import { testClock } from './support/clock.ts'
import { type Served, serveLog } from './support/served.ts'
import { statementsDuring } from './support/statements.ts'
import { created } from './support/story.ts'

const sessionId = 'ses_bytes00001'
/** Half of the budget, 8 MB, is what one answer may have. */
const bytesMax = 16_000_000
const longText = 'x'.repeat(3_000_000)
const url = `data:image/png;base64,${'QUJD'.repeat(100_000)}`

let served: Served
beforeAll(async () => {
  served = await serveLog({ env: { HOLDFAST_BYTES_MAX: String(bytesMax) } })
  await served.append(sessionId, created())
  for (let n = 0; n < 3; n++)
    await served.append(
      sessionId,
      event('prompt.admitted', {
        messageId: `msg_bytes0000${n}`,
        inputKind: 'PROMPT',
        text: n === 0 ? 'short' : longText,
        attachments: [{ name: 'a.png', mediaType: 'image/png', url }],
        delivery: 'QUEUE',
        requestExecution: false,
      }),
    )
})
afterAll(() => served?.close())

const inputs = (fields: string) =>
  served.ask(`{ session(id: "${sessionId}") { inputs(state: PENDING) { ${fields} } } }`)
const statements = (work: () => Promise<unknown>) =>
  statementsDuring(new URL(served.database.url).pathname.slice(1), work)
const large = /attachments|payload|instructions|summary|toolInput|SELECT \*|[rpti]\.\*|\.text|"text"/

describe('columns', () => {
  it('PROMISE-180: a list reads the large columns that are asked for and no others', async () => {
    const texts = await statements(async () => {
      const { data, errors } = await served.ask(
        `{ session(id: "${sessionId}") { id title inputs { id state } events(first: 10) { seq __typename }
           messages { edges { node { id seq } } } interactions(open: null) { id toolName } }
           sessions { edges { node { id execution { id } } } } node(id: "msg_bytes00001") { id } }`,
      )
      expect(errors).toBeUndefined()
      expect(data.session.inputs).toHaveLength(3)
      expect(data.session.events.map((each: { __typename: string }) => each.__typename)).toEqual([
        'SessionCreated',
        ...Array(3).fill('PromptAdmitted'),
      ])
    })
    expect(texts.filter((text) => large.test(text))).toEqual([])
  })

  it('PROMISE-180: and those that are asked for are whole', async () => {
    const { data } = await inputs('text')
    expect(data.session.inputs.map(({ text }: { text: string }) => text.length)).toEqual([5, 3_000_000, 3_000_000])
    const { data: attached } = await inputs('attachments { name url }')
    expect(attached.session.inputs[2].attachments).toEqual([{ name: 'a.png', url }])
    const { data: logged } = await served.ask(
      `{ session(id: "${sessionId}") { events(after: 1, first: 1) { ... on PromptAdmitted { text attachments { url } } } } }`,
    )
    expect(logged.session.events).toEqual([{ text: 'short', attachments: [{ url }] }])
  })
})

describe('answers', () => {
  it('PROMISE-181: one that would hold too much is refused with the rule, before it is read; so are the same bytes many times over', async () => {
    const each = '{ session(id: "ses_bytes00001") { inputs(state: PENDING) { text } } }'
    expect((await served.ask(each)).errors).toBeUndefined()
    for (const query of [
      '{ session(id: "ses_bytes00001") { inputs(state: PENDING) { text } events { ... on PromptAdmitted { text } } } }',
      '{ session(id: "ses_bytes00001") { inputs(state: PENDING) { text again: text } } }',
    ]) {
      const { errors } = await served.ask(query)
      expect(errors?.[0]).toMatchObject({ extensions: { code: 'DOCUMENT_TOO_LARGE' } })
      expect(errors?.[0]?.message).toMatch(/more than 7 MB; ask for smaller pages/)
    }
    await vi.waitFor(() => expect(served.core.bytes.held()).toBe(0))
  })

  it('PROMISE-182: what has no room waits, without a connection, and is answered when there is', async () => {
    const release = served.core.bytes.add(bytesMax, 'somebody else')
    const begun = statements(async () => {
      const answer = inputs('id')
      await vi.waitFor(() => expect(served.core.bytes.waiting()).toBe(1))
      release()
      expect((await answer).data.session.inputs).toHaveLength(3)
    })
    await begun
    await vi.waitFor(() => expect(served.core.bytes.held()).toBe(0))
  })

  it('PROMISE-183: a query whose client has gone stops waiting, and asks the database nothing', async () => {
    const release = served.core.bytes.add(bytesMax, 'somebody else')
    const asked = new AbortController()
    const texts = await statements(async () => {
      const answer = fetch(served.endpoint, {
        method: 'POST',
        signal: asked.signal,
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ query: `{ session(id: "${sessionId}") { id } }` }),
      }).catch(() => null)
      await vi.waitFor(() => expect(served.core.bytes.waiting()).toBe(1))
      asked.abort()
      await answer
      await vi.waitFor(() => expect(served.core.bytes.waiting()).toBe(0))
    })
    release()
    expect(texts.filter((text) => text.includes('"Session"'))).toEqual([])
  })
})

describe('the budget', () => {
  const setUp = () => {
    const clock = testClock()
    const refused = vi.fn()
    return { clock, refused, budget: createByteBudget(100, { clock, refused }) }
  }

  it('PROMISE-184: a holder has half of it at most, others go past who waits for its own half, and nobody waits behind what came later', async () => {
    const { budget } = setUp()
    const order: string[] = []
    const take = (bytes: number, holder: string, name: string) =>
      budget.take(bytes, { holder }).then((release) => {
        order.push(name)
        return release
      })
    const first = await take(50, 'greedy', 'greedy 1')
    const again = take(10, 'greedy', 'greedy 2')
    const other = await take(40, 'other', 'other 1')
    const wide = take(45, 'third', 'third, wide')
    const small = take(5, 'fourth', 'fourth, small')
    expect(order).toEqual(['greedy 1', 'other 1'])
    other()
    await Promise.all([wide, small])
    first()
    await again
    expect(order).toEqual(['greedy 1', 'other 1', 'third, wide', 'fourth, small', 'greedy 2'])
  })

  it('PROMISE-184: the wait is bounded and ends with a code that says when to come again', async () => {
    const { budget, clock, refused } = setUp()
    const hold = budget.add(100, 'somebody')
    const late = budget.take(1, { holder: 'me' })
    const gone = new AbortController()
    const left = budget.take(1, { holder: 'me', signal: gone.signal })
    const settled = Promise.allSettled([late, left])
    gone.abort(new Error('gone'))
    await clock.advance(5000)
    const [a, b] = await settled
    expect(a).toMatchObject({ reason: { name: 'OverloadedError', retryAfterMs: 1000 } })
    expect(b).toMatchObject({ reason: { message: 'gone' } })
    expect(refused).toHaveBeenCalledTimes(1)
    expect([budget.waiting(), budget.held()]).toEqual([0, 100])
    hold()
    // More than anybody may have goes alone.
    const alone = await budget.take(1_000_000, { holder: 'me' })
    alone()
    alone()
    expect(budget.held()).toBe(0)
  })

  it('PROMISE-184: one holder has a part of the places to wait, so that others can still wait for theirs', async () => {
    const { budget, clock } = setUp()
    const first = await budget.take(50, { holder: 'greedy' })
    const waits = Array.from({ length: 201 }, () => budget.take(10, { holder: 'greedy' }))
    await expect(waits.at(-1)).rejects.toThrow('too much to do')
    expect(budget.waiting()).toBe(200)
    const settled = Promise.allSettled(waits)
    const rest = budget.add(50, 'somebody')
    const other = budget.take(20, { holder: 'other' })
    rest()
    ;(await other)()
    await clock.advance(5000)
    await settled
    first()
    expect([budget.waiting(), budget.held()]).toEqual([0, 0])
  })

  it('PROMISE-1810: documents that are all different leave texts of 200 000 characters at most', () => {
    const cache = boundedCache<number>()
    const documents = Array.from({ length: 30 }, (_, n) => `{a${n} ${'a '.repeat(9_000)}}`)
    for (const [n, text] of documents.entries()) cache.set(text, n)
    expect(documents.filter((text) => cache.get(text) !== undefined)).toEqual(documents.slice(-11))
    for (let n = 0; n < 600; n++) cache.set(`{b${n}}`, n)
    expect(Array.from({ length: 600 }, (_, n) => cache.get(`{b${n}}`)).filter((n) => n !== undefined)).toHaveLength(500)
  })

  it('PROMISE-184: over it a query is answered with OVERLOADED', async () => {
    const take = vi.spyOn(served.core.bytes, 'take').mockRejectedValueOnce(new OverloadedError())
    const { errors } = await inputs('id')
    expect(errors).toMatchObject([{ extensions: { code: 'OVERLOADED', retryAfterMs: 1000 } }])
    take.mockRestore()
  })
})

describe('streams and replays', () => {
  it('PROMISE-185: a stream holds small events, or one large one that had room; a reader far behind gets all the same', async () => {
    const bytes = createByteBudget(bytesMax)
    const wanted = vi.spyOn(bytes, 'take')
    const stream = sessionStream({ ...served.core, bytes } as never, { sessionId, after: 0, holder: 'me' })
    const seqs: (number | null)[] = []
    let most = 0
    for await (const item of stream) {
      seqs.push(item.seq)
      most = Math.max(most, bytes.held())
      if (item.typename === 'LogSynced') break
    }
    expect(seqs).toEqual([1, 2, 3, 4, null])
    // Each came alone, and was given back when the next one was asked for.
    expect(wanted).toHaveBeenCalledTimes(3)
    expect(most).toBeGreaterThan(3_000_000)
    expect(most).toBeLessThan(4_000_000)
    expect(bytes.held()).toBe(0)
  })

  it('PROMISE-186: a replay asks for room for what is large, keeps hashes of it, and still sees one character that differs', async () => {
    const take = vi.spyOn(served.core.bytes, 'take')
    const verify = () => served.ask(`{ verifySession(id: "${sessionId}") { consistent events differences } }`)
    expect((await verify()).data.verifySession).toEqual({ consistent: true, events: 4, differences: [] })
    expect(take.mock.calls.filter(([bytes]) => bytes > 3_000_000).length).toBeGreaterThan(2)
    take.mockRestore()
    const change = (text: string) =>
      served.core.db.$executeRaw`UPDATE "Input" SET text = ${text} WHERE id = 'msg_bytes00002'`
    await change(`${longText.slice(1)}y`)
    const { data } = await verify()
    await change(longText)
    expect(data.verifySession.consistent).toBe(false)
    expect(data.verifySession.differences).toHaveLength(1)
    expect(data.verifySession.differences[0]).toMatch(/Input msg_bytes00002.text: .*3000000 characters/)
  })

  it('PROMISE-187: a history that is too large for one request keeps its newest messages, and says that others are left out', async () => {
    const id = 'ses_bytes00002'
    const say = (n: number) =>
      event('synthetic.appended', { messageId: `msg_.say${n}`, text: `${n}`.repeat(1000), hidden: false })
    await served.append(id, created(), say(1), say(2), say(3))
    const whole = await readHistory(served.core.db, id)
    expect([whole.messages.length, whole.leftOut]).toEqual([3, false])
    const cut = await readHistory(served.core.db, id, { bytesMax: 2500 })
    expect(cut.messages.map(({ text }) => text![0])).toEqual(['2', '3'])
    expect(JSON.stringify(lowerHistory(cut, [], 'demo/echo'))).toMatch(/left out here.*2222.*3333/)
    // One alone goes, whatever it has.
    const one = await readHistory(served.core.db, id, { bytesMax: 10 })
    expect(one.messages.map(({ text }) => text![0])).toEqual(['3'])
  })
})

it('PROMISE-188: appends that wait are bounded in bytes; what is written under a claim is let in', async () => {
  const id = 'ses_bytes00003'
  await served.append(id, created())
  const db = connect(served.database.url, 3)
  const queue = createAppendQueue({ db, origin: 'own_.bytes', committed() {}, queueBytesMax: 2000 })
  const say = (n: number, fence?: object) =>
    queue.append({
      sessionId: id,
      events: [event('synthetic.appended', { messageId: `msg_.wait${n}`, text: 'x'.repeat(1500), hidden: true })],
      ...(fence as object),
    })
  const outcomes = await db.$transaction(async (tx) => {
    await tx.$queryRaw`SELECT id FROM "Session" WHERE id = ${id} FOR UPDATE`
    const under = say(1)
    const waits = say(2)
    await expect(say(3)).rejects.toBeInstanceOf(OverloadedError)
    const fenced = say(4, { fence: { executionId: 'exe_.none', owner: null, phases: null } })
    return [under, waits, fenced]
  })
  expect((await Promise.all(outcomes)).map(({ kind }) => kind)).toEqual(['appended', 'appended', 'fenced'])
  await queue.idle()
  await db.$disconnect()
})

it('PROMISE-189: a client whose session has messages too large for one answer opens with fewer of them, and pages through the others', async () => {
  const id = 'ses_bytes00004'
  await served.append(id, created())
  for (let n = 0; n < 4; n++)
    await served.append(
      id,
      event('synthetic.appended', { messageId: `msg_.wide${n}`, text: `${n}`.repeat(3_000_000), hidden: false }),
    )
  const transport = fetchTransport({ url: served.endpoint })
  const { signal } = new AbortController()
  const snapshot = (await readSnapshot(transport, id, 50, signal, realClock)) as Snapshot
  const seen = snapshot.messages.edges.map(({ node }) => node.id)
  expect(seen).toEqual(['msg_.wide3'])
  const earlier = await earlierMessages(transport, id, 50, snapshot.messages.pageInfo.startCursor!, signal)
  expect(earlier.messages.map((message) => message.id)).toEqual(['msg_.wide2'])
  expect(earlier.before).not.toBeNull()
})
