import type { AddressInfo } from 'node:net'
import { connect, createServer, type Server, type Socket } from 'node:net'

/** A way to the database that a test can close, as a network that fails or a server that is down: refused, and cut where open. */
export interface DatabaseProxy {
  url: string
  /** Cuts every connection and refuses new ones; answers how many it cut. */
  down(): Promise<number>
  up(): Promise<void>
  /** Attempts to connect while it was down cannot be counted; connections that went through can. */
  connections: number
  close(): Promise<void>
}

export async function databaseProxy(target: string): Promise<DatabaseProxy> {
  const to = new URL(target)
  const sockets = new Set<Socket>()
  let server: Server | null = null
  let port = 0

  const listen = () =>
    new Promise<void>((resolve) => {
      server = createServer((inward) => {
        proxy.connections++
        const outward = connect(Number(to.port || 5432), to.hostname)
        for (const [from, other] of [
          [inward, outward],
          [outward, inward],
        ] as const) {
          sockets.add(from)
          from.on('error', () => other.destroy())
          from.on('close', () => {
            sockets.delete(from)
            other.destroy()
          })
          from.pipe(other)
        }
      })
      server.listen(port, '127.0.0.1', () => {
        port = (server!.address() as AddressInfo).port
        resolve()
      })
    })

  const proxy: DatabaseProxy = {
    url: '',
    connections: 0,
    async down() {
      const closing = server
      server = null
      const cut = sockets.size / 2
      const closed = new Promise<void>((resolve) => (closing === null ? resolve() : closing.close(() => resolve())))
      for (const socket of sockets) socket.destroy()
      await closed
      return cut
    },
    up: listen,
    async close() {
      await proxy.down()
    },
  }
  await listen()
  const url = new URL(target)
  url.hostname = '127.0.0.1'
  url.port = String(port)
  proxy.url = url.href
  return proxy
}
