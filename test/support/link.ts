import type { AddressInfo } from 'node:net'
import { createServer, connect as dial, type Socket } from 'node:net'

/** A wire to a database that a test can cut, as the network or the death of a process does. */
export interface Link {
  /** Connects through the wire. */
  url: string
  /** Breaks every connection, and refuses new ones until `mend`. */
  cut(): void
  mend(): void
  /** Connections that are open now. */
  open(): number
  close(): Promise<void>
}

/** A loopback proxy in front of the database that `url` names. */
export async function openLink(url: string): Promise<Link> {
  const target = new URL(url)
  const sockets = new Set<Socket>()
  let isCut = false
  const server = createServer((near) => {
    if (isCut) return void near.destroy()
    const far = dial(Number(target.port || 5432), target.hostname)
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
    }
    near.pipe(far)
    far.pipe(near)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const through = new URL(url)
  through.hostname = '127.0.0.1'
  through.port = String((server.address() as AddressInfo).port)
  const cut = () => {
    isCut = true
    for (const socket of sockets) socket.destroy()
  }
  return {
    url: through.href,
    cut,
    mend() {
      isCut = false
    },
    open: () => sockets.size / 2,
    close: () =>
      new Promise((resolve) => {
        cut()
        server.close(() => resolve())
      }),
  }
}
