import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { isRefused } from '../access/caller.ts'
import { createGate, type Gate } from '../access/gate.ts'
import { asError } from '../errors.ts'
import type { Core } from '../runner/core.ts'
import { refuseConnection, refuseRequest, tokenOfRequest } from './authenticate.ts'
import { type Bounds, bounds as usualBounds } from './bounds.ts'
import { addressText, type Connections, createConnections, tenantText } from './connections.ts'
import { type ConsoleFiles, loadConsole, sendFile } from './console.ts'
import { createGraphql, type Graphql, graphqlPath, pingMs } from './graphql.ts'
import { ownMigrations, whyNotReady } from './health.ts'
import { createHostCheck, type HostCheck, strangeHostText } from './host.ts'
import { HttpRequest } from './http-request.ts'
import { createJsonParser } from './json.ts'
import { createNewcomers, type Newcomers } from './newcomers.ts'
import { operationOf, requestIdOf, requestIds, whenAnswered } from './operation.ts'
import { isForeign } from './origin.ts'
import { explorerFile, startPage } from './pages.ts'
import { endWhenUnread } from './unread.ts'
import { serveWebSocket } from './websocket.ts'

/**
 * Answered under any name: they hold no data and do nothing, some checkers send no name, and one that is refused has a good process
 * restarted.
 */
const probes = new Set(['/healthz', '/readyz'])

/** What clients talk to. */
export interface HttpServer {
  /** With the port that was given, also when 0 was asked for. */
  url: string
  /** Refuses new connections, ends the open ones, at the latest after `deadlineMs`. */
  close(deadlineMs: number): Promise<void>
}

/**
 * Serves every path of design section 12, to whom the authentication of the core's configuration lets in. Rejects as `listen` does,
 * EADDRINUSE included.
 */
export async function serveHttp(
  core: Core,
  options: {
    host: string
    port: number
    pingMs?: number
    consoleAt?: readonly string[]
    /** For tests: in place of the usual ones. */
    bounds?: Partial<Bounds>
  },
): Promise<HttpServer> {
  const bounds = { ...usualBounds, ...options.bounds }
  const json = createJsonParser()
  ownMigrations()
  const graphql = createGraphql(core, json, { ...options, bodiesBytes: bounds.bodiesBytes })
  const gate = createGate(core.config.auth, {
    clock: core.clock,
    log: core.log,
    refusals: core.metrics.unauthenticated,
  })
  const isStrangeHost = createHostCheck({
    guarded: gate.guarded,
    allowed: core.config.allowedHosts,
    log: core.log,
    clock: core.clock,
  })
  const files = loadConsole(options.consoleAt)
  // Whoever asks for one is told; nobody may ever ask.
  files.catch(() => {})
  const { log, metrics, clock, config } = core
  const newcomers = createNewcomers({ most: config.maxUnauthenticated, log, clock, metrics })
  const connections = createConnections({ config, metrics, log, clock })
  const deadlines = {
    headersTimeout: bounds.headersMs,
    requestTimeout: bounds.requestMs,
    connectionsCheckingInterval: bounds.lookMs,
  }
  const pings = options.pingMs ?? pingMs
  // The time that a stream's reader has to find its last item is in it.
  const unreadMs = config.stallMs + 3 * pings
  const server = createServer({ ...deadlines, IncomingMessage: HttpRequest }, (request, response) => {
    endWhenUnread(response, unreadMs, core)
    answer(core, gate, { newcomers, connections }, isStrangeHost, graphql, files, request, response).catch(
      (thrown: unknown) => {
        core.log.error({ requestId: response.getHeader('x-request-id'), err: asError(thrown) }, 'request failed')
        if (!response.headersSent) plain(response, 500, 'internal error')
        else response.destroy()
      },
    )
  })
  server.on('connection', (socket) => {
    newcomers.add(socket)
    connections.opened(socket)
  })
  const sockets = serveWebSocket(server, isStrangeHost, {
    gate,
    graphql,
    json,
    log,
    metrics,
    newcomers,
    connections,
    limits: config,
    bounds,
    pingMs: pings,
    stallMs: config.stallMs,
    clock,
  })
  try {
    await listen(server, options)
  } catch (error) {
    gate.close()
    throw error
  }
  return {
    url: urlOf(server.address() as AddressInfo),
    async close(deadlineMs) {
      const closed = new Promise((resolve) => server.close(resolve))
      await sockets.close(deadlineMs)
      server.closeIdleConnections()
      const deadline = setTimeout(() => server.closeAllConnections(), deadlineMs)
      await closed
      clearTimeout(deadline)
      gate.close()
      await graphql.dispose()
      await json.close()
    },
  }
}

async function answer(
  core: Core,
  gate: Gate,
  { newcomers, connections }: { newcomers: Newcomers; connections: Connections },
  isStrangeHost: HostCheck,
  graphql: Graphql,
  files: Promise<ConsoleFiles | undefined>,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const requestId = requestIdOf(request)
  response.setHeader('x-request-id', requestId)
  const pathname = (request.url ?? '/').split('?')[0]!
  // A checker behind the same address as a crowd must not have a good process restarted.
  if (!probes.has(pathname) && !connections.admits(request, (then) => whenAnswered(request, response, then)))
    return refuseConnection(request, response, addressText(core.config))
  if (!probes.has(pathname) && isStrangeHost(request.headers.host)) return plain(response, 403, strangeHostText)
  if (pathname === graphqlPath) {
    if (isForeign(request)) return plain(response, 403, 'requests from pages of other origins are refused')
    const caller = await gate.callerOf(tokenOfRequest(request), requestId)
    if (isRefused(caller)) return refuseRequest(request, response, caller)
    newcomers.known(request.socket)
    if (!connections.belongs(request.socket, caller.tenant))
      return refuseConnection(request, response, tenantText(core.config))
    await requestIds.run(requestId, () => graphql(request, response, operationOf(request, response, requestId, caller)))
    return
  }
  if (request.method !== 'GET' && request.method !== 'HEAD') return plain(response, 405, 'only GET here')
  switch (pathname) {
    case '/graphiql':
      return sendFile(request, response, explorerFile(gate.guarded))
    case '/healthz':
      return plain(response, 200, 'ok')
    case '/readyz': {
      const reason = await whyNotReady(core)
      return plain(response, reason === null ? 200 : 503, reason ?? 'ready')
    }
    case '/metrics': {
      // Figures of all tenants together: for operators, not for whoever reaches the address.
      const caller = await gate.callerOf(tokenOfRequest(request), requestId)
      if (isRefused(caller)) return refuseRequest(request, response, caller)
      return send(response, 200, core.metrics.contentType, await core.metrics.text())
    }
    default: {
      const file = (await files)?.get(pathname)
      if (file) return sendFile(request, response, file)
      return pathname === '/' ? page(response, startPage) : plain(response, 404, 'nothing here')
    }
  }
}

const page = (response: ServerResponse, html: string) => send(response, 200, 'text/html; charset=utf-8', html)
const plain = (response: ServerResponse, status: number, text: string) =>
  send(response, status, 'text/plain; charset=utf-8', `${text}\n`)

function send(response: ServerResponse, status: number, contentType: string, body: string): void {
  response.writeHead(status, {
    'content-type': contentType,
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
  })
  response.end(body)
}

function listen(server: Server, { host, port }: { host: string; port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host, port }, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

function urlOf({ address, family, port }: AddressInfo): string {
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}/`
}
