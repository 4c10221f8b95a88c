// By which names a server without authentication may be asked: a page whose own name has been pointed at this machine brings that name along.
import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createHostCheck } from '../src/http/host.ts'
import { createLog } from '../src/log.ts'
import { type Served, serveLog } from './support/served.ts'
import { twoTenants } from './support/tokens.ts'

let open: Served
let behindProxy: Served
let guarded: Served
beforeAll(async () => {
  open = await serveLog()
  behindProxy = await serveLog({ env: { HOLDFAST_ALLOWED_HOSTS: 'holdfast.example, Other.Example.' } })
  guarded = await serveLog({ auth: twoTenants })
})
afterAll(() => Promise.all([open.close(), behindProxy.close(), guarded.close()]))

/** What a server says to a request in exactly these lines: its status, and all that it sent. */
function raw(served: Served, lines: string[], body = ''): Promise<{ status: number; text: string }> {
  const { port } = new URL(served.server.url)
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), '127.0.0.1')
    let text = ''
    const done = () => resolve({ status: Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1]), text })
    socket.setEncoding('utf8').on('data', (part) => {
      text += part
      // A WebSocket that is let in stays open.
      if (text.startsWith('HTTP/1.1 101')) socket.destroy()
    })
    socket.on('close', done).on('error', reject)
    socket.write(`${lines.join('\r\n')}\r\n\r\n${body}`)
  })
}

const query = '{"query":"{ __typename }"}'
const post = (host: string, more: string[] = []) => [
  'POST /graphql HTTP/1.1',
  `host: ${host}`,
  'content-type: application/json',
  `content-length: ${query.length}`,
  'connection: close',
  ...more,
]
const get = (path: string, host: string) => [`GET ${path} HTTP/1.1`, `host: ${host}`, 'connection: close']
const upgrade = (host: string, more: string[] = []) => [
  'GET /graphql HTTP/1.1',
  `host: ${host}`,
  'connection: upgrade',
  'upgrade: websocket',
  'sec-websocket-version: 13',
  'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==',
  'sec-websocket-protocol: graphql-transport-ws',
  ...more,
]
const statusOf = async (served: Served, host: string) => (await raw(served, post(host), query)).status

describe('SEC-06: a name that an attacker has pointed at this machine', () => {
  it('SEC-06: its page steers nothing, though origin and host agree, over HTTP and WebSocket, and the text names the rule and the setting', async () => {
    const origin = ['origin: http://evil.test:4000']
    const { status, text } = await raw(open, post('evil.test:4000', origin), query)
    expect(status).toBe(403)
    expect(text).toContain('without authentication only requests to a loopback name or address are served')
    expect(text).toContain('HOLDFAST_ALLOWED_HOSTS')
    expect((await raw(open, upgrade('evil.test:4000', origin))).status).toBe(403)
  })

  it('SEC-06: it is refused without an origin too, on every path that shows or does something', async () => {
    expect(await statusOf(open, 'evil.test:4000')).toBe(403)
    expect((await raw(open, upgrade('evil.test:4000'))).status).toBe(403)
    for (const path of ['/', '/graphiql', '/metrics', '/assets/x.js', '/graphql?query={__typename}', '/nothing'])
      expect((await raw(open, get(path, 'evil.test:4000'))).status, path).toBe(403)
  })

  it('SEC-06: nor may a request leave the name out', async () => {
    expect((await raw(open, ['GET /metrics HTTP/1.0'])).status).toBe(403)
    const old = upgrade('x').filter((line) => !line.startsWith('host:'))
    expect((await raw(open, ['GET /graphql HTTP/1.0', ...old.slice(1)])).status).toBe(403)
    expect(await statusOf(open, '')).toBe(403)
  })

  it('OPS-06: health and readiness are told to whoever asks: a probe that is refused would have a good process restarted', async () => {
    for (const path of ['/healthz', '/readyz']) {
      expect((await raw(open, get(path, 'evil.test:4000'))).status, path).toBe(200)
      expect((await raw(open, [`GET ${path} HTTP/1.0`])).status, path).toBe(200)
    }
  })

  it.each([
    'localhost',
    'LOCALHOST:4000',
    'localhost.:4000',
    'app.localhost:3000',
    '127.0.0.1',
    '127.9.8.7:80',
    '[::1]',
    '[::1]:4000',
  ])('SEC-06: %s is this machine, whatever the port', async (host) => {
    expect(await statusOf(open, host)).toBe(200)
    expect((await raw(open, upgrade(host))).status).toBe(101)
  })

  it.each([
    'localhost.evil.test',
    'evil-localhost',
    '127.0.0.1.evil.test',
    '127.0.0.1@evil.test',
    'evil.test:80:127.0.0.1',
    '[::2]',
    '192.168.1.5:4000',
    '0.0.0.0:4000',
    'holdfast.example',
  ])('SEC-06: %s is not', async (host) => {
    expect(await statusOf(open, host)).toBe(403)
  })
})

describe('HOLDFAST_ALLOWED_HOSTS', () => {
  it('SEC-06: names that are listed are served, upper or lower case and with any port; others still are not', async () => {
    for (const host of ['holdfast.example', 'HOLDFAST.example:8443', 'other.example', '127.0.0.1:4000'])
      expect(await statusOf(behindProxy, host), host).toBe(200)
    expect((await raw(behindProxy, upgrade('holdfast.example'))).status).toBe(101)
    for (const host of ['evil.test', 'x.holdfast.example', 'holdfast.example.evil.test'])
      expect(await statusOf(behindProxy, host), host).toBe(403)
  })

  it('SEC-06: the page of another origin is refused at a listed name as anywhere', async () => {
    const origin = ['origin: http://evil.test']
    expect((await raw(behindProxy, post('holdfast.example', origin), query)).status).toBe(403)
  })

  it('SEC-02: with authentication any name will do: a page has no token', async () => {
    expect(await statusOf(guarded, 'anything.example')).toBe(401)
    expect((await raw(guarded, get('/', 'anything.example'))).status).toBe(200)
    expect((await raw(guarded, upgrade('anything.example'))).status).toBe(101)
  })
})

it('SEC-06: the log warns of refused names at most once a minute, with the name and how many there were', () => {
  const lines: Record<string, unknown>[] = []
  const log = createLog('warn', { write: (line: string) => void lines.push(JSON.parse(line)) })
  let now = 1_000_000
  const isStrange = createHostCheck({ guarded: false, log, clock: { now: () => now } })
  for (let i = 0; i < 1000; i++) expect(isStrange('evil.test:4000')).toBe(true)
  expect(isStrange('localhost:4000')).toBe(false)
  expect(lines).toMatchObject([{ level: 'warn', host: 'evil.test:4000', refused: 1 }])
  now += 60_000
  expect(isStrange(undefined)).toBe(true)
  expect(isStrange('x'.repeat(5000))).toBe(true)
  expect(lines.slice(1)).toMatchObject([{ refused: 1000 }])
  now += 60_000
  expect(isStrange('x'.repeat(5000))).toBe(true)
  expect((lines[2]!.host as string).length).toBeLessThan(300)
})
