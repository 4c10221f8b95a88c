// How many connections a tenant and an address have. A connection is a socket, whatever is spoken on it. What a trusted proxy passes on is
// counted for whoever it names: a WebSocket until it is closed, any other request until it is answered.

import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics.ts'
import type { Timers } from '../pull.ts'
import { countedAs, createAddresses } from './addresses.ts'

const warnEveryMs = 60_000

export interface Connections {
  /** A socket was opened. */
  opened(socket: Socket): void
  /** Counts what a proxy passes on, until `whenOver` calls back; false: its address has too many connections, and it is to be refused. */
  admits(request: IncomingMessage, whenOver: (then: () => void) => unknown): boolean
  /** The socket is this tenant's until it is closed or another's request comes over it; false: the tenant has too many. */
  belongs(socket: Duplex, tenant: string): boolean
}

export interface ConnectionsOptions {
  config: { tenantConnections: number; addressConnections: number; trustedProxies?: readonly string[] | undefined }
  metrics: Pick<Metrics, 'connections' | 'refusedConnections'>
  log: Log
  clock: Pick<Timers, 'now'>
}

type Limits = ConnectionsOptions['config']
/** For whoever is refused: the rule. Plain ASCII. */
export const addressText = ({ addressConnections }: Limits) =>
  `at most ${addressConnections} connections of one address`
export const tenantText = ({ tenantConnections }: Limits) => `at most ${tenantConnections} connections of one tenant`

/** So many of each key; a key that has none is forgotten. */
function createCounts(most: number) {
  const counts = new Map<string, number>()
  return {
    enter(key: string): boolean {
      const now = counts.get(key) ?? 0
      if (now >= most) return false
      counts.set(key, now + 1)
      return true
    },
    leave(key: string): void {
      const left = counts.get(key)! - 1
      if (left === 0) counts.delete(key)
      else counts.set(key, left)
    },
  }
}

export function createConnections({ config, metrics, log, clock }: ConnectionsOptions): Connections {
  const addresses = createAddresses(config.trustedProxies)
  const ofAddress = createCounts(config.addressConnections)
  const ofTenant = createCounts(config.tenantConnections)
  /** Sockets beyond what their address may have. They get an answer that says so, and are newcomers until then. */
  const beyond = new WeakSet<Duplex>()
  const tenants = new WeakMap<Duplex, string>()
  let warnedAt = Number.NEGATIVE_INFINITY

  function refusedAddress(address: string): void {
    metrics.refusedConnections.inc({ why: 'address' })
    // Once a minute: whoever is refused could fill the disk otherwise.
    if (clock.now() - warnedAt < warnEveryMs) return
    warnedAt = clock.now()
    log.warn(
      { address, most: config.addressConnections },
      'an address has too many connections: more are refused; see HOLDFAST_ADDRESS_CONNECTIONS, and HOLDFAST_TRUSTED_PROXIES if it is a proxy',
    )
  }

  return {
    opened(socket) {
      metrics.connections.inc()
      socket.once('close', () => metrics.connections.dec())
      const peer = socket.remoteAddress ?? ''
      // Its requests are counted one by one.
      if (addresses.isProxy(peer)) return
      const address = countedAs(peer)
      if (ofAddress.enter(address)) socket.once('close', () => ofAddress.leave(address))
      else beyond.add(socket)
    },
    admits(request, whenOver) {
      const { socket } = request
      const address = addresses.ofRequest(request)
      if (!beyond.has(socket)) {
        if (!addresses.isProxy(socket.remoteAddress ?? '')) return true
        if (ofAddress.enter(address)) {
          whenOver(() => ofAddress.leave(address))
          return true
        }
      }
      refusedAddress(address)
      return false
    },
    belongs(socket, tenant) {
      const before = tenants.get(socket)
      if (before === tenant) return true
      if (!ofTenant.enter(tenant)) {
        metrics.refusedConnections.inc({ why: 'tenant' })
        return false
      }
      tenants.set(socket, tenant)
      if (before === undefined) socket.once('close', () => ofTenant.leave(tenants.get(socket)!))
      else ofTenant.leave(before)
      return true
    },
  }
}
