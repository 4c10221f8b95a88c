// Which sessions of a tenant move, for lists and dashboards: live only, one item per session and change, bursts merged. Every change of
// a session's status, title or watermark that is somebody's doing is an event, so the seq tells whether there is something new. What
// mere time changes (a lease that runs out) has no item until somebody acts on it.

import { setMaxListeners } from 'node:events'
import { type Moved, type Watching, watchActivity } from './activity-hub.ts'
import { UnavailableError } from './errors.ts'
import { createPull } from './pull.ts'
import type { StreamSources } from './session-stream.ts'

export interface ActivityStreamOptions {
  tenant: string
  signal?: AbortSignal
  /** Calls what it is given when the reader's token counts no more; returns how to stop waiting. The stream then fails with the error. */
  whenUnauthenticated?: (then: (error: Error) => void) => () => void
}

/** Sessions whose change waits for the reader. One that is further behind is ended: it has to read its list again anyway. */
const behindMax = 10_000

/**
 * `{ sessionId }` after each change of a session of the tenant, at the latest one poll interval after its commit; several changes that
 * wait at the same time are one item, and the item comes after the last of them. Whoever resolves it reads the committed state. Pulled,
 * with memory for at most 10 000 sessions: a reader further behind gets an UnavailableError and comes back. Ends when the process stops.
 */
export function activityStream(
  sources: StreamSources,
  { tenant, signal, whenUnauthenticated }: ActivityStreamOptions,
): AsyncIterableIterator<Moved> {
  const { stopping, metrics } = sources
  /** In the order in which the reader gets them. */
  const moved = new Map<string, Moved>()
  const stops: (() => void)[] = []
  let watching: Watching | null = null

  const pull = createPull<Moved>(
    {
      async take() {
        await watching?.catchUp()
        const first = moved.values().next()
        return first.done ? null : first.value
      },
      given(session) {
        // A change that came since it was taken is another item.
        if (moved.get(session.sessionId) === session) moved.delete(session.sessionId)
      },
      rested(readerWaits) {
        if (readerWaits) watching?.ask()
      },
      release() {
        watching?.stop()
        for (const stop of stops) stop()
        moved.clear()
      },
    },
    metrics,
  )

  const end = () => void pull.iterator.return!()
  for (const aborting of signal === undefined ? [stopping] : [stopping, signal]) {
    setMaxListeners(0, aborting)
    aborting.addEventListener('abort', end)
    stops.push(() => aborting.removeEventListener('abort', end))
  }
  watching = watchActivity(sources, tenant, {
    moved(session) {
      // What waits and has moved once more is the same item, and comes after the last change.
      moved.delete(session.sessionId)
      moved.set(session.sessionId, session)
      if (moved.size > behindMax) pull.failWith(new UnavailableError('this activity stream is too far behind'))
      else pull.wake()
    },
    failed: (error) => pull.failWith(error),
  })
  if (stopping.aborted || signal?.aborted) end()
  else if (whenUnauthenticated) stops.push(whenUnauthenticated((error) => pull.failWith(error)))
  return pull.iterator
}
