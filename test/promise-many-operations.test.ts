// Thousands of operations at once on one socket: they wait for each other or are refused, and everybody else is served meanwhile.
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { event } from '../src/events.ts'
import { type Served, serveLog } from './support/served.ts'

const [a, b] = ['a'.repeat(24), 'b'.repeat(24)]
/** As many as a test has time for; ten thousand are no different. */
const count = 4000

let served: Served
beforeAll(async () => {
  served = await serveLog({ pool: 10, env: { HOLDFAST_API_KEYS: `${a}:acme,${b}:beta` } })
  const created = { tenant: 'acme', title: null, instructions: null, model: 'demo/echo' }
  await served.append('ses_opsops0001', event('session.created', created))
})
afterAll(() => served?.close())

const query = '{ sessions(first: 1) { edges { node { id } } } }'
const asked = async () => {
  const since = performance.now()
  const response = await fetch(served.endpoint, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${b}` },
    body: JSON.stringify({ query }),
  })
  expect(await response.json()).toEqual({ data: { sessions: { edges: [] } } })
  return performance.now() - since
}

it('PROMISE-226: thousands of operations at once on one socket: each is answered or refused with a time, and another tenant is served while they last', async () => {
  const client = new WebSocket(served.endpoint.replace('http', 'ws'), 'graphql-transport-ws')
  let refused = 0
  let over = 0
  client.on('message', (data) => {
    const text = String(data)
    if (/"RATE_LIMITED".*"retryAfterMs":[1-9]|"retryAfterMs":[1-9].*"RATE_LIMITED"/.test(text)) refused++
    if (/"type":"(complete|error)"/.test(text)) over++
  })
  await new Promise((resolve) => client.once('open', resolve))
  client.send(JSON.stringify({ type: 'connection_init', payload: { authToken: a } }))
  await new Promise((resolve) => client.once('message', resolve))
  const delay = monitorEventLoopDelay({ resolution: 5 })
  delay.enable()
  for (let n = 0; n < count; n++) client.send(JSON.stringify({ id: `q${n}`, type: 'subscribe', payload: { query } }))
  const others: number[] = []
  const since = performance.now()
  while (over < count) others.push(await asked())
  const lasted = performance.now() - since
  delay.disable()
  others.sort((x, y) => x - y)
  expect(refused).toBeGreaterThan(0)
  const { values } = await served.core.metrics.rateLimited.get()
  expect(values.map(({ labels, value }) => [labels.why, value])).toEqual([['socket', refused]])
  // At least what may wait, and it was served beside them.
  expect(count - refused).toBeGreaterThanOrEqual(1000)
  expect(others.length).toBeGreaterThan(3)
  // Whoever waited for all of them would have been answered once.
  expect(others.at(-1)).toBeLessThan(lasted / 3)
  expect(delay.max / 1e6).toBeLessThan(1000)
  client.terminate()
  await vi.waitFor(async () => expect((await served.core.metrics.operations.get()).values[0]?.value).toBe(0), {
    timeout: 30_000,
  })
}, 120_000)
