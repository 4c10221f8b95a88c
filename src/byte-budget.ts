// One budget of bytes for everything that a process reads out of the database, or holds for it, on somebody's behalf: answers, pages of streams, a
// replay, appends that wait. What is over it waits in order of arrival, for a bounded time. Nobody holds more than half, so that one tenant's
// gigabytes leave the others theirs.

import { getHeapStatistics } from 'node:v8'
import { OverloadedError } from './errors.ts'
import { realTimers, type Timers } from './pull.ts'

/** Gives back what was taken; again does nothing. */
export type Release = () => void

export interface ByteBudget {
  readonly bytesMax: number
  /**
   * Waits for `bytes` in order of arrival, at most `waitMs`; more than a holder may have counts as all that it may have, so that it goes alone. Throws OverloadedError after
   * that, or at once when too many wait, and the signal's reason when it aborts.
   */
  take(bytes: number, from: { holder: string; waitMs?: number; signal?: AbortSignal }): Promise<Release>
  /** Counts what is there already, without waiting: who comes next waits for it. */
  add(bytes: number, holder: string): Release
  held(): number
  waiting(): number
}

interface Waiter {
  bytes: number
  holder: string
  go(): void
}

const waitMsDefault = 5000
/** Beyond it whoever comes is refused at once. */
const waitersMax = 1000
/** Of one holder: it must not have all places to wait. */
const ownWaitersMax = 200
/** What one holder may have of it. */
const share = 0.5

const mega = 1024 * 1024

/** A sixteenth of what the heap may have: a value is in memory several times on its way. */
export const bytesMaxDefault = () =>
  Math.min(128 * mega, Math.max(64 * mega, Math.floor(getHeapStatistics().heap_size_limit / 16)))

export function createByteBudget(
  bytesMax: number,
  { refused, moved, clock = realTimers }: { refused?: () => void; moved?: (held: number) => void; clock?: Timers } = {},
): ByteBudget {
  let held = 0
  const heldBy = new Map<string, number>()
  const waiting: Waiter[] = []
  const most = bytesMax * share

  const ownOf = (holder: string) => heldBy.get(holder) ?? 0
  const mayHave = ({ holder, bytes }: Waiter) => ownOf(holder) + bytes <= most
  const fits = (bytes: number) => held + bytes <= bytesMax

  function add(bytes: number, holder: string): Release {
    held += bytes
    moved?.(held)
    heldBy.set(holder, ownOf(holder) + bytes)
    let given = false
    return () => {
      if (given) return
      given = true
      held -= bytes
      moved?.(held)
      const left = ownOf(holder) - bytes
      if (left > 0) heldBy.set(holder, left)
      else heldBy.delete(holder)
      admit()
    }
  }

  /** Who is at its own share is passed over; who waits for the others' bytes is not, else it would wait for ever behind small ones. */
  function admit() {
    for (let n = 0; n < waiting.length; ) {
      const waiter = waiting[n]!
      if (!mayHave(waiter)) n++
      else if (!fits(waiter.bytes)) return
      else {
        waiting.splice(n, 1)
        waiter.go()
      }
    }
  }

  function refuse(): never {
    refused?.()
    throw new OverloadedError()
  }

  return {
    bytesMax,
    add,
    held: () => held,
    waiting: () => waiting.length,
    async take(asked, { holder, waitMs = waitMsDefault, signal }) {
      signal?.throwIfAborted()
      const bytes = Math.min(asked, most)
      const first = { bytes, holder, go() {} }
      if (mayHave(first) && fits(bytes) && !waiting.some(mayHave)) return add(bytes, holder)
      const own = waiting.reduce((count, each) => count + Number(each.holder === holder), 0)
      if (waiting.length >= waitersMax || own >= ownWaitersMax || waitMs <= 0) refuse()
      return new Promise<Release>((resolve, reject) => {
        const leave = (then: () => void) => {
          const at = waiting.indexOf(waiter)
          if (at >= 0) waiting.splice(at, 1)
          cancel()
          signal?.removeEventListener('abort', aborted)
          then()
        }
        const aborted = () => {
          leave(() => reject(signal!.reason))
          admit()
        }
        const waiter: Waiter = { bytes, holder, go: () => leave(() => resolve(add(bytes, holder))) }
        const cancel = clock.setTimeout(() => {
          leave(() => {
            refused?.()
            reject(new OverloadedError())
          })
          admit()
        }, waitMs)
        signal?.addEventListener('abort', aborted)
        waiting.push(waiter)
      })
    },
  }
}
