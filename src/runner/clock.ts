/**
 * Time as the runner sees it. Timers go through here so that a test can let two minutes of provider silence pass
 * without waiting for them. Lease time is not this clock: that one is the database's (design section 3).
 */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number
  /** For durations: ms that nobody sets forward or back. Not there: `now` is such a clock. */
  monotonic?(): number
  /** Calls `fn` once, `ms` milliseconds from now, unless the returned function is called first. */
  setTimeout(fn: () => void, ms: number): () => void
}

// Above this a Node timer fires at once instead of late.
const LONGEST_TIMER = 2 ** 31 - 1

/** The machine's own clock and timers. Waits longer than about 24 days end after 24 days. */
export const realClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  setTimeout(fn, ms) {
    const timer = setTimeout(fn, Math.min(Math.max(ms, 0), LONGEST_TIMER))
    return () => clearTimeout(timer)
  },
}
