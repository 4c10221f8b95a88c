// followSession: a snapshot, then the events after its seq, for as long as the caller likes (design section 10). The view it keeps is
// at every moment some moment of the session's log plus the live text; a lost connection makes it late, never wrong.

import { type Clock, delayMs, realClock } from './backoff.ts'
import { earlierMessages } from './follow-earlier.ts'
import { lost, readSnapshot, readStream } from './follow-once.ts'
import type { FollowEnd, Followed, FollowState, StreamItem } from './follow-state.ts'
import type { Problem } from './problem.ts'
import { reduce } from './reduce.ts'
import { viewOfSnapshot } from './snapshot.ts'
import type { Transport } from './transport.ts'
import type { SessionView } from './view.ts'

export interface FollowOptions {
  sessionId: string
  transport: Transport
  /** A view kept from before, perhaps stored as JSON: the stream goes on after its seq, and no snapshot is read. */
  view?: SessionView
  /** How many of the latest messages the snapshot brings: 10 to 200, 100 unless given. */
  messages?: number
  /** Each item that is new, in order, after the view holds it: durable events once, live ones as they come. */
  onItem?: (item: StreamItem, view: SessionView) => void
  signal?: AbortSignal
  /** After how many failures in a row to give up. Never unless given: a laptop may sleep for a week. */
  retries?: number
  clock?: Clock
}

export interface SessionFollower {
  /** What can be shown now. The same object until something changes, as React's useSyncExternalStore wants it. */
  current: () => Followed
  /** Calls the listener after each change; the function that it gives back ends that. */
  subscribe: (listener: () => void) => () => void
  /** Resolves once, with the reason. Never rejects. */
  ended: Promise<FollowEnd>
  /** Puts messages before the first of the view in front of it. False: there are none. Rejects with ProblemError. */
  loadEarlier: (count?: number) => Promise<boolean>
  /** Does not wait for the next try any longer, such as when the network is back. A browser's `online` event does the same. */
  retryNow: () => void
  /** Ends the stream. Work that runs in the session goes on. */
  close: () => void
}

/**
 * Follows a session until it is closed or cannot be followed any more. Comes back by itself, with back-off, from lost connections,
 * restarts of the server, StreamEnded of SLOW_CONSUMER and SERVER_SHUTDOWN, and once from UNAUTHENTICATED, with whatever token the
 * transport then sends. Durable events are applied once and in order, whatever the transport repeats. If the cursor is of another
 * database (CURSOR_AHEAD), the snapshot is read anew.
 */
