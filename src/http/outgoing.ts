// What goes to the peer of one WebSocket. A peer that does not read could make the server hold any number of answers by asking on, for pongs
// too: as long as much waits for it, nothing more is read from it. Who then takes nothing is ended (paced-socket.ts).

import type { WebSocket } from 'ws'
import type { Bounds } from './bounds.ts'

export interface Outgoing {
  /** Resolves when the kernel has taken the message, or the socket has gone. */
  send(text: string): Promise<void>
  /** Reads nothing from the peer until what it returns is called. */
  holdReading(): () => void
}

export function createOutgoing(client: WebSocket, bounds: Pick<Bounds, 'unsentBytes' | 'unsentMessages'>): Outgoing {
  const unsent = { messages: 0, bytes: 0 }
  let holds = 0
  let full = false

  function hold(): void {
    holds += 1
    client.pause()
  }
  function release(): void {
    holds -= 1
    if (holds === 0) client.resume()
  }

  function look(): void {
    const isFull = unsent.bytes > bounds.unsentBytes || unsent.messages > bounds.unsentMessages
    if (isFull === full) return
    full = isFull
    if (full) hold()
    else release()
  }

  /** Counts what `write` sends until the kernel has it. */
  const counted = (bytes: number, write: (taken: () => void) => void) =>
    new Promise<void>((resolve) => {
      if (client.readyState !== client.OPEN) return resolve()
      unsent.messages += 1
      unsent.bytes += bytes
      write(() => {
        unsent.messages -= 1
        unsent.bytes -= bytes
        look()
        resolve()
      })
      look()
    })

  client.on('ping', (data) => void counted(data.length, (taken) => client.pong(data, false, taken)))

  return {
    send: (text) => counted(text.length, (taken) => client.send(text, taken)),
    holdReading() {
      hold()
      let held = true
      return () => {
        if (held) release()
        held = false
      }
    },
  }
}
