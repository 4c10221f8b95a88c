// Who is let in: API keys over HTTP, server-sent events and WebSocket.
import { getIntrospectionQuery } from 'graphql'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { event } from '../src/events.ts'
import { type Answer, type Served, serveLog } from './support/served.ts'
import { statementsDuring } from './support/statements.ts'
import { askAs, closeSockets, keyOfA, keyOfB, post, rawSocket, socketOf, twoTenants } from './support/tokens.ts'

let served: Served
beforeAll(async () => {
  served = await serveLog({ auth: twoTenants, logLevel: 'trace' })
  const made = { title: 'Of A alone', instructions: null, model: 'demo/echo' }
  await served.append('ses_authtest1', event('session.created', { tenant: 'a', ...made }))
})
afterAll(() => served.close())
afterEach(closeSockets)

const databaseOf = () => new URL(served.database.url).pathname.slice(1)
const read = '{ session(id: "ses_authtest1") { id title } sessions { edges { node { title } } } }'
const watch = 'subscription { sessionEvents(sessionId: "ses_authtest1") { __typename seq } }'
const wrongKey = 'key-of-nobody-at-all-0123456789'

/** Asserts that the work caused no statement and no model was asked for: no resolver has run. */
async function withoutResolvers(work: () => Promise<void>): Promise<void> {
  const list = vi.spyOn(served.core.models, 'list')
  const texts = await statementsDuring(databaseOf(), work)
  expect(texts).toEqual([])
  expect(list).not.toHaveBeenCalled()
  list.mockRestore()
}

async function refusedWith(response: Response): Promise<string> {
  expect(response.status).toBe(401)
  expect(response.headers.get('www-authenticate')).toBe('Bearer realm="holdfast"')
  const text = await response.text()
  const { errors, ...rest } = JSON.parse(text) as Answer
  expect(rest).toEqual({})
  expect(errors).toHaveLength(1)
  expect(errors![0]!.extensions.code).toBe('UNAUTHENTICATED')
  expect(text).not.toContain('Of A')
  return errors![0]!.message
}

const badHeaders: [string, string | undefined][] = [
  ['none', undefined],
  ['a wrong key', `Bearer ${wrongKey}`],
  ['a key that begins like a right one', `Bearer ${keyOfA.slice(0, -1)}`],
  ['a key that goes on behind a right one', `Bearer ${keyOfA}0`],
  ['a right key that is not behind Bearer', keyOfA],
  ['a right key behind Basic', `Basic ${keyOfA}`],
  ['nothing behind Bearer', 'Bearer '],
  ['two keys', `Bearer ${keyOfA} ${keyOfB}`],
]

