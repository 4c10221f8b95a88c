// One WebSocket that speaks graphql-transport-ws, and the operations that run on it.

import { randomUUID } from 'node:crypto'
import type { Socket } from 'node:net'
import { type ExecutionResult, GraphQLError, getOperationAST } from 'graphql'
import {
  CloseCode,
  GRAPHQL_TRANSPORT_WS_PROTOCOL,
  type Message,
  MessageType,
  type SubscribeMessage,
  validateMessage,
} from 'graphql-ws'
import { isAsyncIterable } from 'graphql-yoga'
import type { WebSocket } from 'ws'
import { type Caller, endedMessage, isRefused } from '../access/caller.ts'
import type { Gate } from '../access/gate.ts'
import { asError } from '../errors.ts'
import { findInexact, type Inexact, inexactText } from '../exact-numbers.ts'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics.ts'
import type { Timers } from '../pull.ts'
import { presentable } from '../schema/masking.ts'
import { refusal } from '../schema/refusal.ts'
import { tokenOfParams } from './authenticate.ts'
import { tooMuchStructure } from './body.ts'
import type { Bounds } from './bounds.ts'
import { type Connections, type ConnectionsOptions, tenantText } from './connections.ts'
import type { Graphql } from './graphql.ts'
import type { JsonParser } from './json.ts'
import { createGauge, type Gauge, structureBytesMax } from './json-gauge.ts'
import { limitFirstBytes, type Newcomers } from './newcomers.ts'
import type { Operation } from './operation.ts'
import { createOutgoing } from './outgoing.ts'
import { pace } from './paced-socket.ts'
import { rateLimited } from './rates.ts'

// RFC 6455.
const tooBig = 1009
// Clients try again after it.
const tryAgainLater = 1013
/** Bytes that a closing frame has for its reason. */
const reasonMax = 123
/** How long what runs may still get its answer before a connection without a token that counts is closed. */
const quietMs = 30_000
/** Messages of one socket that are read in one turn of the event loop, and that wait for theirs before nothing more is read from it. */
const messagesPerTurn = 16
const unreadMax = 100
/** How long a peer that nobody knows gets to take its goodbye. */
const lingerMs = 1000

export interface ConnectionParts {
  gate: Gate
  graphql: Graphql
  json: JsonParser
  log: Log
  metrics: Metrics
  newcomers: Newcomers
  connections: Connections
  limits: ConnectionsOptions['config'] & { socketOperations: number }
  bounds: Bounds
  pingMs: number
  stallMs: number
  clock: Timers
}

export interface Connection {
  /** Are operations under way? */
  busy(): boolean
}

