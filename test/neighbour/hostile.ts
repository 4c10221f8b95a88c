// A tenant that does all at once what one caller should not be able to harm the others with. A process of its own, so that what it costs to
// be hostile is not taken for what it costs to be attacked: node --import tsx hostile.ts URL TOKEN PART PARTS, each with its share of the harms;
// the first makes the sessions. It goes on until it is killed.
import { AsyncLocalStorage } from 'node:async_hooks'
import { type ClientRequest, type IncomingMessage, request } from 'node:http'
import { setPriority } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import WebSocket from 'ws'

const [base, token, part, parts] = process.argv.slice(2) as [string, string, string, string]
// Two processors are shared by everybody here; only what the server makes of it is asked for.
setPriority(10)

const socketUrl = `${base.replace('http', 'ws')}graphql`
const session = 'ses_hostile_large'
/** How often each thing was begun and done, and what came of it: statuses, and codes of closed sockets. Told once a second. */
interface Told {
  begun: number
  done: number
  came: Record<string, number>
}
const told: Record<string, Told> = {}
const current = new AsyncLocalStorage<Told>()
function came(what: string): void {
  const { came } = current.getStore() ?? { came: {} as Told['came'] }
  came[what] = (came[what] ?? 0) + 1
}

type Body = string | Buffer
/** Sends a request and lets the answer go by; resolves with the status, or 0 when the connection broke. Never rejects. */
function send(body: Body | undefined, over: { path?: string; headers?: Record<string, string>; reads?: boolean } = {}) {
  return new Promise<number>((done) => {
    const resolve = AsyncLocalStorage.bind((status: number) => {
      came(`status ${status}`)
      done(status)
    })
    const { hostname, port } = new URL(base)
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}`, ...over.headers }
    const sent: ClientRequest = request({
      hostname,
      port,
      path: over.path ?? '/graphql',
      method: body === undefined ? 'GET' : 'POST',
      headers,
      agent: false,
    })
    sent.on('error', () => resolve(0))
    sent.setTimeout(60_000, () => sent.destroy())
    sent.on(
      'response',
      AsyncLocalStorage.bind((response: IncomingMessage) => {
        if (over.reads === false) return came('unread')
        response.resume()
        response.on('close', () => resolve(response.statusCode ?? 0))
      }),
    )
    sent.end(body)
  })
}
const ask = (query: string, variables?: unknown, headers?: Record<string, string>) =>
  send(JSON.stringify({ query, variables }), headers ? { headers } : {})

function open(initialised: boolean): Promise<WebSocket | null> {
  return new Promise((resolve) => {
    const socket = new WebSocket(socketUrl, 'graphql-transport-ws')
    socket.on('error', () => resolve(null))
    socket.on(
      'close',
      AsyncLocalStorage.bind((code: number) => {
        came(`closed ${code}`)
        resolve(null)
      }),
    )
    socket.on('open', () => {
      if (!initialised) return resolve(socket)
      socket.send(
        JSON.stringify({
          type: 'connection_init',
          payload: { token, authToken: token, authorization: `Bearer ${token}` },
        }),
      )
      socket.once(
        'message',
        AsyncLocalStorage.bind(() => {
          came('acknowledged')
          resolve(socket)
        }),
      )
    })
  })
}
const closed = (socket: WebSocket) => new Promise<void>((resolve) => socket.once('close', () => resolve()))
const within = (ms: number, ...waits: Promise<unknown>[]) => Promise.race([sleep(ms), ...waits])

const deepInit = `{"type":"connection_init","payload":{"a":${'['.repeat(9e6)}${']'.repeat(9e6)}}}`
const megabyte = Buffer.alloc(1e6, 'y')
const enums = `{"query":"query($s:[SessionStatus!]){sessions(status:$s){edges{node{id}}}}","variables":{"s":[${'"IDLE",'.repeat(4e6)}"IDLE"]}}`
const nested = `{"query":"{__typename}","variables":{"a":${'['.repeat(5e6)}${']'.repeat(5e6)}}}`
const attachment = `data:application/octet-stream;base64,${'QUFB'.repeat(5e6)}`
const admission = `mutation($i: AdmitPromptInput!) { admitPrompt(input: $i) { __typename } }`
const longWord = `${'a'.repeat(4_000)}b`
let made = 0

const attacks: Record<string, () => Promise<void>> = {
  async 'a large first message'() {
    const socket = await open(false)
    if (!socket) return
    socket.send(deepInit)
    await within(20_000, closed(socket))
    socket.terminate()
  },
  async 'unfinished first messages'() {
    const sockets = (await Promise.all(Array.from({ length: 20 }, () => open(false)))).filter((one) => one !== null)
    for (const socket of sockets) for (let n = 0; n < 20; n++) socket.send(megabyte, { fin: false })
    await within(20_000, ...sockets.map(closed))
    for (const socket of sockets) socket.terminate()
  },
  async 'slow bodies'() {
    const { hostname, port } = new URL(base)
    const slow = Array.from({ length: 50 }, () => {
      const sent = request({
        hostname,
        port,
        path: '/graphql',
        method: 'POST',
        headers: { 'content-length': '1000000', 'content-type': 'application/json' },
        agent: false,
      })
      sent.on('error', () => {})
      const timer = setInterval(() => sent.write(' '), 500)
      sent.on('close', () => clearInterval(timer))
      return sent
    })
    await sleep(15_000)
    for (const sent of slow) came(sent.destroyed ? 'ended by the server' : 'still open')
    for (const sent of slow) sent.destroy()
  },
  async 'large rows for small answers'() {
    await Promise.all([
      ask(`{ session(id: "${session}") { inputs { id } } }`),
      ask(`{ session(id: "${session}") { inputs { attachments { url } } } }`),
      ask(`{ session(id: "${session}") { events(first: 1000) { seq } } }`),
      ask(`{ verifySession(id: "${session}") { consistent } }`),
    ])
  },
  async 'streams that nobody reads'() {
    const unread = Array.from({ length: 10 }, () =>
      send(
        JSON.stringify({
          query: `subscription { sessionEvents(sessionId: "${session}") { __typename seq ... on PromptAdmitted { attachments { url } } } }`,
        }),
        {
          headers: { accept: 'text/event-stream' },
          reads: false,
        },
      ),
    )
    await within(20_000, ...unread)
  },
  async 'searches for long words'() {
    await Promise.all(
      Array.from({ length: 10 }, () =>
        ask('query($w: String) { sessions(search: $w) { edges { node { id } } } }', { w: longWord }),
      ),
    )
  },
  async 'subscriptions in batches and for no reader'() {
    const query = `subscription { sessionEvents(sessionId: "${session}") { seq } }`
    await Promise.all([
      send(JSON.stringify([{ query }, { query }, { query: '{ __typename }' }])),
      send(JSON.stringify({ query }), { headers: { accept: 'application/json' } }),
      send(JSON.stringify({ query }), { headers: { accept: 'image/png' } }),
    ])
  },
  async 'ten thousand queries on one socket'() {
    const socket = await open(true)
    if (!socket) return
    for (let n = 0; n < 10_000 && socket.readyState === WebSocket.OPEN; n++)
      socket.send(
        JSON.stringify({
          id: `q${n}`,
          type: 'subscribe',
          payload: { query: '{ sessions(first: 1) { edges { node { id } } } }' },
        }),
      )
    await within(20_000, closed(socket))
    socket.terminate()
  },
  async 'five thousand streams on one socket'() {
    const socket = await open(true)
    if (!socket) return
    for (let n = 0; n < 5_000 && socket.readyState === WebSocket.OPEN; n++)
      socket.send(
        JSON.stringify({
          id: `s${n}`,
          type: 'subscribe',
          payload: {
            query:
              n % 2
                ? 'subscription { sessionActivity { id } }'
                : `subscription { sessionEvents(sessionId: "${session}") { seq } }`,
          },
        }),
      )
    await within(20_000, closed(socket))
    socket.terminate()
  },
  async 'many sockets'() {
    const sockets = (await Promise.all(Array.from({ length: 300 }, (_, n) => open(n % 2 === 0)))).filter(
      (one) => one !== null,
    )
    await sleep(3_000)
    for (const socket of sockets) socket.terminate()
  },
  async 'pings of one who does not read'() {
    const socket = await open(true)
    if (!socket) return
    socket.pause()
    const ping = JSON.stringify({ type: 'ping', payload: { a: 'x'.repeat(500) } })
    for (let n = 0; n < 200 && socket.readyState === WebSocket.OPEN; n++) {
      for (let m = 0; m < 500; m++) socket.send(ping)
      await sleep(20)
    }
    socket.terminate()
  },
  async 'millions of enum values'() {
    await send(enums)
  },
  async 'deep variables that nobody uses'() {
    await send(nested)
  },
  async 'large attachments'() {
    await ask(admission, {
      i: {
        sessionId: session,
        messageId: `msg_hostile_${made++}_${process.pid}`,
        text: 'x',
        resume: false,
        attachments: [{ name: 'a', mediaType: 'application/octet-stream', url: attachment }],
      },
    })
    await sleep(500)
  },
  async 'admissions as fast as they go'() {
    await Promise.all(
      Array.from({ length: 20 }, () =>
        ask(admission, {
          i: {
            sessionId: 'ses_hostile_small',
            messageId: `msg_hostile_${made++}_${process.pid}`,
            text: 'hello',
            resume: made % 5 === 0,
          },
        }),
      ),
    )
  },
  async 'pages for anybody'() {
    await Promise.all(Array.from({ length: 10 }, () => send(undefined, { path: '/graphiql' })))
  },
}

if (part === '0') {
  await ask(`mutation { createSession(input: { sessionId: "${session}" }) { __typename } }`)
  await ask('mutation { createSession(input: { sessionId: "ses_hostile_small" }) { __typename } }')
  for (let n = 0; n < 4; n++)
    await ask(admission, {
      i: {
        sessionId: session,
        messageId: `msg_hostile_first_${n}`,
        text: 'y '.repeat(500_000),
        resume: false,
        attachments: [{ name: 'a', mediaType: 'application/octet-stream', url: attachment }],
      },
    })
}

// Several processes: while one is busy with gigabytes of its own, the others go on.
for (const [n, [name, attack]] of Object.entries(attacks).entries()) {
  if (n % Number(parts) !== Number(part)) continue

  const own: Told = { begun: 0, done: 0, came: {} }
  told[name] = own
  void current.run(own, async () => {
    for (;;) {
      own.begun++
      await attack()
      own.done++
      await sleep(10)
    }
  })
}
setInterval(() => console.log(JSON.stringify(told)), 1000)
