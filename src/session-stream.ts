// The stream of one session (design section 10): replay from the log, one catch-up delta per open part, one LogSynced at the watermark,
// then live. Durable events always come from the log and go first; live text is read beyond what was sent in the moment in which the
// reader asks; the doorbell and the live text only say that asking again may be worth it.

import { setMaxListeners } from 'node:events'
import { onBehalfOf } from './behalf.ts'
import type { ByteBudget, Release } from './byte-budget.ts'
import { backoffMs, type Db, isTransient, type Tx } from './db.ts'
import type { Doorbell } from './doorbell.ts'
import { OverloadedError, UnavailableError } from './errors.ts'
import type { EventLog } from './event-log.ts'
import type { PageBounds } from './event-pages.ts'
import type { StoredEvent } from './events.ts'
import type { LiveText } from './live-text.ts'
import { createPull, realTimers, type StreamCounts, type Timers } from './pull.ts'
import { itemOf, type LiveItem, type StreamEndCause, type StreamItem } from './stream-item.ts'
import { createStreamProgress } from './stream-progress.ts'
import { createStreamText } from './stream-text.ts'
import { readWatermark, type Watermark } from './stream-watermark.ts'

export interface StreamSources {
  db: Db
  eventLog: Pick<EventLog, 'read'>
  doorbell: Pick<Doorbell, 'listen' | 'listenAll'>
  live: Pick<LiveText, 'partsOf' | 'listen'>
  config: { pollMs: number; stallMs: number }
  /** Aborts when the process shuts down: every stream then ends with SERVER_SHUTDOWN. */
  stopping: AbortSignal
  /** In which large events have to find room. */
  bytes?: ByteBudget
  metrics?: StreamCounts & { slowConsumers: { inc(): void } }
  clock?: Timers
}

export interface SessionStreamOptions {
  sessionId: string
  /** The last seq that the reader has; 0 for the whole log. The caller has checked that it is not beyond the watermark. */
  after: number
  signal?: AbortSignal
  /** Calls what it is given when the reader's token counts no more; returns how to stop waiting. The stream then ends with UNAUTHENTICATED. */
  whenUnauthenticated?: (then: () => void) => () => void
  /** Moves on while the reader takes something of the item that it has got: a long one over a slow line takes its time. */
  taken?: () => number
  /** Whose bytes large events are, and whose turn its reads take; nobody's: ''. */
  holder?: string
  pageSize?: number
}

/** How long the database may be away before a stream gives up; its reader then comes back with its cursor (STREAM-23). */
const outageMs = 30_000
/** After this time without its reader a stream keeps one event at most, and looks whether there is something to take at all. */
const slimMs = 200

/**
 * Every event after `after` exactly once and in order, one LogSynced at the watermark, then live, with deltas in between (design
 * section 10). Pulled: nothing is queued for a slow reader. Ends with StreamEnded{resumeAfter: the last seq that was given} when the
 * reader takes nothing for `config.stallMs`, not even a part of an item, although something is there, when its token counts no more, or when the process stops; `return()` and the signal end
 * it at once. Throws UnavailableError when the database stays away for 30 s, and for an unknown session or event type.
 */
