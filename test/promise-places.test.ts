// What is carried out at the same time is given to tenants in turn, and what one tenant or socket has under way is bounded.
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { createRate } from '../src/http/rates.ts'
import { createPlaces } from '../src/places.ts'
import { admissions } from '../src/schema/admissions.ts'
import { schema } from '../src/schema/index.ts'
import { type Served, serveLog } from './support/served.ts'

const [a, b] = ['a'.repeat(24), 'b'.repeat(24)]
const env = {
  HOLDFAST_API_KEYS: `${a}:acme,${b}:beta`,
  HOLDFAST_MAX_OPERATIONS: '2',
  HOLDFAST_TENANT_OPERATIONS: '1',
  HOLDFAST_TENANT_WAITING: '5',
  HOLDFAST_TENANT_STREAMS: '2',
  HOLDFAST_SOCKET_OPERATIONS: '20',
  HOLDFAST_TENANT_MUTATIONS_PER_SECOND: '1',
}
const never = new AbortController().signal

let served: Served
beforeAll(async () => {
  served = await serveLog({ env })
})
afterAll(() => served?.close())

interface Message {
  id: string
  type: string
  payload?: unknown
}
async function socket(token: string) {
  const client = new WebSocket(served.endpoint.replace('http', 'ws'), 'graphql-transport-ws')
  const got: Message[] = []
  client.on('message', (data) => got.push(JSON.parse(String(data)) as Message))
  await new Promise((resolve) => client.once('open', resolve))
  client.send(JSON.stringify({ type: 'connection_init', payload: { authToken: token } }))
  await vi.waitFor(() => expect(got).toHaveLength(1), { timeout: 30_000 })
  const ask = (id: string, query: string) => client.send(JSON.stringify({ id, type: 'subscribe', payload: { query } }))
  return { client, got, ask }
}
const limited = (messages: Message[]) =>
  messages.filter(({ payload }) => JSON.stringify(payload ?? '').includes('RATE_LIMITED'))
const gauge = async (name: 'operations' | 'operationsWaiting') =>
  (await served.core.metrics[name].get()).values[0]?.value
const post = (token: string, body: unknown) =>
  fetch(served.endpoint, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  })

describe('PROMISE-21: many operations', () => {
  it('PROMISE-212: tenants get the next place in turn, whoever asked for more of them before', async () => {
    const places = createPlaces({ most: 2, mostOfTenant: 2, waitingOfTenant: 3 })
    const order: string[] = []
    const enter = async (tenant: string) => {
      const leave = await places.enter(tenant, never)
      order.push(leave === null ? `${tenant} refused` : tenant)
      return leave
    }
    const leaves = await Promise.all([enter('acme'), enter('acme')])
    const waiting = ['acme', 'acme', 'acme', 'acme', 'beta', 'gamma'].map(enter)
    await waiting[3]
    leaves[0]!()
    leaves[1]!()
    ;(await waiting[4])!()
    await waiting[0]
    await waiting[5]
    // Acme has one turn, then each of the others has one before it has the next.
    expect(order).toEqual(['acme', 'acme', 'acme refused', 'acme', 'beta', 'gamma'])
    expect(places.running()).toBe(2)
    // Who goes away while it waits takes no place.
    const gone = new AbortController()
    const left = places.enter('delta', gone.signal)
    gone.abort()
    expect(await left).toBeNull()
    expect(places.waiting()).toBe(2)
  })

  it('PROMISE-213: a rate lets a burst through, then tells when there is one again', () => {
    let now = 0
    const rate = createRate(10, () => now)
    expect(Array.from({ length: 21 }, () => rate('acme')).filter((ms) => ms === 0)).toHaveLength(20)
    const waitMs = rate('acme')
    expect(waitMs).toBe(100)
    expect(rate('beta')).toBe(0)
    now += waitMs
    expect(rate('acme')).toBe(0)
    expect(rate('acme')).toBe(100)
    // More at once than it holds: when it is full, and then for as long as it takes.
    const slow = createRate(1, () => now, 10)
    expect([slow('acme', 25), slow('acme')]).toEqual([0, 16_000])
    now += 16_000
    expect([slow('acme'), slow('acme', 3)]).toEqual([0, 3000])
    const off = createRate(0, () => now)
    expect(Array.from({ length: 1000 }, () => off('acme')).every((ms) => ms === 0)).toBe(true)
  })

  it('PROMISE-214: many operations on one socket: each gets its answer or RATE_LIMITED with a time, another tenant is served, nothing is left', async () => {
    const { client, got, ask } = await socket(a)
    for (let n = 0; n < 60; n++) ask(`q${n}`, '{ sessions(first: 1) { edges { node { id } } } }')
    const other = await post(b, { query: '{ sessions(first: 1) { edges { node { id } } } }' })
    expect(await other.json()).toEqual({ data: { sessions: { edges: [] } } })
    await vi.waitFor(() => expect(got.filter(({ type }) => type !== 'next')).toHaveLength(61), { timeout: 30_000 })
    const refused = limited(got)
    expect(refused.length).toBeGreaterThan(0)
    expect(refused.length).toBeLessThan(60)
    expect(JSON.stringify(refused[0])).toMatch(/"retryAfterMs":1000/)
    expect(await served.core.metrics.text()).toMatch(/holdfast_rate_limited_total\{why="(waiting|socket)"\} [1-9]/)
    client.terminate()
    expect([await gauge('operations'), await gauge('operationsWaiting')]).toEqual([0, 0])
  })

  it('PROMISE-215: streams of a tenant are bounded over all of its sockets, and one that ended makes room', async () => {
    const sockets = [await socket(a), await socket(a), await socket(a)]
    const [one, two, three] = sockets as [(typeof sockets)[0], (typeof sockets)[0], (typeof sockets)[0]]
    one!.ask('s', 'subscription { sessionActivity { id } }')
    two!.ask('s', 'subscription { sessionActivity { id } }')
    const streams = async () => (await served.core.metrics.streams.get()).values[0]?.value
    await vi.waitFor(async () => expect(await streams()).toBe(2), { timeout: 30_000 })
    three!.ask('s', 'subscription { sessionActivity { id } }')
    await vi.waitFor(() => expect(limited(three!.got)).toHaveLength(1), { timeout: 30_000 })
    one!.client.terminate()
    await vi.waitFor(async () => expect(await streams()).toBe(1), { timeout: 30_000 })
    three!.ask('again', 'subscription { sessionActivity { id } }')
    await vi.waitFor(async () => expect(await streams()).toBe(2), { timeout: 30_000 })
    expect(limited(three!.got)).toHaveLength(1)
    for (const { client } of sockets) client.terminate()
    await vi.waitFor(async () => expect(await streams()).toBe(0), { timeout: 30_000 })
    expect(await gauge('operations')).toBe(0)
  })

  it('PROMISE-216: a rate holds for each operation of a batch; a request that is refused whole has status 429 and Retry-After', async () => {
    const one = { query: 'mutation { updateSession(input: { sessionId: "x" }) { __typename } }' }
    const answers = (await (
      await post(
        b,
        Array.from({ length: 10 }, () => one),
      )
    ).json()) as { errors?: unknown[] }[]
    expect(answers.filter(({ errors }) => errors === undefined).length).toBeGreaterThanOrEqual(2)
    expect(JSON.stringify(answers.at(-1))).toMatch(/RATE_LIMITED/)
    // Another tenant has a bucket of its own.
    expect((await post(a, one)).status).toBe(200)
    const refused = await vi.waitFor(
      async () => {
        const response = await post(b, one)
        expect(response.status).toBe(429)
        return response
      },
      { timeout: 30_000 },
    )
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
    expect(await refused.json()).toMatchObject({ errors: [{ extensions: { code: 'RATE_LIMITED' } }] })
  })
})

