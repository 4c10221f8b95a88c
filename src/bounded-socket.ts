// Wires to the database that do not wait for ever. A network that is gone without a word closes no connection: who has asked something
// would wait for the system's retransmissions, a quarter of an hour, and whoever has nothing to send for its keepalive, two hours.

import { Socket } from 'node:net'

/** With `keepAlive`, when a silent wire is first asked by the system whether it is still there. */
export const keepAliveInitialDelayMillis = 10_000

/**
 * For the `stream` option of the driver: sockets that break with ETIMEDOUT when nothing has come or gone on them for `silentMs`. What was
 * asked on it then has an unknown outcome, as with any other connection that breaks.
 */
export const boundedSockets = (silentMs: number) => (): Socket => {
  const socket = new Socket()
  const bound = () =>
    socket.setTimeout(silentMs, () => {
      const seen = socket.bytesRead
      // It may be this process that stood still: what has come meanwhile is read before this. The socket tells of a timeout once only, so
      // that the next silence has to be waited for anew.
      setImmediate(() => {
        if (socket.bytesRead !== seen) return void bound()
        const error = new Error(`the database has said nothing for ${silentMs} ms`)
        socket.destroy(Object.assign(error, { code: 'ETIMEDOUT' }))
      })
    })
  return bound()
}