describe('SEC-02: a token that is missing or wrong', () => {
  it.each(badHeaders)(
    'SEC-02: over HTTP and SSE, %s: 401 with UNAUTHENTICATED, and no resolver runs',
    async (_, authorization) => {
      const shown = authorization === undefined ? {} : { authorization }
      await withoutResolvers(async () => {
        const queries = [
          '{ models { id } }',
          read,
          'mutation { resumeSession(input: { sessionId: "ses_authtest1" }) { __typename } }',
        ]
        for (const query of [...queries, getIntrospectionQuery(), '{ __typename }', '{ broken'])
          await refusedWith(await post(served.endpoint, query, shown))
        await refusedWith(await post(served.endpoint, watch, { ...shown, accept: 'text/event-stream' }))
        const get = `${served.endpoint}?query=${encodeURIComponent('{ models { id } }')}`
        await refusedWith(await fetch(get, authorization === undefined ? {} : { headers: { authorization } }))
      })
    },
  )

  const badParams: [string, Record<string, unknown> | undefined][] = [
    ['no payload', undefined],
    ['an empty one', {}],
    ['a wrong key', { authorization: `Bearer ${wrongKey}` }],
    ['a right key without Bearer under authorization', { authorization: keyOfA }],
    ['a wrong key under authToken', { authToken: wrongKey }],
    ['something that is no text', { authorization: { token: keyOfA } }],
    ['a list', { authToken: [keyOfA] }],
  ]
  it.each(badParams)(
    'SEC-02: over WebSocket, %s: closed with 4403 and the reason, and no resolver runs',
    async (_, params) => {
      await withoutResolvers(async () => {
        const raw = await rawSocket(served, params)
        raw.send({ type: 'subscribe', id: '1', payload: { query: '{ models { id } }' } })
        const { code, reason } = await raw.closed
        // 4401: what the protocol has for an operation that comes before the connection is acknowledged.
        expect([4403, 4401]).toContain(code)
        if (code === 4403) expect(reason).toMatch(/^UNAUTHENTICATED: /)
        expect(raw.received).toEqual([])
      })
      await expect(socketOf(served, params).iterate({ query: read }).next()).rejects.toMatchObject({
        code: 4403,
        reason: expect.stringMatching(/^UNAUTHENTICATED: /),
      })
    },
  )

  it('SEC-02: says whether there is no token or a wrong one, and repeats neither', async () => {
    const none = await refusedWith(await post(served.endpoint, read))
    const wrong = await refusedWith(await post(served.endpoint, read, { token: wrongKey }))
    expect(none).toContain('a token is needed')
    expect(wrong).toBe('the token is not valid')
  })

  it('SEC-02: a token in the address counts for nothing', async () => {
    await withoutResolvers(async () => {
      for (const name of ['token', 'access_token', 'authorization', 'authToken', 'api_key'])
        await refusedWith(await post(`${served.endpoint}?${name}=${encodeURIComponent(`Bearer ${keyOfA}`)}`, read))
      const url = new URL(served.endpoint.replace('http', 'ws'))
      url.searchParams.set('authorization', `Bearer ${keyOfA}`)
      const raw = await rawSocket({ endpoint: url.href })
      expect((await raw.closed).code).toBe(4403)
    })
  })

  it('SEC-02: the error is a GraphQL response for clients that ask for one', async () => {
    const graphql = 'application/graphql-response+json'
    const response = await post(served.endpoint, read, { accept: `${graphql}, application/json` })
    expect(response.headers.get('content-type')).toContain(graphql)
    await refusedWith(response)
    expect((await post(served.endpoint, read)).headers.get('content-type')).toContain('application/json')
  })

  it('SEC-02, SEC-08: is refused before the body is looked at, a batch as a whole', async () => {
    await refusedWith(
      await fetch(served.endpoint, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: 'no JSON',
      }),
    )
    const batch = JSON.stringify(Array(100).fill({ query: read }))
    await refusedWith(
      await fetch(served.endpoint, { method: 'POST', headers: { 'content-type': 'application/json' }, body: batch }),
    )
  })

  it('SEC-06: a page of another origin is refused also with a right key', async () => {
    const headers = {
      'content-type': 'application/json',
      origin: 'https://evil.example',
      authorization: `Bearer ${keyOfA}`,
    }
    expect((await fetch(served.endpoint, { method: 'POST', headers, body: '{"query":"{ __typename }"}' })).status).toBe(
      403,
    )
  })

  it('SEC-02: a socket that never says who it is gets nothing but the end', async () => {
    const socket = new WebSocket(served.endpoint.replace('http', 'ws'), 'graphql-transport-ws')
    const code = await new Promise((resolve) => socket.once('close', resolve))
    expect(code).toBe(4408)
  })
})