/** Serves a socket until it is closed. Whatever runs on it then ends with it. */
export function serveConnection(client: WebSocket, socket: Socket, parts: ConnectionParts): Connection {
  const { gate, graphql, json, log, newcomers, bounds, limits } = parts
  /** By the id that the client has given; aborts when the operation is over, however that came. */
  const running = new Map<string, AbortController>()
  const connection: Connection = { busy: () => running.size > 0 }
  let greeted = false
  let caller: Caller | undefined
  let ended = false
  let closing = false

  const { allow } = limitFirstBytes(socket, client, { most: bounds.firstBytes, metrics: parts.metrics })
  const taking = pace(client, socket, {
    ...parts,
    dead(why) {
      parts.metrics.endedConnections.inc({ why: 'unread' })
      log.debug({ why }, 'a websocket was ended')
    },
  })
  const out = createOutgoing(client, bounds)
  const say = (message: object) => out.send(JSON.stringify(message))

  function end(code: number, reason: string): void {
    ended = true
    // The id of an operation is the client's text, and the frame has room for bytes.
    client.close(code, Buffer.byteLength(reason) > reasonMax ? 'protocol violation' : reason)
    // Who is known may have much to take before the goodbye.
    if (caller === undefined) setTimeout(() => client.terminate(), lingerMs).unref()
  }

  const impatience = setTimeout(() => {
    if (!greeted) end(CloseCode.ConnectionInitialisationTimeout, 'Connection initialisation timeout')
  }, bounds.initMs)
  impatience.unref()

  /** Messages that have come and wait to be read. */
  let unread = 0
  let resumeReading: (() => void) | undefined
  let sinceTurn = 0
  /** Messages are taken in the order in which they came, however long one takes to be read. */
  let before = Promise.resolve()
  client.on('message', (data) => {
    const bytes = data as Buffer<ArrayBuffer>
    // Nothing piles up behind one that takes its time.
    const resume = bytes.length > structureBytesMax ? out.holdReading() : undefined
    unread += 1
    if (unread >= unreadMax) resumeReading ??= out.holdReading()
    before = before
      .then(() => (ended ? undefined : receive(bytes)))
      .catch((thrown: unknown) => {
        log.error({ err: asError(thrown) }, 'a websocket message failed')
        end(CloseCode.InternalServerError, 'Internal server error')
      })
      .finally(() => {
        resume?.()
        unread -= 1
        if (unread > 0) return
        resumeReading?.()
        resumeReading = undefined
      })
  })
  client.on('close', () => {
    ended = true
    clearTimeout(impatience)
    for (const gone of running.values()) gone.abort()
    running.clear()
  })
  if (client.protocol !== GRAPHQL_TRANSPORT_WS_PROTOCOL)
    end(CloseCode.SubprotocolNotAcceptable, 'Subprotocol not acceptable')

  async function receive(data: Buffer<ArrayBuffer>): Promise<void> {
    // Hundreds of small ones come at once. The other connections have their turn in between.
    sinceTurn = (sinceTurn + 1) % messagesPerTurn
    if (sinceTurn === 0) await new Promise((resolve) => setImmediate(resolve))
    const gauge = await gauged(data)
    if (gauge === null) return end(tooBig, tooMuchStructure)
    // Before the bytes go to another thread.
    const inexact = gauge.hasInexact() ? findInexact(data, isOfVariables) : null
    let message: Message
    try {
      message = validateMessage(await json.parse(data))
    } catch {
      return end(CloseCode.BadRequest, 'Invalid message received')
    }
    const broken = ended ? undefined : take(message, inexact)
    if (broken) end(...broken)
  }

  /** Does what a message asks for; gives code and reason if it breaks the protocol. */
  function take(message: Message, inexact: Inexact | null): [code: number, reason: string] | undefined {
    switch (message.type) {
      case MessageType.ConnectionInit:
        if (greeted) return [CloseCode.TooManyInitialisationRequests, 'Too many initialisation requests']
        greeted = true
        void greet(message.payload)
        return undefined
      case MessageType.Ping:
        void say({ type: MessageType.Pong, ...(message.payload && { payload: message.payload }) })
        return undefined
      case MessageType.Pong:
        return undefined
      case MessageType.Subscribe:
        if (caller === undefined) return [CloseCode.Unauthorized, 'Unauthorized']
        if (running.has(message.id))
          return [CloseCode.SubscriberAlreadyExists, `Subscriber for ${message.id} already exists`]
        if (running.size >= limits.socketOperations) refuseOne(message.id)
        else void operate(message, caller, inexact)
        return undefined
      case MessageType.Complete:
        running.get(message.id)?.abort()
        running.delete(message.id)
        return undefined
      default:
        return [CloseCode.BadRequest, 'Invalid message received']
    }
  }

  /** One operation too many costs next to nothing, as there may be ten thousand of them: the error with its stack is made once. */
  let tooMany: object[] | undefined
  function refuseOne(id: string): void {
    parts.metrics.rateLimited.inc({ why: 'socket' })
    tooMany ??= [outward(rateLimited(`at most ${limits.socketOperations} operations on one socket`))]
    void say({ id, type: MessageType.Error, payload: tooMany })
  }

  async function greet(params: Record<string, unknown> | undefined): Promise<void> {
    const found = await gate.callerOf(tokenOfParams(params), randomUUID())
    if (ended) return
    if (isRefused(found)) {
      const code = found.code === 'UNAVAILABLE' ? tryAgainLater : CloseCode.Forbidden
      return end(code, `${found.code}: ${found.message}`)
    }
    if (!parts.connections.belongs(socket, found.tenant))
      return end(tryAgainLater, `RATE_LIMITED: ${tenantText(limits)}`)
    caller = found
    allow()
    newcomers.known(socket)
    await say({ type: MessageType.ConnectionAck })
    if (ended) return
    // A socket whose token counts no more is a stranger's again, with as long to ask for something as one has to say hello.
    const forget = found.whenEnded(() => {
      const late = setTimeout(() => void closeWhenQuiet(), bounds.initMs)
      late.unref()
      client.once('close', () => clearTimeout(late))
    })
    client.once('close', forget)
  }

  /**
   * Carries out one operation. Each has a signal of its own: an id that is used again after `complete` is another operation, and what still comes of the one
   * before it goes nowhere.
   */
  async function operate({ id, payload }: SubscribeMessage, by: Caller, inexact: Inexact | null): Promise<void> {
    const gone = new AbortController()
    running.set(id, gone)
    const operation: Operation = {
      requestId: randomUUID(),
      lastEventId: null,
      position: { seq: null },
      caller: by,
      taking,
      gone: gone.signal,
    }
    const tell = (type: MessageType, content?: unknown) =>
      say({ id, type, ...(content !== undefined && { payload: content }) })
    try {
      if (by.hasEnded()) {
        void closeWhenQuiet()
        await tell(MessageType.Error, [refusal('UNAUTHENTICATED', endedMessage)])
        return
      }
      if (inexact !== null) throw refusal('BAD_USER_INPUT', inexactText({ ...inexact, path: inexact.path.slice(1) }))
      const result = await carriedOut(graphql, operation, payload)
      if (gone.signal.aborted) {
        if (isAsyncIterable(result)) await result[Symbol.asyncIterator]().return?.()
      } else if (Array.isArray(result)) await tell(MessageType.Error, result.map(outward))
      else {
        if (isAsyncIterable(result))
          await tellEach(result as AsyncIterable<ExecutionResult>, gone.signal, (item) =>
            tell(MessageType.Next, outgoing(item)),
          )
        else await tell(MessageType.Next, outgoing(result as ExecutionResult))
        if (!gone.signal.aborted) await tell(MessageType.Complete)
      }
    } catch (thrown) {
      const error = presentable(thrown, log, operation.requestId)
      if (!gone.signal.aborted) await tell(MessageType.Error, [outward(error)])
    } finally {
      if (running.get(id) === gone) running.delete(id)
      gone.abort()
    }
  }

  /** So that a client comes back with a new token; what runs gets its answer first, the refusal of what was asked last too. */
  async function closeWhenQuiet(): Promise<void> {
    if (closing) return
    closing = true
    const until = performance.now() + quietMs
    do await new Promise((resolve) => setTimeout(resolve, 10))
    while (!ended && connection.busy() && performance.now() < until)
    end(CloseCode.Forbidden, `UNAUTHENTICATED: ${endedMessage}`)
  }

  return connection
}

