import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Refused } from '../access/caller.ts'
import { bearerToken } from '../access/gate.ts'

/** The token of an HTTP request. Never from the URL: addresses are logged, shared and kept in histories. */
export const tokenOfRequest = (request: IncomingMessage) => bearerToken(request.headers.authorization)

/** The token of a WebSocket's connection_init: `authorization: "Bearer TOKEN"`, or `authToken: "TOKEN"`. */
export function tokenOfParams(params: Readonly<Record<string, unknown>> | undefined): string | undefined {
  for (const [name, value] of Object.entries(params ?? {})) {
    if (name.toLowerCase() === 'authorization') return bearerToken(value)
    if (name === 'authToken' && typeof value === 'string') return bearerToken(value) ?? bearerToken(`Bearer ${value}`)
  }
  return undefined
}

/** Answers a request that nobody may make, before its body is read: 401, or 503 if the token could not be checked. */
export function refuseRequest(request: IncomingMessage, response: ServerResponse, { code, message }: Refused): void {
  const isUnavailable = code === 'UNAVAILABLE'
  const graphql = 'application/graphql-response+json'
  response.writeHead(isUnavailable ? 503 : 401, {
    'content-type': `${request.headers.accept?.includes(graphql) ? graphql : 'application/json'}; charset=utf-8`,
    'cache-control': 'no-store',
    // What else comes of it would be read to its end, for nobody.
    ...(isLong(request) && { connection: 'close' }),
    ...(isUnavailable ? { 'retry-after': '1' } : { 'www-authenticate': 'Bearer realm="holdfast"' }),
  })
  response.end(JSON.stringify({ errors: [{ message, extensions: { code } }] }))
}

/** Has it a body of more than one piece, or one whose length it does not tell? */
const isLong = ({ headers }: IncomingMessage) =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 65_536
