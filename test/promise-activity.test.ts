// What a change costs does not depend on how many streams are open: the bell, the poll and the item are read for all of a process together.
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { activityStream } from '../src/activity-stream.ts'
import { event } from '../src/events.ts'
import { type Served, serveLog } from './support/served.ts'
import { statementsDuring } from './support/statements.ts'
import { createSession, streamProcess } from './support/stream-process.ts'

const [a, b] = ['a'.repeat(24), 'b'.repeat(24)]
const streamsOfBeta = 200

let served: Served
beforeAll(async () => {
  // The poll stays out of the count.
  const env = { HOLDFAST_API_KEYS: `${a}:acme,${b}:beta`, HOLDFAST_POLL_MS: '100000', HOLDFAST_TENANT_OPERATIONS: '48' }
  served = await serveLog({ env })
  for (const tenant of ['acme', 'beta'])
    await served.append(
      `ses_${tenant}${tenant}`,
      event('session.created', { tenant, title: null, instructions: null, model: 'demo/echo' }),
    )
})
afterAll(() => served?.close())

const databaseOf = () => new URL(served.database.url).pathname.slice(1)
const soon = <T>(look: () => T) => vi.waitFor(look, { timeout: 30_000 })
const open = async () => (await served.core.metrics.streams.get()).values[0]?.value
const retitle = (tenant: string, title: string) =>
  served.append(
    `ses_${tenant}${tenant}`,
    event('session.updated', { title, instructions: null, model: 'demo/echo', archived: false }),
  )

/** Streams of one tenant on one socket, and what each was told. */
async function watching(token: string, count: number) {
  const client = new WebSocket(served.endpoint.replace('http', 'ws'), 'graphql-transport-ws')
  const told: { title: string; status: string }[] = []
  client.on('message', (data) => {
    const { type, payload } = JSON.parse(String(data))
    if (type === 'next') told.push(payload.data.sessionActivity)
  })
  await new Promise((resolve) => client.once('open', resolve))
  client.send(JSON.stringify({ type: 'connection_init', payload: { authToken: token } }))
  await new Promise((resolve) => client.once('message', resolve))
  const before = (await served.core.metrics.streams.get()).values[0]?.value ?? 0
  const query = 'subscription { sessionActivity { title status } }'
  for (let n = 0; n < count; n++) client.send(JSON.stringify({ id: `s${n}`, type: 'subscribe', payload: { query } }))
  await soon(async () => expect((await served.core.metrics.streams.get()).values[0]?.value).toBe(before + count))
  return { told, end: () => client.terminate() }
}

/** What reads sessions: reads of the bell, of the item, and of its status. */
const reads = (statements: string[]) => statements.filter((text) => /^\s*SELECT\b.*"Session"/is.test(text))

describe('PROMISE-21: many activity streams', () => {
  it('PROMISE-222: a change of a tenant costs nothing for the streams of another, and in a tenant with many of them a few reads, not one for each', async () => {
    const beta = await watching(b, streamsOfBeta)
    const acme = await watching(a, 1)
    const own = await statementsDuring(databaseOf(), async () => {
      await retitle('acme', 'fourth')
      await soon(() => expect(acme.told.at(-1)).toEqual({ title: 'fourth', status: 'IDLE' }))
    })
    // The bell, the item, its status.
    expect(reads(own)).toHaveLength(3)
    expect(beta.told).toEqual([])

    acme.end()
    await soon(async () => expect(await open()).toBe(streamsOfBeta))
    const bound: unknown[][] = []
    const many = await statementsDuring(
      databaseOf(),
      async () => {
        // Whose session it is is known by now, and nobody of acme listens.
        for (const title of ['fifth', 'sixth', 'seventh']) await retitle('acme', title)
        await retitle('beta', 'one for all')
        await soon(() => expect(beta.told).toHaveLength(streamsOfBeta))
      },
      bound,
    )
    expect(
      bound.filter((_, n) => reads([many[n]!]).length > 0).filter((values) => JSON.stringify(values).includes('acme')),
    ).toEqual([])
    expect(new Set(beta.told.map(({ title }) => title))).toEqual(new Set(['one for all']))
    // The status is read together by those that are answered at the same time: no more at once than a tenant may have operations.
    expect(reads(many).length).toBeLessThanOrEqual(2 + Math.ceil(streamsOfBeta / 48) + 3)
    expect(reads(many).filter((text) => !/CASE/.test(text))).toHaveLength(2)
    expect(acme.told).toHaveLength(1)
    beta.end()
  })

  it('PROMISE-223: tenants with many streams are told in turns of the event loop, not one after the other', async () => {
    const here = streamProcess(served.database.url, { deaf: true, pollMs: 100_000 })
    const beside = streamProcess(served.database.url, { deaf: true, pollMs: 100_000 })
    const order: string[] = []
    const tenants = ['one', 'two']
    const streams = tenants.flatMap((tenant) =>
      Array.from({ length: 300 }, () => activityStream(here, { tenant })).map((stream) => {
        void (async () => {
          for await (const _ of stream) order.push(tenant)
        })()
        return stream
      }),
    )
    here.doorbell.ring([await createSession(beside, 'one'), await createSession(beside, 'two')], true)
    await soon(() => expect(order).toHaveLength(600))
    // Whoever is first has had one turn when the other has its own.
    expect(order.findIndex((tenant) => tenant !== order[0])).toBeLessThanOrEqual(200)
    for (const stream of streams) await stream.return!()
    await here.close()
    await beside.close()
  })
})
