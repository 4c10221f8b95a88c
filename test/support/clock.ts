import type { Clock } from '../../src/runner/clock.ts'

interface Timer {
  at: number
  fn: () => void
}

/** A clock that stands still until a test moves it. */
export interface TestClock extends Clock {
  /**
   * Moves time on by `ms`, firing what falls due in order, each followed by a turn of the event loop, so that a timer set
   * in answer to one that fired is fired too if it falls due.
   */
  advance(ms: number): Promise<void>
  /** Milliseconds until each armed timer, soonest first. */
  timers(): number[]
  /**
   * Resolves once a timer is armed, any one or one with `ms` left, and one is after a turn of the event loop still: what
   * is disarmed at once, because the work was done already, does not count. The condition to wait for before `advance`.
   */
  armed(ms?: number): Promise<void>
}

export function testClock(start: number = Date.UTC(2030, 0, 1)): TestClock {
  let now = start
  const timers = new Set<Timer>()
  const waiting = new Set<() => void>()
  const left = () => [...timers].map((timer) => timer.at - now).sort((a, b) => a - b)

  return {
    now: () => now,
    setTimeout(fn, ms) {
      const timer = { at: now + Math.max(0, ms), fn }
      timers.add(timer)
      for (const check of waiting) check()
      return () => void timers.delete(timer)
    },
    async advance(ms) {
      const end = now + ms
      for (;;) {
        const due = [...timers].filter((timer) => timer.at <= end).sort((a, b) => a.at - b.at)[0]
        if (due === undefined) break
        timers.delete(due)
        now = Math.max(now, due.at)
        due.fn()
        await new Promise((resolve) => setImmediate(resolve))
      }
      now = end
    },
    timers: left,
    armed(ms) {
      const isArmed = () => (ms === undefined ? timers.size > 0 : left().includes(ms))
      return new Promise((resolve) => {
        const check = () => {
          if (!isArmed()) return
          waiting.delete(check)
          setImmediate(() => {
            if (isArmed()) return resolve()
            waiting.add(check)
            check()
          })
        }
        waiting.add(check)
        check()
      })
    },
  }
}