describe('SEC-02: a right key', () => {
  it('SEC-02: is let in over HTTP, SSE and WebSocket, with either name of the payload', async () => {
    const title = { session: { title: 'Of A alone' } }
    expect((await askAs(served, keyOfA, read)).data).toMatchObject(title)
    expect(
      ((await (await post(served.endpoint, read, { authorization: `bearer  ${keyOfA}` })).json()) as Answer).data,
    ).toMatchObject(title)
    const get = `${served.endpoint}?query=${encodeURIComponent(read)}`
    const got = await fetch(get, { headers: { authorization: `Bearer ${keyOfA}` } })
    expect(((await got.json()) as Answer).data).toMatchObject(title)
    const sse = await post(served.endpoint, watch, { token: keyOfA, accept: 'text/event-stream' })
    const reader = sse.body!.getReader()
    let text = ''
    while (!text.includes('LogSynced')) text += new TextDecoder().decode((await reader.read()).value)
    expect(text).toContain('SessionCreated')
    await reader.cancel()
    for (const params of [
      { authorization: `Bearer ${keyOfA}` },
      { Authorization: `Bearer ${keyOfA}` },
      { authToken: keyOfA },
      { authToken: `Bearer ${keyOfA}` },
    ]) {
      const client = socketOf(served, params)
      expect((await client.iterate({ query: read }).next()).value).toMatchObject({ data: title })
      expect((await client.iterate({ query: watch }).next()).value).toMatchObject({
        data: { sessionEvents: { __typename: 'SessionCreated' } },
      })
    }
  })

  it('introspection works with a token', async () => {
    expect((await askAs(served, keyOfA, getIntrospectionQuery())).errors).toBeUndefined()
  })
})

describe('the other paths', () => {
  it('the pages and the health checks need no token, the metrics need one', async () => {
    const status = async (path: string, headers: Record<string, string> = {}) =>
      (await fetch(served.server.url + path, { headers })).status
    for (const path of ['', 'graphiql', 'healthz', 'readyz']) expect(await status(path), path).toBe(200)
    expect(await status('metrics')).toBe(401)
    expect(await status('metrics', { authorization: `Bearer ${wrongKey}` })).toBe(401)
    expect(await status(`metrics?token=${keyOfA}`)).toBe(401)
    expect(await status('metrics', { authorization: `Bearer ${keyOfA}` })).toBe(200)
  })

  it('OPS-07: refusals are counted, over HTTP and WebSocket', async () => {
    const count = async () =>
      Number(/^holdfast_unauthenticated_total (\d+)$/m.exec(await served.core.metrics.text())![1])
    const before = await count()
    await post(served.endpoint, read)
    await (await rawSocket(served)).closed
    expect(await count()).toBe(before + 2)
  })
})

it('SEC-10: no key, right or wrong, is in the log at its finest level, in the metrics or in the database', async () => {
  await post(served.endpoint, read, { token: wrongKey })
  await askAs(served, keyOfA, read)
  await (await rawSocket(served, { authorization: `Bearer ${wrongKey}` })).closed
  await (await rawSocket(served, { authToken: wrongKey })).closed
  const requests = served.logged().filter(({ msg }) => msg === 'refused: not authenticated')
  expect(requests.length).toBeGreaterThan(3)
  const log = JSON.stringify(served.logged())
  const metrics = await served.core.metrics.text()
  const events = JSON.stringify(await served.core.db.event.findMany())
  for (const key of [keyOfA, keyOfB, wrongKey]) {
    expect(log).not.toContain(key)
    expect(metrics).not.toContain(key)
    expect(events).not.toContain(key)
  }
})

it('without authentication everybody who reaches the server is the tenant default, with or without a token', async () => {
  const open = await serveLog()
  try {
    const made = { title: null, instructions: null, model: 'demo/echo' }
    await open.append('ses_authopen1', event('session.created', { tenant: 'default', ...made }))
    const query = '{ session(id: "ses_authopen1") { id } }'
    for (const answer of [await open.ask(query), await askAs(open, wrongKey, query)])
      expect(answer.data.session).toEqual({ id: 'ses_authopen1' })
    expect((await fetch(`${open.server.url}metrics`)).status).toBe(200)
    const client = socketOf(open)
    expect((await client.iterate({ query }).next()).value).toMatchObject({ data: { session: { id: 'ses_authopen1' } } })
  } finally {
    await open.close()
  }
})
