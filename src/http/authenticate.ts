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
  refuse(
    request,
    response,
    isUnavailable ? 503 : 401,
    { message, extensions: { code } },
    {
      // What else comes of it would be read to its end, for nobody.
      ...(isLong(request) && { connection: 'close' }),
      ...(isUnavailable ? { 'retry-after': '1' } : { 'www-authenticate': 'Bearer realm="holdfast"' }),
    },
  )
}

/** Answers a request for which there is one connection too many: 429. */
export function refuseConnection(request: IncomingMessage, response: ServerResponse, message: string): void {
  const error = { message, extensions: { code: 'RATE_LIMITED', retryAfterMs: 1000 } }
  refuse(request, response, 429, error, { connection: 'close', 'retry-after': '1' })
}

function refuse(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  error: object,
  headers: Record<string, string>,
): void {
  const graphql = 'application/graphql-response+json'
  response.writeHead(status, {
    'content-type': `${request.headers.accept?.includes(graphql) ? graphql : 'application/json'}; charset=utf-8`,
    'cache-control': 'no-store',
    ...headers,
  })
  response.end(JSON.stringify({ errors: [error] }))
}

/** Has it a body of more than one piece, or one whose length it does not tell? */
const isLong = ({ headers }: IncomingMessage) =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 65_536
