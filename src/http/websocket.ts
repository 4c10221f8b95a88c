import { randomUUID } from 'node:crypto'
import type { IncomingMessage, Server } from 'node:http'
import type { Duplex } from 'node:stream'
import type { ExecutionArgs, GraphQLError } from 'graphql'
import { CloseCode, type Context, handleProtocols } from 'graphql-ws'
import { type Extra, useServer } from 'graphql-ws/use/ws'
import { WebSocketServer } from 'ws'
import { type Caller, endedMessage, isRefused } from '../access/caller.ts'
import type { Gate } from '../access/gate.ts'
import type { Log } from '../log.ts'
import type { Timers } from '../pull.ts'
import { presentable } from '../schema/masking.ts'
import { refusal } from '../schema/refusal.ts'
import { tokenOfParams } from './authenticate.ts'
import { bodyBytesMax, type Graphql, graphqlPath, pingMs } from './graphql.ts'
import { type HostCheck, strangeHostText } from './host.ts'
import type { Operation, Taking } from './operation.ts'
import { isForeign } from './origin.ts'
import { pace } from './paced-socket.ts'

type Enveloped = ReturnType<Graphql['getEnveloped']>
interface Args extends ExecutionArgs {
  enveloped: Enveloped
}

// RFC 6455; clients try again after it.
const tryAgainLater = 1013
/** Bytes that a closing frame has for its reason. */
const reasonMax = 123
/** How long what runs may still get its answer before a connection without a token that counts is closed. */
const quietMs = 30_000

type Connection = Context<Record<string, unknown> | undefined, Extra>

/**
 * Serves graphql-transport-ws on the GraphQL path of an HTTP server, to callers whose token comes with connection_init. `close` ends all sockets, at the latest after
 * `deadlineMs`.
 */
export function serveWebSocket(
  server: Server,
  gate: Gate,
  isStrangeHost: HostCheck,
  graphql: Graphql,
  log: Log,
  options: { pingMs?: number; stallMs: number; clock: Timers },
): { close(deadlineMs: number): Promise<void> } {
  const sockets = new WebSocketServer({ noServer: true, maxPayload: bodyBytesMax, handleProtocols })
  const connected = new Set<Connection>()
  const callers = new WeakMap<Connection, Caller>()
  const takings = new WeakMap<object, Taking>()
  const served = useServer(
    {
      async onConnect(context) {
        // Before the first await: who is gone by then is taken out again.
        connected.add(context)
        const caller = await gate.callerOf(tokenOfParams(context.connectionParams), randomUUID())
        if (!isRefused(caller)) {
          callers.set(context, caller)
          return true
        }
        const code = caller.code === 'UNAVAILABLE' ? tryAgainLater : CloseCode.Forbidden
        context.extra.socket.close(code, `${caller.code}: ${caller.message}`.slice(0, reasonMax))
        return false
      },
      onClose: (context) => void connected.delete(context),
      execute: (args) => (args as Args).enveloped.execute(args),
      subscribe: (args) => (args as Args).enveloped.subscribe(args),
      onSubscribe: async (context, _id, params) => {
        const caller = callers.get(context)
        if (caller === undefined || caller.hasEnded()) {
          void closeWhenQuiet(context)
          return [refusal('UNAUTHENTICATED', endedMessage)]
        }
        const taking = takings.get(context.extra.socket)!
        const operation: Operation = {
          requestId: randomUUID(),
          lastEventId: null,
          position: { seq: null },
          caller,
          taking,
        }
        try {
          return await prepare(graphql, operation, params)
        } catch (thrown) {
          return [presentable(thrown, log, operation.requestId)]
        }
      },
    },
    sockets,
    // Pings are the business of paced-socket.ts: a late pong alone says nothing.
    0,
  )

  /** So that a client comes back with a new token; what runs gets its answer first, the refusal of what was asked last too. */
  async function closeWhenQuiet(connection: Connection) {
    const until = performance.now() + quietMs
    const busy = () => connected.has(connection) && Object.keys(connection.subscriptions).length > 0
    do await new Promise((resolve) => setTimeout(resolve, 10))
    while (busy() && performance.now() < until)
    connection.extra.socket.close(CloseCode.Forbidden, `UNAUTHENTICATED: ${endedMessage}`)
  }

  const upgrade = (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    const pathname = (request.url ?? '').split('?')[0]
    if (pathname !== graphqlPath) return refuse(socket, '404 Not Found')
    if (isStrangeHost(request.headers.host)) return refuse(socket, '403 Forbidden', strangeHostText)
    if (isForeign(request)) return refuse(socket, '403 Forbidden')
    sockets.handleUpgrade(request, socket, head, (client) => {
      const dead = (why: string) => log.debug({ why }, 'a websocket was ended')
      takings.set(client, pace(client, socket, { pingMs, ...options, dead }))
      sockets.emit('connection', client, request)
      // A frame over the limit or broken framing closes this socket by itself; the library would write to the console.
      client.removeAllListeners('error')
      client.on('error', (error) => log.debug({ err: error }, 'websocket error'))
    })
  }
  server.on('upgrade', upgrade)

  return {
    async close(deadlineMs) {
      server.off('upgrade', upgrade)
      const until = performance.now() + deadlineMs
      // The streams are ending; their readers are to get the last item and the end of the operation before the socket goes.
      const busy = () => [...connected].some(({ subscriptions }) => Object.keys(subscriptions).length > 0)
      while (busy() && performance.now() < until) await new Promise((resolve) => setTimeout(resolve, 10))
      // A peer that does not answer the closing handshake would keep us here.
      const deadline = setTimeout(() => {
        for (const client of sockets.clients) client.terminate()
      }, until - performance.now())
      await served.dispose()
      clearTimeout(deadline)
    },
  }
}

async function prepare(
  graphql: Graphql,
  operation: Operation,
  params: { query: string; operationName?: string | null; variables?: Record<string, unknown> | null },
): Promise<Args | readonly GraphQLError[]> {
  const enveloped = graphql.getEnveloped({ ...operation, params })
  const document = enveloped.parse(params.query)
  const errors = enveloped.validate(enveloped.schema, document) as readonly GraphQLError[]
  if (errors.length > 0) return errors
  return {
    enveloped,
    schema: enveloped.schema,
    document,
    operationName: params.operationName ?? null,
    variableValues: params.variables ?? null,
    contextValue: await enveloped.contextFactory(),
  }
}

/** `text` in plain ASCII. */
function refuse(socket: Duplex, status: string, text = ''): void {
  socket.on('error', () => {})
  const type = text && 'content-type: text/plain; charset=utf-8\r\n'
  socket.end(`HTTP/1.1 ${status}\r\nconnection: close\r\n${type}content-length: ${text.length}\r\n\r\n${text}`)
}
