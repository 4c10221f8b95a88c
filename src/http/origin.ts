import type { IncomingMessage } from 'node:http'

/**
 * Does this request come from a page of another origin? Browsers say where a page comes from in every POST and WebSocket; other
 * clients say nothing. Without this check any page that a user has open could steer the sessions of a server on localhost (SEC-06).
 */
export function isForeign(request: IncomingMessage): boolean {
  const { origin, host } = request.headers
  if (origin === undefined) return false
  if (host === undefined || !/^[^/?#@\\]+$/.test(host) || !URL.canParse(origin)) return true
  const page = new URL(origin)
  // A name in capitals is the same, and so is the port that goes without saying: some clients and proxies write it.
  const own = `${page.protocol}//${host}`
  return !URL.canParse(own) || new URL(own).host !== page.host
}
