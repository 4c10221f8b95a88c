import { WebSocket } from 'ws'
import { type Arrivals, arrivals, waitMs } from './arrivals.ts'
import { type Anything, authorization, type Target } from './http.ts'

/** A message of graphql-transport-ws. */
export interface Message {
  type: string
  id?: string
  payload?: Anything
}

export interface Socket {
  /** The subprotocol that the server chose. */
  protocol: string
  received: Arrivals<Message>
  /** When the server sent pings, frames or messages, in ms. */
  pings: Arrivals<number>
  closed: Promise<{ code: number; reason: string }>
  isOpen(): boolean
  /** A text goes out as it is, anything else as JSON. */
  send(message: unknown): void
  /** The n-th message of this type, and of this id if one is given. */
  got(type: string, id?: string, n?: number): Promise<Message>
  pause(): void
  resume(): void
  close(): void
}

/** Opens a WebSocket and, unless `greet` is false, says hello and waits for the answer. Never rejects at the handshake: see `closed`. */
export async function openSocket(
  target: Target,
  options: {
    greet?: boolean
    protocol?: string
    params?: Record<string, unknown>
    headers?: Record<string, string>
  } = {},
): Promise<Socket> {
  const raw = new WebSocket(target.endpoint.replace(/^http/, 'ws'), options.protocol ?? 'graphql-transport-ws', {
    handshakeTimeout: waitMs,
    ...(options.headers && { headers: options.headers }),
  })
  const received = arrivals<Message>()
  const pings = arrivals<number>()
  raw.on('message', (data) => {
    const message = JSON.parse(String(data)) as Message
    // Both ways of keeping a connection awake count; this one wants an answer.
    if (message.type === 'ping') {
      pings.push(Date.now())
      raw.send('{"type":"pong"}')
    } else received.push(message)
  })
  raw.on('ping', () => pings.push(Date.now()))
  raw.on('error', () => {})
  const closed = new Promise<{ code: number; reason: string }>((resolve) =>
    raw.once('close', (code, reason) => {
      received.close(`the socket was closed with ${code} ${reason}`)
      pings.close(`the socket was closed with ${code} ${reason}`)
      resolve({ code, reason: String(reason) })
    }),
  )
  await new Promise<void>((resolve) => {
    raw.once('open', () => resolve())
    raw.once('close', () => resolve())
  })

  const ofType = (type: string, id?: string) =>
    received.all.filter((message) => message.type === type && (id === undefined || message.id === id))
  const socket: Socket = {
    protocol: raw.protocol,
    received,
    pings,
    closed,
    isOpen: () => raw.readyState === WebSocket.OPEN,
    send: (message) => raw.send(typeof message === 'string' ? message : JSON.stringify(message)),
    async got(type, id, n = 1) {
      await received.until(`${type}${id === undefined ? '' : ` of ${id}`}`, () => ofType(type, id).length >= n)
      return ofType(type, id)[n - 1]!
    },
    pause: () => raw.pause(),
    resume: () => raw.resume(),
    close: () => raw.terminate(),
  }
  if (options.greet !== false && socket.isOpen()) {
    const payload = options.params ?? authorization(target)
    socket.send({ type: 'connection_init', ...(Object.keys(payload).length > 0 && { payload }) })
    await socket.got('connection_ack')
  }
  return socket
}