describe('PROMISE-21: many admissions', () => {
  it('PROMISE-224: admissions have a bucket of their own, counted by field; queries and other mutations go on, and another tenant admits', async () => {
    const env = { HOLDFAST_API_KEYS: `${a}:acme,${b}:beta`, HOLDFAST_TENANT_ADMISSIONS_PER_SECOND: '1' }
    const one = await serveLog({ env })
    const ask = (token: string, query: string) =>
      fetch(one.endpoint, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
        body: JSON.stringify({ query }),
      })
    const create = (n: number) => `c${n}: createSession(input: { sessionId: "ses_admit${1000 + n}" }) { __typename }`
    const many = (count: number) => Array.from({ length: count }, (_, n) => create(n)).join(' ')
    expect((await ask(a, `mutation { ${many(15)} ...more } fragment more on Mutation { ${many(30)} }`)).status).toBe(
      200,
    )
    const refused = await ask(a, `mutation { ${create(7)} }`)
    expect(refused.status).toBe(429)
    const { errors } = (await refused.json()) as { errors: { extensions: { code: string; retryAfterMs: number } }[] }
    expect(errors[0]!.extensions.code).toBe('RATE_LIMITED')
    expect(errors[0]!.extensions.retryAfterMs).toBeGreaterThan(0)
    // Thirty where ten were there: one is there again when the debt is paid.
    expect(errors[0]!.extensions.retryAfterMs).toBeLessThanOrEqual(36_000)
    expect(await one.core.metrics.text()).toMatch(/holdfast_rate_limited_total\{why="admissions"\} 1/)
    expect((await ask(a, '{ sessions(first: 1) { edges { node { id } } } }')).status).toBe(200)
    expect(
      (await ask(a, 'mutation { updateSession(input: { sessionId: "ses_nowhere0", title: "x" }) { __typename } }'))
        .status,
    ).toBe(200)
    expect((await ask(b, `mutation { ${create(8)} }`)).status).toBe(200)
    await one.close()
  })

  it('PROMISE-225: of every mutation it is decided whether it admits', () => {
    const names = Object.keys(schema.getMutationType()!.getFields())
    const rest = names.filter((name) => !admissions.has(name))
    expect([...admissions].filter((name) => !names.includes(name))).toEqual([])
    // People's answers, and what takes away: each needs something that was admitted before.
    expect(rest).toEqual([
      'answerQuestion',
      'archiveSession',
      'changeDelivery',
      'decideApproval',
      'dismissQuestion',
      'interruptSession',
      'resolveQuarantine',
      'updateSession',
      'withdrawPrompt',
    ])
  })
})
