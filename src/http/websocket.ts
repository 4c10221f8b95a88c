import type { IncomingMessage, Server } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { handleProtocols } from 'graphql-ws'
import { WebSocketServer } from 'ws'
import { bodyBytesMax } from './body.ts'
import { type Connection, type ConnectionParts, serveConnection } from './connection.ts'
import { addressText } from './connections.ts'
import { graphqlPath } from './graphql.ts'
import { type HostCheck, strangeHostText } from './host.ts'
import { isForeign } from './origin.ts'

// RFC 6455.
const goingAway = 1001

/**
 * Serves graphql-transport-ws on the GraphQL path of an HTTP server, to callers whose token comes with connection_init. `close` ends all sockets, at the latest after
 * `deadlineMs`.
 */
export function serveWebSocket(
  server: Server,
  isStrangeHost: HostCheck,
  parts: ConnectionParts,
): { close(deadlineMs: number): Promise<void> } {
  const sockets = new WebSocketServer({ noServer: true, maxPayload: bodyBytesMax, autoPong: false, handleProtocols })
  const connected = new Set<Connection>()

  const upgrade = (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    const pathname = (request.url ?? '').split('?')[0]
    if (pathname !== graphqlPath) return refuse(socket, '404 Not Found')
    if (isStrangeHost(request.headers.host)) return refuse(socket, '403 Forbidden', strangeHostText)
    if (isForeign(request)) return refuse(socket, '403 Forbidden')
    if (!parts.connections.admits(request, (then) => socket.once('close', then)))
      return refuse(socket, '429 Too Many Requests', addressText(parts.limits), 'retry-after: 1\r\n')
    parts.newcomers.add(socket)
    sockets.handleUpgrade(request, socket, head, (client) => {
      // A frame over the limit or broken framing closes this socket by itself.
      client.on('error', (error) => parts.log.debug({ err: error }, 'websocket error'))
      const connection = serveConnection(client, socket as Socket, parts)
      connected.add(connection)
      client.once('close', () => connected.delete(connection))
    })
  }
  server.on('upgrade', upgrade)

  return {
    async close(deadlineMs) {
      server.off('upgrade', upgrade)
      const until = performance.now() + deadlineMs
      // The streams are ending; their readers are to get the last item and the end of the operation before the socket goes.
      const busy = () => [...connected].some((connection) => connection.busy())
      while (busy() && performance.now() < until) await new Promise((resolve) => setTimeout(resolve, 10))
      for (const client of sockets.clients) client.close(goingAway, 'Going away')
      // A peer that does not answer the closing handshake would keep us here.
      const deadline = setTimeout(() => {
        for (const client of sockets.clients) client.terminate()
      }, until - performance.now())
      await new Promise((resolve) => sockets.close(resolve))
      clearTimeout(deadline)
    },
  }
}

/** `text` in plain ASCII. */
function refuse(socket: Duplex, status: string, text = '', headers = ''): void {
  socket.on('error', () => {})
  const type = text && 'content-type: text/plain; charset=utf-8\r\n'
  // The peer's own end is not waited for: it may never come.
  socket.once('finish', () => socket.destroy())
  socket.end(
    `HTTP/1.1 ${status}\r\nconnection: close\r\n${headers}${type}content-length: ${text.length}\r\n\r\n${text}`,
  )
}
