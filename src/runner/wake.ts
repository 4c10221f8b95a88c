// The coordinator: which sessions this process runs, at most `maxDrains` at once, first come first served. A wake is a hint:
// it starts a look at the durable rows, and one that lands while the session runs makes it look once more afterwards.
//
//            wake             place free           drain ends
//   absent ───────► queued ──────────────► running ───────────► absent
//                                            │ wake: looks again │
//                                            └──────► queued ◄───┘
//
// A running session that only waits, in a back-off, steps aside: it gives its place up and queues for one again when its wait is over.

import type { Gauge, Histogram } from 'prom-client'
import { onOwnBehalf } from '../behalf.ts'
import { asError } from '../errors.ts'
import type { Log } from '../log.ts'
import { here, type Link } from '../tracing.ts'

export interface Coordinator {
  /** Never throws. */
  wake(sessionId: string): void
  /**
   * Lets others have the place of a running session while `wait` lasts, which never rejects. Resolves once it has a place again; at once,
   * though there may be none, when the signal is aborted or the coordinator stops: what is left to do then is short.
   */
  stepAside(sessionId: string, wait: Promise<void>, signal: AbortSignal): Promise<void>
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
/** So many times the places may sessions step aside: each keeps what its next request needs in memory. Beyond it they keep their places. */
const asideMax = 16

function arm(armedBy: Link[]): void {
  if (armedBy.length < armedByMax) armedBy.push(...here())
}

interface Queued {
  since: number
  armedBy: Link[]
  /** Of a session that runs and wants its place back. */
  resume?: () => void
}

interface Running {
  again: boolean
  armedBy: Link[]
  hasPlace: boolean
}

export function createCoordinator({ maxDrains, drain, log, metrics }: CoordinatorOptions): Coordinator {
  const queued = new Map<string, Queued>()
  const running = new Map<string, Running>()
  let taken = 0
  let stopped = false
  let waiters: (() => void)[] = []

  function setPlace(entry: Running, hasPlace: boolean) {
    if (entry.hasPlace !== hasPlace) taken += hasPlace ? 1 : -1
    entry.hasPlace = hasPlace
    metrics.drainsInProgress.set(taken)
  }

  function pump() {
    while (!stopped && taken < maxDrains && queued.size > 0) {
      const [sessionId, { since, armedBy, resume }] = queued.entries().next().value!
      queued.delete(sessionId)
      metrics.drainQueueSeconds.observe((performance.now() - since) / 1000)
      if (resume === undefined) void run(sessionId, armedBy)
      else resume()
    }
    if (running.size === 0 && (stopped || queued.size === 0)) {
      const done = waiters
      waiters = []
      for (const resume of done) resume()
    }
  }

  async function run(sessionId: string, armedBy: readonly Link[]) {
    const entry: Running = { again: false, armedBy: [], hasPlace: false }
    running.set(sessionId, entry)
    setPlace(entry, true)
    try {
      // Whoever woke it waits for nothing of it, and its tenant's turn is no matter of a lease.
      const { again } = await onOwnBehalf(() => drain(sessionId, armedBy))
      if (again) entry.again = true
    } catch (thrown) {
      log.error({ err: asError(thrown), sessionId }, 'a drain ended unexpectedly')
    } finally {
      running.delete(sessionId)
      setPlace(entry, false)
      // To the end of the queue: others get their turn first.
      if (entry.again && !stopped) queued.set(sessionId, { since: performance.now(), armedBy: entry.armedBy })
      // Not from within: a thousand busy periods in a row must not nest (DRAIN-10).
      setImmediate(pump)
    }
  }

  async function stepAside(sessionId: string, wait: Promise<void>, signal: AbortSignal) {
    const entry = running.get(sessionId)
    if (entry === undefined || running.size - taken >= asideMax * maxDrains) return wait
    setPlace(entry, false)
    setImmediate(pump)
    await wait
    await new Promise<void>((resolve) => {
      const resume = () => {
        signal.removeEventListener('abort', resume)
        queued.delete(sessionId)
        setPlace(entry, true)
        resolve()
      }
      if (stopped || signal.aborted) return resume()
      signal.addEventListener('abort', resume)
      queued.set(sessionId, { since: performance.now(), armedBy: [], resume })
      pump()
    })
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
    stepAside,
    // One that only waits for its next look, with places free, takes nobody's.
    othersWait: () => queued.size > 0 && taken >= maxDrains,
    async stop(graceMs) {
      stopped = true
      for (const { resume } of [...queued.values()]) resume?.()
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
