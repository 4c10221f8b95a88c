// A wire to the database on which connections go silent: nothing more passes in either direction, and neither end hears that the other is
// gone. So it is when a firewall forgets a connection, a cable is pulled or a machine stands still.
import type { AddressInfo } from 'node:net'
import { createServer, connect as dial, type Socket } from 'node:net'

export interface SilentWire {
  url: string
  /** Every open connection that has sent these words, ever, goes silent. Gives how many did. */
  silence(words: string): number
  /** The next connection that sends these words goes silent with them: they do not arrive any more. */
  silenceAt(words: string): void
  /** Connections that are silent. */
  silent(): number
  close(): Promise<void>
}

export async function silentWire(target: string): Promise<SilentWire> {
  const to = new URL(target)
  const pairs = new Set<{ said: string; isSilent: boolean }>()
  const sockets = new Set<Socket>()
  let next: string | null = null
  const server = createServer((near) => {
    const far = dial(Number(to.port || 5432), to.hostname)
    const pair = { said: '', isSilent: false }
    pairs.add(pair)
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.on('error', () => {})
    }
    near.on('data', (data) => {
      pair.said += data.toString('latin1')
      if (next !== null && pair.said.includes(next)) {
        next = null
        pair.isSilent = true
      }
      if (!pair.isSilent) far.write(data)
    })
    far.on('data', (data) => void (pair.isSilent || near.write(data)))
    near.on('close', () => void (pair.isSilent || far.destroy()))
    far.on('close', () => void (pair.isSilent || near.destroy()))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = new URL(target)
  url.hostname = '127.0.0.1'
  url.port = String((server.address() as AddressInfo).port)
  return {
    url: url.href,
    silence(words) {
      const meant = [...pairs].filter(({ said, isSilent }) => !isSilent && said.includes(words))
      for (const pair of meant) pair.isSilent = true
      return meant.length
    },
    silenceAt(words) {
      next = words
    },
    silent: () => [...pairs].filter(({ isSilent }) => isSilent).length,
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy()
        server.close(() => resolve())
      }),
  }
}