export function followSession(options: FollowOptions): SessionFollower {
  const { sessionId, transport, onItem, signal, retries = Number.POSITIVE_INFINITY, clock = realClock } = options
  const messages = Math.min(200, Math.max(10, options.messages ?? 100))
  const closing = new AbortController()
  const listeners = new Set<() => void>()
  let earlier: string | null = null
  let now: Followed = {
    view: options.view ?? null,
    state: { phase: options.view ? 'CONNECTING' : 'LOADING' },
    hasEarlier: false,
  }

  function show(change: Partial<Followed>): void {
    now = { ...now, ...change }
    for (const listener of [...listeners]) guarded(listener)
  }
  const inState = (state: FollowState) => show({ state })

  // ---------------------------------------------------------------- one try

  /** Null: it is loaded. */
  async function load(): Promise<Problem | null> {
    if (now.state.phase !== 'LOADING') inState({ phase: 'LOADING' })
    const read = await readSnapshot(transport, sessionId, messages, closing.signal, clock)
    if (read === null) return { code: 'NOT_FOUND', message: `there is no session ${sessionId}`, again: false }
    if ('again' in read) return read
    earlier = read.messages.pageInfo.hasPreviousPage ? (read.messages.pageInfo.startCursor ?? null) : null
    show({ view: viewOfSnapshot(read), hasEarlier: earlier !== null })
    return null
  }

  let failures = 0
  let refusals = 0

  function stream(): Promise<Problem> {
    inState({ phase: 'CONNECTING' })
    return readStream(transport, sessionId, now.view!.seq, closing.signal, take)
  }

  function take(item: StreamItem): Problem | null {
    if (item.__typename === 'StreamEnded')
      return { code: item.cause, message: 'the server ended the stream', again: item.cause !== 'UNAUTHENTICATED' }
    if (item.__typename === 'LogSynced') {
      failures = refusals = 0
      inState({ phase: 'LIVE' })
      return null
    }
    const before = now.view!
    if (item.seq != null && item.seq > before.seq + 1)
      // Never seen from a server that keeps its promises. The view would be wrong from here on.
      return { code: 'CURSOR_AHEAD', message: `event ${item.seq} after ${before.seq}`, again: false }
    const view = reduce(before, item)
    if (view === before) return null
    if (view.seq !== before.seq) failures = 0
    show({ view })
    if (onItem) guarded(() => onItem(item, view))
    return null
  }

  // ---------------------------------------------------------------- one try after the other

  let stopWaiting: (() => void) | null = null

  function wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = clock.after(ms, () => stopWaiting?.())
      stopWaiting = () => {
        stopWaiting = null
        cancel()
        resolve()
      }
    })
  }

  /** What the problem ends; null: it is tried again. */
  function endOf(problem: Problem): FollowEnd | null {
    if (closing.signal.aborted) return { reason: 'CLOSED' }
    if (problem.code === 'NOT_FOUND') return { reason: 'NOT_FOUND' }
    if (problem.code === 'UNAUTHENTICATED') return ++refusals > 1 ? { reason: 'UNAUTHENTICATED', problem } : null
    if (problem.code === 'CURSOR_AHEAD') return null
    return problem.again ? null : { reason: 'REFUSED', problem }
  }

  async function run(): Promise<FollowEnd> {
    for (;;) {
      if (closing.signal.aborted) return { reason: 'CLOSED' }
      const problem = (now.view === null ? await load() : null) ?? (await stream())
      const end = endOf(problem)
      if (end !== null) return end
      if (++failures > retries) return { reason: 'GAVE_UP', problem }
      const ms = delayMs(failures, clock)
      show({
        state: { phase: 'OFFLINE', failures, delayMs: ms, problem },
        ...(problem.code === 'CURSOR_AHEAD' && { view: null, hasEarlier: false }),
      })
      await wait(ms)
    }
  }

  // ---------------------------------------------------------------- from outside

  const retryNow = () => stopWaiting?.()
  function close(): void {
    closing.abort()
    stopWaiting?.()
  }
  if (signal?.aborted) closing.abort()
  signal?.addEventListener('abort', close, { once: true })
  // Not there in Node, whatever the types say.
  globalThis.addEventListener?.('online', retryNow)

  const ended = run()
    .catch((thrown): FollowEnd => ({ reason: 'REFUSED', problem: { ...lost(String(thrown)), again: false } }))
    .then((end) => {
      signal?.removeEventListener('abort', close)
      globalThis.removeEventListener?.('online', retryNow)
      closing.abort()
      inState({ phase: 'ENDED', end })
      return end
    })

  return {
    current: () => now,
    subscribe(listener) {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    ended,
    async loadEarlier(count = 100) {
      if (earlier === null || now.view === null) return false
      const page = await earlierMessages(transport, sessionId, count, earlier, closing.signal)
      const first = now.view?.messages[0]?.seq ?? 0
      const older = page.messages.filter((message) => message.seq < first)
      // Two calls at once get the same page; and a reload meanwhile has a first message of its own.
      if (now.view === null || page.from !== earlier) return earlier !== null
      earlier = page.before
      show({ view: { ...now.view, messages: [...older, ...now.view.messages] }, hasEarlier: earlier !== null })
      return true
    },
    retryNow,
    close,
  }
}

/** What a listener throws is the application's: reported as uncaught, and no business of the stream. */
function guarded(call: () => void): void {
  try {
    call()
  } catch (thrown) {
    queueMicrotask(() => {
      throw thrown
    })
  }
}
