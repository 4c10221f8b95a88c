import type { AddressInfo } from 'node:net'
import { createServer, connect as dial, type Socket } from 'node:net'
import { eventually } from './eventually.ts'

type Way = 'up' | 'down'

/** A line before a server that passes on as many bytes as it is allowed to, in each direction: all, until it is metered. */
export async function meteredLink(url: string) {
  const target = new URL(url)
  const sockets = new Set<Socket>()
  const left: Record<Way, number> = { up: Number.POSITIVE_INFINITY, down: Number.POSITIVE_INFINITY }
  const passed: Record<Way, number> = { up: 0, down: 0 }
  const from: Record<Way, Set<Socket>> = { up: new Set(), down: new Set() }
  const pass = (near: Socket, far: Socket, way: Way) => {
    sockets.add(near)
    from[way].add(near)
    near.on('error', () => {})
    near.on('close', () => {
      sockets.delete(near)
      from[way].delete(near)
      far.destroy()
    })
    near.on('data', (piece: Buffer) => {
      passed[way] += piece.length
      left[way] -= piece.length
      far.write(piece)
      if (left[way] <= 0) near.pause()
    })
  }
  const server = createServer((near) => {
    const far = dial(Number(target.port), target.hostname)
    pass(near, far, 'up')
    pass(far, near, 'down')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const through = new URL(url)
  through.port = String((server.address() as AddressInfo).port)
  return {
    url: through.href,
    passed,
    open: () => sockets.size / 2,
    /** From now on so many bytes and no more; resolves when they have passed. */
    async allow(way: Way, bytes: number) {
      const until = passed[way] + bytes
      left[way] = bytes
      for (const socket of from[way]) socket.resume()
      await eventually(`${bytes} bytes ${way}`, () => passed[way] >= until)
    },
    /** From now on everything. */
    free(way: Way) {
      left[way] = Number.POSITIVE_INFINITY
      for (const socket of from[way]) socket.resume()
    },
    close() {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}