export function sessionStream(
  sources: StreamSources,
  options: SessionStreamOptions,
): AsyncIterableIterator<StreamItem> {
  const { db, eventLog, doorbell, live, config, stopping, bytes, metrics } = sources
  const { sessionId, after, signal, whenUnauthenticated, taken = () => 0, holder = '', pageSize = 200 } = options
  const clock = sources.clock ?? realTimers
  // A wall clock that is set forward must end no reader that takes what it gets.
  const monotonic = clock.monotonic ?? clock.now

  let phase: 'REPLAY' | 'CATCH_UP' | 'LIVE' = 'REPLAY'
  /** The seq of the event last given: what `resumeAfter` says. */
  let cursor = after
  let page: StoredEvent[] = []
  /** The log may have moved since it was last read. */
  let rung = true
  let watermark: Watermark | null = null
  let catchUp = new Set<string>()
  const progress = createStreamProgress()
  const text = createStreamText({ sessionId, live, reading, now: clock.now })

  const liveItem = <T extends object>(item: T) =>
    ({ sessionId, seq: null, at: new Date(clock.now()), ...item }) as unknown as LiveItem
  const endedItem = (cause: StreamEndCause) => liveItem({ typename: 'StreamEnded', cause, resumeAfter: cursor })

  // ---------------------------------------------------------------- reading, while the database is there

  let awaySince: number | null = null
  let failures = 0
  let cancelRetry: (() => void) | null = null

  async function reading<R>(operation: (from: Tx) => Promise<R>): Promise<R | undefined> {
    if (cancelRetry !== null) return undefined
    try {
      const found = await (holder === '' ? operation(db) : onBehalfOf(holder, () => operation(db)))
      awaySince = null
      failures = 0
      return found
    } catch (thrown) {
      const overloaded = thrown instanceof OverloadedError
      if (!overloaded && !isTransient(thrown)) throw thrown
      awaySince ??= monotonic()
      if (monotonic() - awaySince >= outageMs)
        throw overloaded ? thrown : new UnavailableError(`the stream of ${sessionId}`, { cause: thrown })
      if (!released)
        cancelRetry = clock.setTimeout(() => {
          cancelRetry = null
          pull.wake()
        }, backoffMs(failures++))
      return undefined
    }
  }

  /** What the page takes of the budget, while its event is on its way to the reader too. */
  let held: Release = () => {}
  const bounds: PageBounds = {
    cut: false,
    async room(wanted) {
      held()
      const release = (await bytes?.take(wanted, { holder })) ?? (() => {})
      held = release
      // It may have ended while it waited.
      if (released) held()
      return release
    },
  }

  /** False: the database is away. */
  async function readPage(limit: number): Promise<boolean> {
    // Put down before the read: what commits while it runs rings again.
    rung = false
    bounds.cut = false
    const read = await reading((from) => eventLog.read(sessionId, cursor, limit, from, bounds))
    if (read === undefined) rung = true
    else page = read
    if (page.length === limit || bounds.cut) rung = true
    return read !== undefined
  }

  // ---------------------------------------------------------------- the next item

  async function take(): Promise<StreamItem | null> {
    if (phase === 'REPLAY') {
      const replayed = await takeReplay()
      if (phase === 'REPLAY') return replayed
    }
    if (phase === 'CATCH_UP') {
      const delta = catchUp.size > 0 ? await text.next(catchUp) : null
      if (delta !== null) return delta
      phase = 'LIVE'
      return liveItem({ typename: 'LogSynced', through: watermark!.seq })
    }
    if (page.length === 0 && rung) await readPage(pageSize)
    const event = page[0]
    if (event !== undefined) return text.rest(event) ?? itemOf(event)
    const note = progress.next()
    if (note !== null) return liveItem({ typename: 'ToolProgress', ...note })
    return text.next()
  }

  /** The next event of the replay. At its end the phase moves on: from exactly the watermark's seq, whose open parts are known. */
  async function takeReplay(): Promise<StreamItem | null> {
    for (;;) {
      if (watermark !== null && cursor >= watermark.seq) {
        text.begin(watermark.parts)
        progress.begin(watermark.running)
        catchUp = new Set(text.keys())
        phase = 'CATCH_UP'
        return null
      }
      if (page.length > 0) return itemOf(page[0]!)
      if (rung) {
        if (!(await readPage(pageSize))) return null
        continue
      }
      if (watermark !== null) throw new Error(`the log of ${sessionId} has no event ${cursor + 1}`)
      const found = await reading((from) => readWatermark(from, sessionId))
      if (found === undefined) return null
      if (found === null) throw new Error(`there is no session ${sessionId}`)
      watermark = found
      // Committed since the last page was read: also before LogSynced.
      if (watermark.seq > cursor) rung = true
    }
  }

  function given(item: StreamItem): void {
    if (item.seq === null) return
    const event = page.shift()!
    cursor = event.seq
    if (phase === 'REPLAY') return
    text.apply(event)
    progress.apply(event)
  }

  // ---------------------------------------------------------------- a reader that stays away

  let cancelRest: (() => void) | null = null
  let cancelPoll: (() => void) | null = null
  /** Moves on with each `next()`: what began before it is void. */
  let pulls = 0

  const somethingReady = () => phase !== 'LIVE' || page.length > 0 || progress.ready() || text.localReady()

  function rested(readerWaits: boolean): void {
    // Chunks of another process are rung for, but a ring can be lost and the poll behind the doorbell sees the log alone.
    if (readerWaits && cancelPoll === null && text.hasRemote())
      cancelPoll = clock.setTimeout(() => {
        cancelPoll = null
        text.rung = true
        pull.wake()
      }, config.pollMs)
    if (readerWaits || cancelRest !== null) return
    if (!rung && !somethingReady() && !(text.rung && text.hasRemote())) return
    const since = monotonic()
    const at = pulls
    cancelRest = clock.setTimeout(() => void slim(since, at), Math.min(slimMs, config.stallMs))
  }

  /** Keeps one event at most for a reader that is away, and starts its time if there really is something to take. */
  async function slim(since: number, at: number): Promise<void> {
    let ready = false
    await pull.exclusively(async () => {
      if (page.length > 1) {
        page.length = 1
        rung = true
      }
      if (phase === 'LIVE' && page.length === 0 && rung) await readPage(1)
      ready = somethingReady() || (text.rung && (await text.remoteReady()))
    })
    if (released || at !== pulls) return
    cancelRest = null
    // Rung in the meantime, or the database is away: look again.
    if (!ready) return rested(false)
    endUnlessTaken(Math.max(0, since + config.stallMs - monotonic()))
  }

  /** What counts is the time in which nothing at all was taken. */
  function endUnlessTaken(ms: number): void {
    const had = taken()
    cancelRest = clock.setTimeout(() => {
      if (taken() !== had) return endUnlessTaken(config.stallMs)
      metrics?.slowConsumers.inc()
      pull.endWith(endedItem('SLOW_CONSUMER'))
    }, ms)
  }

  // ---------------------------------------------------------------- listening

  let released = false
  const stops: (() => void)[] = []

  const pull = createPull<StreamItem>(
    {
      take,
      given,
      rested,
      pulled() {
        pulls++
        // What was given before has been sent.
        if (page.length === 0) held()
        cancelRest?.()
        cancelRest = null
      },
      release() {
        released = true
        for (const stop of stops) stop()
        for (const cancel of [cancelRest, cancelPoll, cancelRetry]) cancel?.()
        page = []
        held()
      },
    },
    metrics,
  )

  const whenAborted = (aborting: AbortSignal, then: () => void) => {
    // Any number of streams listen to one signal; that is not a leak.
    setMaxListeners(0, aborting)
    aborting.addEventListener('abort', then)
    stops.push(() => aborting.removeEventListener('abort', then))
    if (aborting.aborted) then()
  }

  // Armed before the first read: what commits between a read and the wait after it has rung.
  stops.push(
    doorbell.listen(sessionId, () => {
      rung = true
      text.rung = true
      pull.wake()
    }),
    live.listen(sessionId, (note) => {
      if (note !== null) progress.note(note)
      pull.wake()
    }),
  )
  if (signal !== undefined) whenAborted(signal, () => void pull.iterator.return!())
  if (!released) whenAborted(stopping, () => pull.endWith(endedItem('SERVER_SHUTDOWN')))
  if (!released && whenUnauthenticated)
    stops.push(whenUnauthenticated(() => pull.endWith(endedItem('UNAUTHENTICATED'))))
  if (!released) rested(false)

  return pull.iterator
}
