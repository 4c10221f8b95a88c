import type { AddressInfo } from 'node:net'
import { createServer, connect as dial, type Socket } from 'node:net'

/** A proxy as they stand before servers: it closes a connection on which nothing has come from the server for `idleMs`. */
export async function idleProxy(url: string, idleMs: number): Promise<{ url: string; cuts(): number; close(): void }> {
  const target = new URL(url)
  const sockets = new Set<Socket>()
  let cuts = 0
  const server = createServer((near) => {
    const far = dial(Number(target.port), target.hostname)
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
    }
    // What comes from the client, pongs included, is nothing that it would notice.
    let timer = setTimeout(cut, idleMs)
    function cut() {
      cuts++
      near.destroy()
      far.destroy()
    }
    far.on('data', () => {
      clearTimeout(timer)
      timer = setTimeout(cut, idleMs)
    })
    far.on('close', () => clearTimeout(timer))
    near.pipe(far)
    far.pipe(near)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const through = new URL(url)
  through.port = String((server.address() as AddressInfo).port)
  return {
    url: through.href,
    cuts: () => cuts,
    close() {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}
