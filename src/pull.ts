// The hand-written pull iterator under every stream. An `async function*` would not do: its return() queues behind the await that is
// pending, so a closed subscription would stay until the next event. Here `return()` ends a wait at once, calls of `next()` queue, and
// whatever the stream listens to is released in the moment in which it ends, not when somebody asks again.

import { asError } from './errors.ts'

/** Time as a stream sees it; a test passes its own. `setTimeout` answers how to cancel. */
export interface Timers {
  now(): number
  /** For durations: ms that nobody sets forward or back. Not there: `now` is such a clock. */
  monotonic?(): number
  setTimeout(fn: () => void, ms: number): () => void
}

export const realTimers: Timers = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  setTimeout(fn, ms) {
    const timer = setTimeout(fn, Math.max(0, ms))
    // Sockets keep a server running, a stream's timer does not.
    timer.unref()
    return () => clearTimeout(timer)
  },
}

/** What is counted of streams: each that is opened is ended once. */
export interface StreamCounts {
  streams: { inc(): void; dec(): void }
  streamsOpened: { inc(): void }
  streamsEnded: { inc(): void }
}

export interface PullSource<T> {
  /** The next item, or null if there is none at the moment: then `wake` has to be called when there may be one. Never called twice at once. */
  take(): Promise<T | null>
  /** The item goes to the reader now, in the same turn. */
  given?(item: T): void
  /** Nothing goes on: the reader has what it asked for (`false`), or waits for an item that is not there yet (`true`). */
  rested?(readerWaits: boolean): void
  /** A reader asks. */
  pulled?(): void
  /** Called once when the stream ends, however it ends: leave no listener and no timer. */
  release(): void
}

export interface Pull<T> {
  iterator: AsyncIterableIterator<T>
  /** Something may be ready. */
  wake(): void
  /** Does `work` while no `take` is under way; skipped if one is. A throw fails the stream. */
  exclusively(work: () => Promise<void>): Promise<void>
  /** Ends the stream with one last item, without waiting for anything. */
  endWith(last: T): void
  /** Fails the stream, without waiting for anything. */
  failWith(error: Error): void
}

/**
 * Makes a source an iterator that any number of `next()` calls may wait on. Throws of `take` reach the reader once, then it is done. Whoever opens one
 * sees to its end: `return()`, `throw()`, or a signal that the operation is over.
 */
export function createPull<T>(source: PullSource<T>, counts?: StreamCounts): Pull<T> {
  counts?.streams.inc()
  counts?.streamsOpened.inc()
  type Waiter = { resolve(result: IteratorResult<T>): void; reject(error: Error): void }
  const done: IteratorResult<T> = { done: true, value: undefined }
  const waiting: Waiter[] = []
  /** What is still to be said after the end. */
  let last: { item: T } | { error: Error } | null = null
  let ended = false
  let busy = false
  let woken = false

  function end(final: typeof last) {
    if (ended) return
    ended = true
    last = final
    counts?.streams.dec()
    counts?.streamsEnded.inc()
    source.release()
    for (const waiter of waiting.splice(0)) answerLast(waiter)
  }

  function answerLast(waiter: Waiter) {
    const final = last
    last = null
    if (final === null) waiter.resolve(done)
    else if ('item' in final) waiter.resolve({ done: false, value: final.item })
    else waiter.reject(final.error)
  }

  async function pump(): Promise<void> {
    if (busy || ended) return
    busy = true
    try {
      do {
        woken = false
        while (!ended && waiting.length > 0) {
          const item = await source.take()
          // It may have ended meanwhile: then the item was not given, and what resumes behind the last given one gets it again.
          if (ended || item === null) break
          source.given?.(item)
          waiting.shift()!.resolve({ done: false, value: item })
        }
        // A wake that came while `take` looked may have been for something it had passed already.
      } while (woken && !ended && waiting.length > 0)
    } catch (thrown) {
      end({ error: asError(thrown) })
    } finally {
      busy = false
    }
    if (!ended) source.rested?.(waiting.length > 0)
  }

  return {
    iterator: {
      next: () =>
        new Promise<IteratorResult<T>>((resolve, reject) => {
          if (ended) return answerLast({ resolve, reject })
          waiting.push({ resolve, reject })
          source.pulled?.()
          void pump()
        }),
      async return() {
        end(null)
        last = null
        return done
      },
      async throw(error) {
        end(null)
        last = null
        throw error
      },
      [Symbol.asyncIterator]() {
        return this
      },
    },
    wake() {
      woken = true
      if (waiting.length > 0) void pump()
      else if (!busy && !ended) source.rested?.(false)
    },
    async exclusively(work) {
      if (busy || ended) return
      busy = true
      try {
        await work()
      } catch (thrown) {
        end({ error: asError(thrown) })
      } finally {
        busy = false
      }
      if (waiting.length > 0) void pump()
    },
    endWith: (item) => end({ item }),
    failWith: (error) => end({ error }),
  }
}
