// Somebody who watches a session over WebSocket and comes back after each break, with the last cursor it has.
import { setTimeout as sleep } from 'node:timers/promises'
import { createClient } from 'graphql-ws'
import { WebSocket } from 'ws'
import { follow } from './calls.ts'

export interface Watcher {
  /** Resolves once this event has been seen; false when that takes too long. */
  reached(seq: number): Promise<boolean>
  /** Events that came twice, out of order or with a gap before them. */
  faults: readonly string[]
  /** How often the stream broke off, or could not begin. */
  breaks(): number
  stop(): Promise<void>
}

const reachedMsMax = 60_000
// A server that takes the connection and dies says nothing any more.
const silentMsMax = 5_000

/** One that is given up while it connects says so when nobody listens any more. */
class Socket extends WebSocket {
  constructor(...from: ConstructorParameters<typeof WebSocket>) {
    super(...from)
    this.on('error', () => {})
  }
}

export function watch(urls: () => string[], sessionId: string, turn: number): Watcher {
  const faults: string[] = []
  let seen = 0
  let breaks = 0
  let stopped = false
  let leave = () => {}

  async function once(url: string): Promise<void> {
    const address = new URL('graphql', url)
    address.protocol = 'ws:'
    const client = createClient({
      url: address.href,
      webSocketImpl: Socket,
      retryAttempts: 0,
      connectionAckWaitTimeout: silentMsMax,
      keepAlive: silentMsMax,
    })
    leave = () => void client.terminate()
    try {
      const items = client.iterate<{ sessionEvents: { __typename: string; seq: number | null } }>({
        query: follow,
        variables: { s: sessionId, after: seen },
      })
      for await (const { data } of items) {
        const seq = data?.sessionEvents.seq
        if (seq == null) continue
        if (seq !== seen + 1) faults.push(`${sessionId}: event ${seq} came after ${seen}`)
        seen = seq
      }
    } finally {
      await client.dispose()
    }
  }

  const run = (async () => {
    for (let n = turn; !stopped; n++) {
      const all = urls()
      const url = all[n % all.length]
      try {
        if (url !== undefined) await once(url)
      } catch {
        // Broken off, or refused because the database is away: it comes back.
        breaks++
      }
      if (!stopped) await sleep(50)
    }
  })()

  return {
    faults,
    breaks: () => breaks,
    async reached(seq) {
      for (const deadline = Date.now() + reachedMsMax; seen < seq; ) {
        if (Date.now() > deadline) return false
        await sleep(20)
      }
      return true
    },
    async stop() {
      stopped = true
      leave()
      await run
    },
  }
}
