import { SessionActivityDocument, type SessionSummaryFragment } from '../../../src/client/generated/graphql.ts'
import { apollo, codeOf } from './apollo.ts'
import { connection, retrying } from './connection.ts'
import { backOffMs, pause } from './retry.ts'

type Listener = (row: SessionSummaryFragment) => void
const listeners = new Set<Listener>()
let running = false

/**
 * Tells of every session whose status, title or seq changes, through one subscription for the whole page. As there always is one, it is
 * also what brings the connection back, and what knows when that is tried next.
 */
export function onActivity(listener: Listener): () => void {
  listeners.add(listener)
  if (!running) void run()
  return () => void listeners.delete(listener)
}

async function run(): Promise<void> {
  running = true
  for (let attempt = 0; listeners.size > 0; attempt++) {
    const begun = Date.now()
    const ended = await once()
    if (ended === 'UNAUTHENTICATED' || connection.get().state === 'signedOut') break
    // One that lasted was no failed try.
    if (Date.now() - begun > 5000) attempt = 0
    const ms = backOffMs(attempt, 10_000)
    retrying(attempt, Date.now() + ms)
    await pause(ms)
    retrying(attempt, null)
  }
  running = false
}

/** One subscription until it ends; the code of the error that ended it, if it had one. */
function once(): Promise<string | undefined> {
  return new Promise((resolve) => {
    apollo.subscribe({ query: SessionActivityDocument, fetchPolicy: 'no-cache' }).subscribe({
      next({ data, error }) {
        if (error) return resolve(codeOf(error))
        if (data) for (const listener of [...listeners]) listener(data.sessionActivity)
      },
      error: (error) => resolve(codeOf(error)),
      complete: () => resolve(undefined),
    })
  })
}
