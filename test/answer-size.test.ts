// What one document may cost: small texts that would make large answers, and the answers that clients really ask for.
import { type DocumentNode, Kind, parse } from 'graphql'
import { createClient } from 'graphql-ws'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import * as documents from '../src/client/generated/graphql.ts'
import { event } from '../src/events.ts'
import { answerItemsMax } from '../src/schema/batched.ts'
import { latestMax } from '../src/schema/latest.ts'
import { documentLimits, excessOf } from '../src/schema/limits.ts'
import { type Answer, type Served, serveLog } from './support/served.ts'
import { statementsDuring } from './support/statements.ts'
import { admitted, created, promoted } from './support/story.ts'

const session = 'ses_large0001'
const prompts = 1200
const idOf = (n: number) => `msg_large${String(n).padStart(6, '0')}`
/** Promoted up to here; the rest waits. */
const waiting = 10

let served: Served
beforeAll(async () => {
  served = await serveLog()
  await served.append(session, created())
  // The first one waits all the time: older than everything that is shown beside it.
  for (let from = 0; from < prompts; from += 100) {
    const ids = Array.from({ length: 100 }, (_, i) => idOf(from + i))
    await served.append(session, ...ids.map((id) => admitted(id, 'A prompt of some length, as people write them.')))
    const gone = ids.filter((id) => id !== idOf(0) && id < idOf(prompts - waiting))
    await served.append(session, ...gone.map((id) => promoted(id)))
  }
}, 120_000)
afterAll(() => served.close())

const one = (selection: string) => `{ session(id: "${session}") { ${selection} } }`
const times = (count: number, selection: (i: number) => string) =>
  Array.from({ length: count }, (_, i) => selection(i)).join(' ')
const nested = (depth: number) => one(`${'inputs { session { '.repeat(depth)} id ${'} }'.repeat(depth)}`)

async function refusedWithoutStatements(query: string): Promise<string> {
  let answer: Answer = {}
  const texts = await statementsDuring(new URL(served.database.url).pathname.slice(1), async () => {
    answer = await served.ask(query)
  })
  expect(texts).toEqual([])
  expect(answer.errors?.[0]?.extensions.code).toBe('DOCUMENT_TOO_LARGE')
  return answer.errors![0]!.message
}

describe('SEC-07: lists within lists', () => {
  it('SEC-07: round and round through `session` is refused before any statement, and the text names the rule', async () => {
    expect(await refusedWithoutStatements(nested(4))).toMatch(
      /^the document is too large: items 101010100, the limit is 250000; lists within lists multiply: ask for smaller pages/,
    )
    const chain = times(3, (i) => `fragment F${i} on Session { other: inputs { session { ...F${i + 1} } } }`)
    await refusedWithoutStatements(`${one('...F0')} ${chain} fragment F3 on Session { recoveries { id } }`)
    await refusedWithoutStatements(
      one(
        '... on Session { interactions(open: null) { session { quarantine { session { recoveries { session { inputs { id } } } } } } } }',
      ),
    )
  })

  it('SEC-07: pages count as what is asked for, one of a variable as the longest, and a null as nothing said', async () => {
    const pages = (first: string) =>
      `sessions${first} { edges { node { events${first} { __typename } messages${first} { edges { cursor } } } } }`
    expect(excessOf(parse(`{ ${pages('(first: 100)')} }`))).toBeUndefined()
    expect(excessOf(parse(`{ ${times(15, (i) => `a${i}: ${pages('(first: 100)')}`)} }`))).toContain('items 301500')
    expect(excessOf(parse(`query ($n: Int) { ${times(2, (i) => `a${i}: ${pages('(first: $n)')}`)} }`))).toContain(
      'items 480400',
    )
    expect(excessOf(parse(`{ ${times(33, (i) => `a${i}: ${pages('(first: null)')}`)} }`))).toBeUndefined()
    expect(excessOf(parse(`{ ${times(34, (i) => `a${i}: ${pages('(first: null)')}`)} }`))).toContain('items 256700')
    // One that is refused later makes nothing smaller.
    expect(excessOf(parse(`{ ${times(2, (i) => `a${i}: ${pages('(first: -5, last: 200)')}`)} }`))).toContain('items')
    expect(
      excessOf(
        parse('{ interactions(first: 200) { edges { node { session { inputs { id } interactions { id } } } } } }'),
      ),
    ).toBeUndefined()
    await refusedWithoutStatements(
      '{ interactions { edges { node { session { inputs { session { inputs { id } } } } } } } }',
    )
  })

  it('SEC-07: what lists really hold counts too: an answer that grows beyond its size ends with one error that names the rule', async () => {
    for (const query of [nested(2), one(times(199, (i) => `a${i}: inputs { id }`))]) {
      const { data, errors } = await served.ask(query)
      expect(data).toEqual({ session: null })
      expect(errors).toHaveLength(1)
      expect(errors![0]!.extensions.code).toBe('DOCUMENT_TOO_LARGE')
      expect(errors![0]!.message).toContain(`its lists have more than ${answerItemsMax} entries`)
    }
  }, 60_000)

  it('SEC-07: and over a WebSocket, where the connection goes on', async () => {
    const client = createClient({ url: served.endpoint.replace('http', 'ws'), webSocketImpl: WebSocket, lazy: false })
    const first = async (query: string) => (await client.iterate({ query }).next()).value as Answer
    expect(JSON.stringify(await first(nested(2)))).toContain('DOCUMENT_TOO_LARGE')
    await expect(first(nested(4))).rejects.toMatchObject([{ extensions: { code: 'DOCUMENT_TOO_LARGE' } }])
    expect(await first('{ __typename }')).toEqual({ data: { __typename: 'Query' } })
    await client.dispose()
  }, 60_000)

  it('SEC-07: the items of a subscription are answers of their own: none adds to the next', async () => {
    const own = await serveLog()
    const client = createClient({ url: own.endpoint.replace('http', 'ws'), webSocketImpl: WebSocket })
    try {
      await own.append(
        session,
        created(),
        ...times(200, idOf)
          .split(' ')
          .map((id) => admitted(id)),
      )
      const query = `subscription { sessionActivity { ${times(190, (i) => `a${i}: inputs { id }`)} seq } }`
      const items = client.iterate<{ sessionActivity: { seq: number; a0: unknown[] } }>({ query })
      // 38 000 each: a second one would be too much.
      let next = items.next()
      for (let round = 1; round <= 4; round++) {
        let arrived = false
        void next.then(() => {
          arrived = true
        })
        for (let n = 0; !arrived; n++) {
          await own.append(
            session,
            event('session.updated', {
              title: `${round}-${n}`,
              instructions: null,
              model: 'demo/echo',
              archived: false,
            }),
          )
          await new Promise((resolve) => setTimeout(resolve, 200))
        }
        const { value } = await next
        expect(value.errors).toBeUndefined()
        expect(value.data.sessionActivity.a0).toHaveLength(200)
        next = items.next()
      }
      await items.return!()
    } finally {
      await client.dispose()
      await own.close()
    }
  }, 60_000)
})

