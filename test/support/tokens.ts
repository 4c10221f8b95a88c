// Keys and tokens as callers have them, and the three ways on which they are shown to a server.
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type Client, type ClientOptions, createClient } from 'graphql-ws'
import { type CryptoKey, exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose'
import { WebSocket } from 'ws'
import { readAuth, readKeys } from '../../src/config/auth.ts'
import type { Auth } from '../../src/config.ts'
import type { Answer, Served } from './served.ts'

export const keyOfA = 'key-of-tenant-a-0123456789'
export const keyOfB = 'key-of-tenant-b-0123456789'
export const secret = 'a-secret-of-at-least-thirty-two-bytes'

/** What HOLDFAST_API_KEYS and, if given, a file of keys make. */
export function apiKeys(list?: string, path?: string): Auth {
  const { auth, problems } = readKeys(list, path)
  if (auth === undefined || problems.length > 0) throw new Error(problems.join('; '))
  return auth
}

/** Both tenants of most tests. */
export const twoTenants = apiKeys(`${keyOfA}:a,${keyOfB}:b`)

/** What `auth: { jwt }` of a config file makes. */
export function jwtAuth(jwt: object): Auth {
  const { jwt: checked, problems } = readAuth({ jwt })
  if (checked === undefined) throw new Error(problems.join('; '))
  return { keys: [], jwt: checked }
}

interface Signed {
  key?: CryptoKey | Uint8Array | string
  alg?: string
  kid?: string
  /** In seconds since the epoch; null: none. */
  exp?: number | null
}

export const inSeconds = (from: number, seconds: number) => Math.floor(from / 1000) + seconds

/** A token that expires in an hour, signed with `secret`, unless something else is said. */
export function token(claims: JWTPayload = { tenant: 'a' }, signed: Signed = {}): Promise<string> {
  const { key = secret, alg = 'HS256', kid, exp = inSeconds(Date.now(), 3600) } = signed
  const jwt = new SignJWT(claims).setProtectedHeader({ alg, ...(kid && { kid }) })
  if (exp !== null) jwt.setExpirationTime(exp)
  return jwt.sign(typeof key === 'string' ? new TextEncoder().encode(key) : key)
}

/** An issuer's keys on loopback. `rotate` takes the key it has away and publishes a new one. */
export async function issuer(alg = 'RS256') {
  let published: (Record<string, unknown> & { kid: string })[] = []
  let fetched = 0
  let away = false
  const server = createServer((_request, response) => {
    fetched++
    if (away) return void response.writeHead(500).end('postgres://u:hunter2@internal')
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ keys: published }))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  async function add(kid: string) {
    const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true })
    const jwk = await exportJWK(publicKey)
    published.push({ ...jwk, kid, alg, use: 'sig' })
    return { privateKey, jwk }
  }
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/jwks.json`,
    add,
    rotate: (kid: string) => {
      published = []
      return add(kid)
    },
    /** Whatever it is. */
    publish: (jwk: Record<string, unknown> & { kid: string }) => void published.push(jwk),
    remove: (kid: string) => {
      published = published.filter((jwk) => jwk.kid !== kid)
    },
    fetched: () => fetched,
    setAway: (value: boolean) => {
      away = value
    },
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections()
        server.close(resolve)
      }),
  }
}

/** A request with this Authorization header; `token` alone stands for `Bearer token`. */
export async function post(
  endpoint: string,
  query: string,
  options: { token?: string; authorization?: string; accept?: string; variables?: object } = {},
): Promise<Response> {
  const authorization = options.authorization ?? (options.token === undefined ? undefined : `Bearer ${options.token}`)
  return fetch(endpoint, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(authorization !== undefined && { authorization }),
      ...(options.accept && { accept: options.accept }),
    },
    body: JSON.stringify({ query, variables: options.variables }),
  })
}

/** The answer over HTTP. */
export async function askAs(served: { endpoint: string }, token: string, query: string, variables: object = {}) {
  return (await (await post(served.endpoint, query, { token, variables })).json()) as Answer
}

const clients: Client[] = []

/** A graphql-ws client; `params`: the payload of its connection_init. */
export function socketOf(
  served: Pick<Served, 'endpoint'>,
  params?: ClientOptions['connectionParams'],
  over: Partial<ClientOptions> = {},
) {
  const client = createClient({
    url: served.endpoint.replace('http', 'ws'),
    webSocketImpl: WebSocket,
    retryAttempts: 0,
    ...(params && { connectionParams: params }),
    ...over,
  })
  clients.push(client)
  return client
}

/** For afterEach. */
export async function closeSockets() {
  for (const client of clients.splice(0)) {
    // First no new connection, then away with the one that is there.
    void client.dispose()
    client.terminate()
  }
}

/** What a raw connection gets: every message, and how it was closed. */
export async function rawSocket(served: Pick<Served, 'endpoint'>, payload?: unknown) {
  const socket = new WebSocket(served.endpoint.replace('http', 'ws'), 'graphql-transport-ws')
  // biome-ignore lint/suspicious/noExplicitAny: whatever the server has sent
  const received: any[] = []
  socket.on('message', (data) => received.push(JSON.parse(String(data))))
  const closed = new Promise<{ code: number; reason: string }>((resolve) =>
    socket.once('close', (code, reason) => resolve({ code, reason: String(reason) })),
  )
  await new Promise((resolve) => socket.once('open', resolve))
  const send = (message: object) => socket.send(JSON.stringify(message))
  send({ type: 'connection_init', ...(payload !== undefined && { payload }) })
  return { socket, received, closed, send }
}
