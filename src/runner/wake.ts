// The coordinator: which sessions this process runs, at most `maxDrains` at once, first come first served. A wake is a hint:
// it starts a look at the durable rows, and one that lands while the session runs makes it look once more afterwards.
//
//            wake             place free           drain ends
//   absent ───────► queued ──────────────► running ───────────► absent
//                                            │ wake: looks again │
//                                            └──────► queued ◄───┘

import type { Gauge, Histogram } from 'prom-client'
import { asError } from '../errors.ts'
import type { Log } from '../log.ts'
import { here, type Link } from '../tracing.ts'

export interface Coordinator {
  /** Never throws. */
  wake(sessionId: string): void
  /** Is another session waiting for a place? A busy one then yields at its next safe phase (DRAIN-07). */
  othersWait(): boolean
  /** Takes no more work. Resolves when all drains have ended, or after `graceMs`; says whether all have. */
  stop(graceMs: number): Promise<boolean>
  /** Sessions queued and running: nothing is left behind (DRAIN-08). */
  size(): { queued: number; running: number }
  /** Resolves when nothing is queued or running. */
  idle(): Promise<void>
}

export interface CoordinatorOptions {
  maxDrains: number
  /** Runs one busy period; `again`: look once more. `armedBy`: the spans that woke it, for its own span. */
  drain: (sessionId: string, armedBy: readonly Link[]) => Promise<{ again: boolean }>
  log: Log
  metrics: { drainsInProgress: Gauge; drainQueueSeconds: Histogram }
}

/** Of many wakes the first few are told. */
const armedByMax = 8

function arm(armedBy: Link[]): void {
  if (armedBy.length < armedByMax) armedBy.push(...here())
}

export function createCoordinator({ maxDrains, drain, log, metrics }: CoordinatorOptions): Coordinator {
  const queued = new Map<string, { since: number; armedBy: Link[] }>()
  const running = new Map<string, { again: boolean; armedBy: Link[] }>()
  let stopped = false
  let waiters: (() => void)[] = []

  function pump() {
    while (!stopped && running.size < maxDrains && queued.size > 0) {
      const [sessionId, { since, armedBy }] = queued.entries().next().value!
      queued.delete(sessionId)
      metrics.drainQueueSeconds.observe((performance.now() - since) / 1000)
      void run(sessionId, armedBy)
    }
    if (running.size === 0 && (stopped || queued.size === 0)) {
      const done = waiters
      waiters = []
      for (const resume of done) resume()
    }
  }

  async function run(sessionId: string, armedBy: readonly Link[]) {
    const entry = { again: false, armedBy: [] as Link[] }
    running.set(sessionId, entry)
    metrics.drainsInProgress.set(running.size)
    try {
      const { again } = await drain(sessionId, armedBy)
      if (again) entry.again = true
    } catch (thrown) {
      log.error({ err: asError(thrown), sessionId }, 'a drain ended unexpectedly')
    } finally {
      running.delete(sessionId)
      metrics.drainsInProgress.set(running.size)
      // To the end of the queue: others get their turn first.
      if (entry.again && !stopped) queued.set(sessionId, { since: performance.now(), armedBy: entry.armedBy })
      // Not from within: a thousand busy periods in a row must not nest (DRAIN-10).
      setImmediate(pump)
    }
  }

  const idle = () =>
    new Promise<void>((resolve) => {
      waiters.push(resolve)
      setImmediate(pump)
    })

  return {
    wake(sessionId) {
      if (stopped) return
      const entry = running.get(sessionId)
      if (entry !== undefined) {
        entry.again = true
        arm(entry.armedBy)
        return
      }
      const waiting = queued.get(sessionId) ?? { since: performance.now(), armedBy: [] }
      arm(waiting.armedBy)
      queued.set(sessionId, waiting)
      pump()
    },
    // One that only waits for its next look, with places free, takes nobody's.
    othersWait: () => queued.size > 0 && running.size >= maxDrains,
    async stop(graceMs) {
      stopped = true
      queued.clear()
      let timer: NodeJS.Timeout | undefined
      const grace = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, graceMs)
      })
      await Promise.race([idle(), grace])
      clearTimeout(timer)
      return running.size === 0
    },
    size: () => ({ queued: queued.size, running: running.size }),
    idle,
  }
}
