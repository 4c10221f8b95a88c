import type { ServerResponse } from 'node:http'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics.ts'

/**
 * Ends the connection of an answer of which the peer has taken no byte for `ms`, so that an answer that nobody reads is not held for ever. Node's own
 * clock of a socket starts again with every byte that moves, within a long write too. An answer that is still being made, or a silent stream, stays.
 */
export function endWhenUnread(
  response: ServerResponse,
  ms: number,
  { log, metrics }: { log: Log; metrics: Pick<Metrics, 'endedConnections'> },
): void {
  // Of the response, not of the server: a listener there would keep idle connections beyond Node's own time for them.
  response.setTimeout(ms, () => {
    const { socket } = response
    if (socket === null) return
    if (socket.writableLength === 0) {
      socket.setTimeout(ms)
      return
    }
    metrics.endedConnections.inc({ why: 'unread' })
    log.debug({ why: 'it takes nothing of what was sent' }, 'a connection was ended')
    socket.destroy()
  })
}