describe('SEC-07: verifySession', () => {
  it('SEC-07: one document replays one log, whatever it is called and wherever it stands', async () => {
    const verify = `verifySession(id: "${session}") { consistent }`
    const both = 'verifySession 2, the limit is 1; ask one after the other'
    expect(await refusedWithoutStatements(`{ a: ${verify} b: ${verify} }`)).toContain(both)
    expect(await refusedWithoutStatements(`{ ${verify} ...V } fragment V on Query { again: ${verify} }`)).toContain(
      both,
    )
    expect(
      await refusedWithoutStatements(`{ ...V ... on Query { ...V } } fragment V on Query { ${verify} }`),
    ).toContain(both)
    expect((await served.ask(`{ ${verify} }`)).data).toEqual({ verifySession: { consistent: true } })
    expect(excessOf(parse(`query A { ${verify} } query B { ${verify} }`))).toBeUndefined()
  })
})

describe('what is served', () => {
  it('SEC-07: every operation of the client is, with room to spare', () => {
    const all = Object.values(documents as unknown as Record<string, DocumentNode>).filter(
      (one) => one?.kind === Kind.DOCUMENT,
    )
    expect(all.length).toBeGreaterThan(20)
    for (const document of all) expect(excessOf(document)).toBeUndefined()
    expect(documentLimits.items).toBe(250_000)
  })

  it('a list without pages shows the latest, in order; what waits is all there', async () => {
    const { data } = await served.ask(
      one('inputs { id } pending: inputs(state: PENDING) { id } promoted: inputs(state: PROMOTED) { id }'),
    )
    const ids = (rows: { id: string }[]) => rows.map(({ id }) => id)
    const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => idOf(from + i))
    expect(ids(data.session.inputs)).toEqual(range(prompts - latestMax, prompts))
    expect(ids(data.session.pending)).toEqual([idOf(0), ...range(prompts - waiting, prompts)])
    expect(ids(data.session.promoted)).toEqual(range(prompts - waiting - latestMax, prompts - waiting))
  })

  it('a session that is asked for under two names has its pages under both', async () => {
    const page = 'messages(first: 3) { edges { node { id } } pageInfo { hasNextPage } } events(first: 3) { seq }'
    const { data } = await served.ask(
      `{ a: session(id: "${session}") { ${page} } b: session(id: "${session}") { ${page} } }`,
    )
    expect(data.a.messages.edges.map(({ node }: { node: { id: string } }) => node.id)).toEqual([
      idOf(1),
      idOf(2),
      idOf(3),
    ])
    expect(data.a.events).toEqual([{ seq: 1 }, { seq: 2 }, { seq: 3 }])
    expect(data.b).toEqual(data.a)
  })

  it('SEC-07: the largest answers that pass leave the process standing', async () => {
    const many = Math.floor(answerItemsMax / latestMax)
    const fields = 'id kind text attachments { name } delivery state wakePending admittedSeq promotedSeq createdAt'
    for (const [what, query] of [
      ['all of an input', one(times(many, (i) => `a${i}: inputs { ${fields} }`))],
      ['and its session', one(times(many, (i) => `a${i}: inputs { id session { id title status } }`))],
    ] as const) {
      const before = process.memoryUsage().rss
      let peak = before
      const watch = setInterval(() => {
        peak = Math.max(peak, process.memoryUsage().rss)
      }, 20)
      const begun = performance.now()
      const used = process.cpuUsage()
      const response = await fetch(served.endpoint, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ query }),
      })
      const text = await response.text()
      peak = Math.max(peak, process.memoryUsage().rss)
      clearInterval(watch)
      console.log(
        `${what}: ${text.length} characters, ${Math.round(performance.now() - begun)} ms, ${Math.round((peak - before) / 2 ** 20)} MB more, ${Math.round(process.cpuUsage(used).user / 1000)} ms of work`,
      )
      expect(text).not.toContain('"errors"')
    }
  }, 120_000)
})
