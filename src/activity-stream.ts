// Which sessions of a tenant move, for lists and dashboards: live only, one item per session and change, bursts merged. Every change of
// a session's status, title or watermark that is somebody's doing is an event, so the seq tells whether there is something new. What
// mere time changes (a lease that runs out) has no item until somebody acts on it.

import { setMaxListeners } from 'node:events'
import { watchActivity } from './activity-poll.ts'
import { onBehalfOf } from './behalf.ts'
import { isTransient } from './db.ts'
import { OverloadedError, UnavailableError } from './errors.ts'
import { createPull, realTimers } from './pull.ts'
import type { StreamSources } from './session-stream.ts'

export interface ActivityStreamOptions {
  tenant: string
  signal?: AbortSignal
  /** Calls what it is given when the reader's token counts no more; returns how to stop waiting. The stream then fails with the error. */
  whenUnauthenticated?: (then: (error: Error) => void) => () => void
}

/** Rung sessions that are looked at in one statement. */
const batchMax = 500
/** Sessions whose change waits for the reader. One that is further behind is ended: it has to read its list again anyway. */
const behindMax = 10_000
/** Seqs remembered in order not to tell the same twice; forgetting one costs a repeat at most. */
const toldMax = 10_000
const retryMs = 500

/**
 * `{ sessionId }` after each change of a session of the tenant, at the latest one poll interval after its commit; several changes that
 * wait at the same time are one item, and the item comes after the last of them. Whoever resolves it reads the committed state. Pulled,
 * with memory for at most 10 000 sessions: a reader further behind gets an UnavailableError and comes back. Ends when the process stops.
 */
export function activityStream(
  sources: StreamSources,
  { tenant, signal, whenUnauthenticated }: ActivityStreamOptions,
): AsyncIterableIterator<{ sessionId: string }> {
  const { db, doorbell, stopping, metrics, clock = realTimers } = sources
  /** Rung, whoever they belong to. */
  const rung = new Set<string>()
  /** Moved and of this tenant, in the order in which the reader gets them. */
  const moved = new Set<string>()
  const told = new Map<string, number>()
  const stops: (() => void)[] = []
  let cancelRetry: (() => void) | null = null
  let released = false

  function note(id: string, seq: number) {
    if (told.get(id) === seq) return
    told.delete(id)
    told.set(id, seq)
    if (told.size > toldMax) told.delete(told.keys().next().value!)
    moved.add(id)
  }

  /** Finds out which rung sessions are the tenant's and have moved: one statement. */
  async function sift(): Promise<void> {
    if (cancelRetry !== null) return
    const ids = [...rung].slice(0, batchMax)
    // Taken out before the read: what rings while it runs is looked at again.
    for (const id of ids) rung.delete(id)
    try {
      const rows = await onBehalfOf(
        tenant,
        () => db.$queryRaw<{ id: string; seq: number }[]>`
          SELECT id, seq FROM "Session" WHERE id = ANY (${ids}) AND tenant = ${tenant}`,
      )
      for (const { id, seq } of rows) note(id, seq)
    } catch (thrown) {
      if (!isTransient(thrown) && !(thrown instanceof OverloadedError)) throw thrown
      for (const id of ids) rung.add(id)
      if (!released)
        cancelRetry = clock.setTimeout(() => {
          cancelRetry = null
          pull.wake()
        }, retryMs)
    }
    if (moved.size > behindMax || rung.size > 10 * behindMax)
      throw new UnavailableError('this activity stream is too far behind')
  }

  const pull = createPull<{ sessionId: string }>(
    {
      async take() {
        // Also while something is there to give: what has moved once more since then is the same item. Once, so that it is given at all.
        do {
          if (rung.size > 0) await sift()
        } while (moved.size === 0 && rung.size > 0 && cancelRetry === null && !released)
        const first = moved.values().next()
        return first.done ? null : { sessionId: first.value }
      },
      given: ({ sessionId }) => void moved.delete(sessionId),
      rested(readerWaits) {
        // Other tenants' sessions must not pile up behind a reader that is away.
        if (!readerWaits && rung.size >= batchMax && cancelRetry === null) void pull.exclusively(sift)
      },
      release() {
        released = true
        for (const stop of stops) stop()
        cancelRetry?.()
        rung.clear()
        moved.clear()
        told.clear()
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
  stops.push(
    doorbell.listenAll((ids) => {
      for (const id of ids) rung.add(id)
      pull.wake()
    }),
    watchActivity(sources, tenant, (sessions) => {
      for (const { id, seq } of sessions) note(id, seq)
      pull.wake()
    }),
  )
  if (stopping.aborted || signal?.aborted) end()
  else if (whenUnauthenticated) stops.push(whenUnauthenticated((error) => pull.failWith(error)))
  return pull.iterator
}
