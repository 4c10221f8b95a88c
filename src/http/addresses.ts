// Where a connection comes from, as far as it is counted. Everybody behind a reverse proxy has the proxy's address; one that is trusted says whose
// request it passes on.

import type { IncomingMessage } from 'node:http'
import { BlockList, isIP } from 'node:net'

/** Always trusted: only this machine can speak from there, and what it claims decides nothing but who is counted. */
const loopback = ['127.0.0.0/8', '::1']

const familyOf = (address: string) => (isIP(address) === 6 ? 'ipv6' : 'ipv4')

/** An address without port, brackets and zone; one of IPv4 that came over IPv6 as itself. */
function plain(given: string): string {
  const address = /^\[([^\]]*)\](?::\d+)?$/.exec(given)?.[1] ?? /^(\d+(?:\.\d+){3}):\d+$/.exec(given)?.[1] ?? given
  return address.replace(/%.*$/, '').replace(/^::ffff:(?=\d+\.)/i, '')
}

/** What is counted as one address: of IPv6 its first 64 bits, as whoever has one has all of them. */
export function countedAs(given: string): string {
  const address = plain(given)
  if (isIP(address) !== 6) return address
  const groups = (text: string) => (text === '' ? [] : text.split(':').flatMap((g) => (g.includes('.') ? [g, g] : [g])))
  const [head = '', tail] = address.split('::')
  const before = groups(head)
  const after = groups(tail ?? '')
  const zeros = tail === undefined ? [] : Array<string>(8 - before.length - after.length).fill('0')
  const all = [...before, ...zeros, ...after]
  return `${all
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')}::/64`
}

export interface Addresses {
  /** Is this peer a proxy whose word on others counts? */
  isProxy(peer: string): boolean
  /** Whose request this is, as it is counted: the last in `X-Forwarded-For` that is no trusted proxy; the peer, if none is named. */
  ofRequest(request: Pick<IncomingMessage, 'headers' | 'socket'>): string
}

/** `trusted`: addresses and blocks (CIDR) of proxies besides those of this machine; they have been checked. */
export function createAddresses(trusted: readonly string[] = []): Addresses {
  const proxies = new BlockList()
  for (const one of [...loopback, ...trusted]) {
    const [address = '', bits] = one.split('/')
    if (bits === undefined) proxies.addAddress(address, familyOf(address))
    else proxies.addSubnet(address, Number(bits), familyOf(address))
  }
  const isProxy = (given: string) => {
    const address = plain(given)
    return isIP(address) !== 0 && proxies.check(address, familyOf(address))
  }
  return {
    isProxy,
    ofRequest({ headers, socket }) {
      const peer = socket.remoteAddress ?? ''
      if (!isProxy(peer)) return countedAs(peer)
      // What stands further left was written by whoever stands further right.
      for (const named of String(headers['x-forwarded-for'] ?? '')
        .split(',')
        .reverse()) {
        const address = plain(named.trim())
        if (isIP(address) === 0) break
        if (!isProxy(address)) return countedAs(address)
      }
      return countedAs(peer)
    },
  }
}
