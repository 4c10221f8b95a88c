// The waits of the drains of this process: what each waits for, since when, and how long it may. Every wait has a bound of its own where it is
// made; this is the second line, for the day on which one of them does not hold. A wait that is older than it may be is told once in the log
// and counted by its name, and one for the database or a tool fails then, so that its drain ends and is settled like any that fails. Waits for
// a place or for the liveness lock have no bound but others' work: they are told only.

import type { Counter } from 'prom-client'
import type { Log } from '../log.ts'

/** Few fixed words, as they are a label of a metric. */
export type WaitName = 'read' | 'append' | 'live text' | 'tool' | 'stop' | 'request' | 'place' | 'liveness lock'

export interface Waiter {
  sessionId: string
  executionId?: string
}

export interface Waits {
  /** The wait goes on meanwhile, under this name. Rejects with OverdueWait when it is older than it may be. */
  during<T>(by: Waiter, what: WaitName, mayMs: number, wait: Promise<T>): Promise<T>
  /** Only told when it is too old; the returned function ends it. */
  begin(by: Waiter, what: WaitName, mayMs: number): () => void
  /** Looks at all of them once; a timer does it every second. */
  look(): void
  /** How many there are now, those that are too old among them. */
  size(): { waits: number; overdue: number }
  close(): void
}

/** What is waited for did not come in the time that it may take. */
export class OverdueWait extends Error {
  override name = 'OverdueWait'
  constructor(what: WaitName, mayMs: number) {
    super(`the wait for ${what} took longer than the ${mayMs} ms that it may`)
  }
}

interface Wait {
  by: Waiter
  what: WaitName
  mayMs: number
  since: number
  isTold: boolean
  fail: ((error: OverdueWait) => void) | null
}

/** Beyond what a read or an append takes when all of its retries are used up. */
export const databaseWaitMs = 300_000
/** How much longer than its own bound a wait may take on a process that is very busy. */
export const waitSlackMs = 60_000
const lookMs = 1000

/** A request's own limit is looked at between two parts, each of which may take the idle limit. */
export const requestWaitMs = ({ requestMs, idleMs }: { requestMs: number; idleMs: number }) =>
  requestMs + idleMs + waitSlackMs

export interface WaitsOptions {
  log: Log
  overdueWaits: Counter<'what'>
  /** Monotonic ms. */
  now?: () => number
}

export function createWaits({ log, overdueWaits, now = () => performance.now() }: WaitsOptions): Waits {
  const waits = new Set<Wait>()
  let lookedAt = now()

  function add(by: Waiter, what: WaitName, mayMs: number, fail: Wait['fail']): Wait {
    const wait: Wait = { by, what, mayMs, since: now(), isTold: false, fail }
    waits.add(wait)
    return wait
  }

  function end(wait: Wait) {
    if (!waits.delete(wait) || !wait.isTold) return
    log.info(
      { ...wait.by, what: wait.what, waitedMs: Math.round(now() - wait.since) },
      'a wait that was overdue has ended',
    )
  }

  function look() {
    const at = now()
    // While the whole process stood still nothing could come: that time is nobody's.
    const stood = Math.max(0, at - lookedAt - 5 * lookMs)
    lookedAt = at
    for (const wait of waits) {
      wait.since += stood
      const waitedMs = Math.round(at - wait.since)
      if (wait.isTold || waitedMs <= wait.mayMs) continue
      wait.isTold = true
      overdueWaits.inc({ what: wait.what })
      log.error({ ...wait.by, what: wait.what, waitedMs, mayMs: wait.mayMs }, 'a session waits for longer than it may')
      wait.fail?.(new OverdueWait(wait.what, wait.mayMs))
    }
  }

  const timer = setInterval(look, lookMs)
  timer.unref()
  return {
    during(by, what, mayMs, waited) {
      return new Promise((resolve, reject) => {
        const wait = add(by, what, mayMs, reject)
        waited.then(resolve, reject).finally(() => end(wait))
      })
    },
    begin(by, what, mayMs) {
      const wait = add(by, what, mayMs, null)
      return () => end(wait)
    },
    look,
    size: () => ({ waits: waits.size, overdue: [...waits].filter(({ isTold }) => isTold).length }),
    close: () => clearInterval(timer),
  }
}
