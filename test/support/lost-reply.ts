// A wire to the database that loses a reply: the server has answered, so what was asked is done and committed, and the connection breaks
// before the answer reaches the client, or goes silent.
import type { AddressInfo } from 'node:net'
import { connect, createServer, type Socket } from 'node:net'

export interface LossyWire {
  url: string
  /**
   * The next statement or transaction that holds all of these words (in its text or its parameters), or the next `times` of them, are
   * carried out, and the reply after which the client would know is lost.
   */
  lose(words: string[], times?: number): void
  /** The same, but the connection stays open, and nothing ever comes over it again. */
  swallow(words: string[], times?: number): void
  /** Replies lost so far, each after the server had said that it is outside of any transaction again. */
  lost(): number
  close(): Promise<void>
}

/** ReadyForQuery ends each answer and tells the state that the server is in. */
const ready = Buffer.from([0x5a, 0, 0, 0, 5])
const stateOf = (tail: Buffer) =>
  tail.length === 6 && tail.subarray(0, 5).equals(ready) ? String.fromCharCode(tail[5]!) : null

export async function lossyWire(target: string): Promise<LossyWire> {
  const to = new URL(target)
  const sockets = new Set<Socket>()
  let words: string[] = []
  let left = 0
  let lost = 0
  let staysOpen = false

  const server = createServer((client) => {
    const database = connect(Number(to.port || 5432), to.hostname)
    /** What the client has sent since the server was idle last. */
    let asked = ''
    let isLosing = false
    let isSilent = false
    let held: Buffer[] = []
    let tail = Buffer.alloc(0)
    const end = () => {
      client.destroy()
      database.destroy()
    }
    for (const socket of [client, database]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', end)
      socket.on('close', () => {
        sockets.delete(socket)
        end()
      })
    }
    client.on('data', (data) => {
      if (isSilent) return
      asked += data.toString('latin1')
      if (!isLosing && left > 0 && words.every((word) => asked.includes(word))) {
        isLosing = true
        left--
      }
      database.write(data)
    })
    database.on('data', (data) => {
      if (isSilent) return
      tail = Buffer.concat([tail, data]).subarray(-6)
      const state = stateOf(tail)
      if (isLosing) {
        held.push(data)
        if (state === null) return
        if (state === 'I') {
          lost++
          isSilent = staysOpen
          return isSilent ? undefined : end()
        }
      }
      // Inside of a transaction the answers go through: the one to its COMMIT is meant.
      client.write(isLosing ? Buffer.concat(held) : data)
      held = []
      if (state === 'I') asked = ''
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = new URL(target)
  url.hostname = '127.0.0.1'
  url.port = String((server.address() as AddressInfo).port)
  return {
    url: url.href,
    lose(which, times = 1) {
      words = which
      left = times
      staysOpen = false
    },
    swallow(which, times = 1) {
      words = which
      left = times
      staysOpen = true
    },
    lost: () => lost,
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy()
        server.close(() => resolve())
      }),
  }
}