const sliceBytes = 1_000_000

const isOfVariables = ([payload, variables]: Inexact['path']) => payload === 'payload' && variables === 'variables'

/** Its measure; null if there is more than little in it besides long texts. Looks at a long message slice by slice, so that others get their turn. */
async function gauged(data: Uint8Array): Promise<Gauge | null> {
  const gauge = createGauge()
  for (let at = 0; at < data.length; at += sliceBytes) {
    if (at > 0) await new Promise((resolve) => setImmediate(resolve))
    if (!gauge.take(data.subarray(at, at + sliceBytes))) return null
  }
  return gauge
}

/** The result of an operation, or why there is none. */
async function carriedOut(
  graphql: Graphql,
  operation: Operation,
  params: SubscribeMessage['payload'],
): Promise<AsyncIterable<unknown> | ExecutionResult | readonly GraphQLError[]> {
  const enveloped = graphql.getEnveloped({ ...operation, params })
  const document = enveloped.parse(params.query)
  const errors = enveloped.validate(enveloped.schema, document) as readonly GraphQLError[]
  if (errors.length > 0) return errors
  const found = getOperationAST(document, params.operationName)
  if (!found)
    throw new GraphQLError('Could not determine what operation to execute.', {
      extensions: { code: 'OPERATION_RESOLUTION_FAILURE' },
    })
  const args = {
    schema: enveloped.schema,
    document,
    operationName: params.operationName ?? null,
    variableValues: params.variables ?? null,
    contextValue: await enveloped.contextFactory(),
  }
  return found.operation === 'subscription' ? enveloped.subscribe(args) : enveloped.execute(args)
}

/** Hands each item on, one after the other has been taken, until there is none or the operation is over. */
async function tellEach(
  items: AsyncIterable<ExecutionResult>,
  gone: AbortSignal,
  tell: (item: ExecutionResult) => Promise<void>,
): Promise<void> {
  const iterator = items[Symbol.asyncIterator]()
  const stop = () => void iterator.return?.()
  gone.addEventListener('abort', stop, { once: true })
  for (let item = await iterator.next(); !item.done && !gone.aborted; item = await iterator.next())
    await tell(item.value)
}

/** As it goes out: without what concerns HTTP alone. */
function outward(error: GraphQLError): object {
  const { extensions, ...rest } = error.toJSON()
  if (extensions === undefined) return rest
  const { http: _, ...shown } = extensions
  return { ...rest, extensions: shown }
}

const outgoing = (result: ExecutionResult) =>
  result.errors ? { ...result, errors: result.errors.map((error) => outward(error as GraphQLError)) } : result
