// Connections of which nobody knows yet whose they are. They cost nothing but a place, which they hold for some seconds; so that nobody can
// take all places, the oldest makes room: whoever has a token is known in the time that its request takes, and comes to no harm.

import type { Duplex } from 'node:stream'
import type { WebSocket } from 'ws'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics.ts'
import type { Timers } from '../pull.ts'

const warnEveryMs = 60_000
/** How long a peer gets to take the reason for which it is ended. */
const lingerMs = 1000

// RFC 6455: a message that is too big to process.
const tooBig = 1009

export interface Newcomers {
  /** A connection begins, or begins anew as a WebSocket. */
  add(socket: Duplex): void
  /** Its caller is known. */
  known(socket: Duplex): void
}

/** Keeps at most `most` connections of unknown callers: one more ends the oldest. */
export function createNewcomers(options: {
  most: number
  log: Log
  clock: Pick<Timers, 'now'>
  metrics: Pick<Metrics, 'endedConnections'>
}): Newcomers {
  const { most, log, clock, metrics } = options
  const unknown = new Set<Duplex>()
  const watched = new WeakSet<Duplex>()
  let ended = 0
  let warnedAt = Number.NEGATIVE_INFINITY

  function makeRoom(): void {
    const [oldest] = unknown
    unknown.delete(oldest!)
    oldest!.destroy()
    metrics.endedConnections.inc({ why: 'crowd' })
    ended += 1
    // Once a minute: whoever makes the crowd could fill the disk otherwise.
    if (clock.now() - warnedAt < warnEveryMs) return
    warnedAt = clock.now()
    log.warn(
      { most, ended },
      'too many connections without a caller: the oldest are ended; see HOLDFAST_MAX_UNAUTHENTICATED',
    )
    ended = 0
  }

  return {
    add(socket) {
      unknown.add(socket)
      if (!watched.has(socket)) {
        watched.add(socket)
        socket.once('close', () => unknown.delete(socket))
      }
      if (unknown.size > most) makeRoom()
    },
    known: (socket) => void unknown.delete(socket),
  }
}

/**
 * Ends a WebSocket that has sent more than `most` bytes before `allow` was called: counted where they arrive, so that neither fragments nor
 * many small frames get past. What it still sends is thrown away unread.
 */
export function limitFirstBytes(
  socket: Duplex,
  client: WebSocket,
  { most, metrics }: { most: number; metrics: Pick<Metrics, 'endedConnections'> },
): { allow(): void } {
  let bytes = 0
  const count = (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes <= most) return
    metrics.endedConnections.inc({ why: 'first bytes' })
    client.close(tooBig, `more than ${most} bytes before connection_ack`)
    // The library reads no further; the goodbye would be lost if the peer's bytes were left lying in the kernel.
    socket.removeAllListeners('data')
    socket.resume()
    setTimeout(() => client.terminate(), lingerMs).unref()
  }
  // Before the library's own listener, which takes a chunk apart.
  socket.prependListener('data', count)
  return { allow: () => void socket.off('data', count) }
}
