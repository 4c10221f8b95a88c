// How many connections a tenant and an address may have, and what one too many is told.
import { EventEmitter } from 'node:events'
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { loadConfig } from '../src/config.ts'
import { countedAs, createAddresses } from '../src/http/addresses.ts'
import { createConnections } from '../src/http/connections.ts'
import { type Served, serveLog } from './support/served.ts'

const [a, b] = ['a'.repeat(24), 'b'.repeat(24)]
const env = {
  HOLDFAST_API_KEYS: `${a}:acme,${b}:beta`,
  HOLDFAST_TENANT_CONNECTIONS: '2',
  HOLDFAST_ADDRESS_CONNECTIONS: '3',
  HOLDFAST_TRUSTED_PROXIES: '10.0.0.0/8,2001:db8:1::1',
}

let served: Served
beforeAll(async () => {
  served = await serveLog({ env })
})
afterAll(() => served?.close())

const soon = <T>(look: () => T) => vi.waitFor(look, { timeout: 30_000 })
const refusals = async (why: string) =>
  (await served.core.metrics.refusedConnections.get()).values.find(({ labels }) => labels.why === why)?.value ?? 0

/** A WebSocket that says who it is; its first message, or the code and reason with which it was closed. */
async function greeted(token: string, address?: string) {
  const headers = address === undefined ? {} : { 'x-forwarded-for': address }
  const client = new WebSocket(served.endpoint.replace('http', 'ws'), 'graphql-transport-ws', { headers })
  const outcome = await new Promise<string>((resolve) => {
    client.once('message', (data) => resolve(JSON.parse(String(data)).type))
    client.once('close', (code, reason) => resolve(`${code} ${reason}`))
    client.once('unexpected-response', (_, { statusCode }) => resolve(`status ${statusCode}`))
    client.on('error', () => {})
    client.once('open', () => client.send(JSON.stringify({ type: 'connection_init', payload: { authToken: token } })))
  })
  return { client, outcome, close: () => client.terminate() }
}
type Greeted = Awaited<ReturnType<typeof greeted>>

const post = (token: string, address?: string) =>
  fetch(served.endpoint, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      authorization: `Bearer ${token}`,
      connection: 'close',
      ...(address !== undefined && { 'x-forwarded-for': address }),
    },
    body: JSON.stringify({ query: '{ __typename }' }),
  })

describe('PROMISE-21: many connections', () => {
  it('PROMISE-217: one connection too many of a tenant is closed with 1013, over HTTP told RATE_LIMITED; others come in, and one that went makes room', async () => {
    const open: Greeted[] = [await greeted(a), await greeted(a)]
    expect(open.map(({ outcome }) => outcome)).toEqual(['connection_ack', 'connection_ack'])
    expect((await greeted(a)).outcome).toBe('1013 RATE_LIMITED: at most 2 connections of one tenant')
    const refused = await post(a)
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '1'])
    expect(await refused.json()).toMatchObject({
      errors: [{ extensions: { code: 'RATE_LIMITED', retryAfterMs: 1000 } }],
    })
    expect(await refusals('tenant')).toBe(2)
    expect((await post(b)).status).toBe(200)
    open[0]!.close()
    await soon(async () => expect((await post(a)).status).toBe(200))
    open[1]!.close()
    await soon(async () => expect((await served.core.metrics.connections.get()).values[0]?.value).toBe(0))
  })

  it('PROMISE-218: one connection too many of an address behind a proxy gets 429, also for an upgrade; another address and a health check are served', async () => {
    const open = [
      await greeted(a, '203.0.113.5'),
      await greeted(a, '1.1.1.1, 203.0.113.5, 10.0.0.7'),
      await greeted(b, '203.0.113.5'),
    ]
    expect(open.map(({ outcome }) => outcome)).toEqual(['connection_ack', 'connection_ack', 'connection_ack'])
    expect((await greeted(b, '203.0.113.5')).outcome).toBe('status 429')
    expect((await post(b, '203.0.113.5')).status).toBe(429)
    expect(await refusals('address')).toBe(2)
    const health = await fetch(new URL('/healthz', served.endpoint), { headers: { 'x-forwarded-for': '203.0.113.5' } })
    expect(health.status).toBe(200)
    expect((await post(b, '203.0.113.6')).status).toBe(200)
    expect(served.logged().filter(({ msg }) => /too many connections/.test(String(msg)))).toHaveLength(1)
    for (const { close } of open) close()
    await soon(async () => expect((await post(b, '203.0.113.5')).status).toBe(200))
  })

  it('PROMISE-219: the sockets of a peer that is no proxy are counted whatever it claims; what is beyond is refused until one was closed', () => {
    const { core } = served
    const config = { tenantConnections: 9, addressConnections: 2 }
    const connections = createConnections({ config, metrics: core.metrics, log: core.log, clock: core.clock })
    const socketOf = (remoteAddress: string) =>
      Object.assign(new EventEmitter(), { remoteAddress }) as unknown as Socket
    const requestOn = (socket: Socket) =>
      ({ socket, headers: { 'x-forwarded-for': `${Math.random()}, 198.51.100.1` } }) as unknown as IncomingMessage
    const admits = (socket: Socket) => connections.admits(requestOn(socket), () => {})
    const sockets = Array.from({ length: 3 }, () => socketOf('192.0.2.1'))
    for (const socket of sockets) connections.opened(socket)
    expect(sockets.map(admits)).toEqual([true, true, false])
    // Also when it asks again, for as long as it is the one beyond.
    sockets[0]!.emit('close')
    expect(sockets.slice(1).map(admits)).toEqual([true, false])
    const next = socketOf('::ffff:192.0.2.1')
    connections.opened(next)
    expect(admits(next)).toBe(true)
  })

  it('PROMISE-221: an address is what the last proxy that is trusted says; of IPv6 64 bits count; a setting that is none is refused', async () => {
    const { ofRequest } = createAddresses(['10.0.0.0/8', '2001:db8:1::1'])
    const seen = (peer: string, forwarded?: string) =>
      ofRequest({
        socket: { remoteAddress: peer },
        headers: { 'x-forwarded-for': forwarded },
      } as unknown as IncomingMessage)
    expect([
      seen('192.0.2.9', '203.0.113.1'),
      seen('::ffff:10.1.2.3', 'nonsense, 203.0.113.1'),
      seen('127.0.0.1', '203.0.113.1:4711, 10.9.9.9'),
      seen('2001:db8:1::1', '[2001:db8:2:3:4::1]:99'),
      seen('::1', 'nonsense'),
      seen('10.0.0.1'),
    ]).toEqual(['192.0.2.9', '203.0.113.1', '203.0.113.1', '2001:db8:2:3::/64', '0:0:0:0::/64', '10.0.0.1'])
    expect(countedAs('2001:0db8::1%eth0')).toBe('2001:db8:0:0::/64')
    const problem = loadConfig({ env: { HOLDFAST_TRUSTED_PROXIES: '10.0.0.0/33' }, cwd: import.meta.dirname })
    await expect(problem).rejects.toThrow(/HOLDFAST_TRUSTED_PROXIES is "10.0.0.0\/33": "10.0.0.0\/33" is no address/)
  })
})
