// Grouped appends (design section 3): appends of many sessions that wait at the same time share one transaction. Natural batching,
// no timer: what arrives while a group is under way forms the next one. At most one append per session is under way, in order of
// arrival, so the second sees the effects of the first.
//
//   queue ──► group (two in flight, at most 128 and so many bytes) ──► outcome per member
//     │ larger than a group may be ──► by itself, one after the other, tenants in turn: nobody's small ones wait behind it
//                 │ locked ──► alone, waiting for its session's lock, two at once; the others go into a later group, and hold no connection
//                 │ violation, or more than the server takes ──► halves, until the offender stands alone; that one is refused
//                 └ no answer ──► each looked up by appendId, then tried again if it is not there
//
// What the database cannot do now is tried again: seven times, or for as long as the owner of a claim lives.

import {
  type AppendOutcome,
  type AppendRequest,
  callAppend,
  groupParameter,
  outcomeOf,
  type PreparedAppend,
  prepareAppend,
} from './append.ts'
import { createWaiting, type WaitingAppend } from './append-waiting.ts'
import { behalf, onOwnBehalf } from './behalf.ts'
import { isTransientState } from './database-fault.ts'
import { backoffMs, type Db, isTransient, ownersPatienceMs } from './db.ts'
import { AppendRefusedError, asError, isClaimRace, OverloadedError, UnavailableError } from './errors.ts'
import type { Writes } from './writes.ts'

/**
 * Bytes of events that share a statement: what takes some hundredths of a second, so that nobody in it waits for the others. What is larger
 * goes by itself: 20 MB take seconds, and their text is in memory several times on its way, as it goes out as events and as rows.
 */
const groupBytesDefault = 1024 * 1024
const groupsInFlightMax = 2
const attemptsMax = 7
/**
 * Appends that may wait in the database for the lock of their session. Each holds a connection while it does, and whoever stands still with
 * the locks of a hundred sessions must not take the connections from all others.
 */
const lockWaitersMax = 2
/** For how long an append whose session is locked is tried: several times as long as the database lets a transaction stand still. */
const lockedMsDefault = 35_000
const lockNotAvailable = '55P03'
/** Appends that may wait at once in one process; beyond it callers are told to try again. */
const queueMax = 20_000
/** Bytes of those that wait. What the runner writes under its claim is let in all the same: a step can always end. */
const queueBytesDefault = 128 * 1024 * 1024

export interface AppendQueueOptions {
  db: Db
  origin: string
  /** Called after each commit, with the sessions that changed. Must not throw; if it does the commit stands. */
  committed: (sessionIds: string[]) => void
  observe?: (what: { groupSize: number; seconds: number }) => void
  /** Told of each append that the database could not take, and of each that it took. */
  writes?: Writes
  groupBytesMax?: number
  lockedMs?: number
  queueBytesMax?: number
  patienceMs?: number
}

export interface AppendQueue {
  append(request: AppendRequest): Promise<AppendOutcome>
  /** Resolves when nothing waits and nothing is under way. */
  idle(): Promise<void>
}

interface Entry extends WaitingAppend {
  /** An attempt before had no answer: it may still be committed. */
  isRepeat: boolean
  resolve: (outcome: AppendOutcome) => void
  reject: (error: Error) => void
  /** Since when its session was found locked, and how often. */
  locked: { since: number | null; looks: number }
  /** It is tried for as long as its owner has patience, and its session is not busy for it. */
  isPatient: boolean
}

/**
 * `looksUp`: an earlier attempt may have done it. `waits`: in the database, for its session's lock; else it looks now and then whether that
 * is free, and holds no connection in between.
 */
interface Alone {
  looksUp?: boolean
  waits?: boolean
  cause?: Error
}

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))

export function createAppendQueue({
  db,
  origin,
  committed,
  observe,
  writes,
  groupBytesMax = groupBytesDefault,
  lockedMs = lockedMsDefault,
  queueBytesMax = queueBytesDefault,
  patienceMs = ownersPatienceMs,
}: AppendQueueOptions): AppendQueue {
  const waiting = createWaiting<Entry>(groupBytesMax)
  let groups = 0
  let isLargeUnderWay = false
  let lockWaiters = 0
  /** Appends that are tried for as long as their owner has patience; their sessions are not busy for it. */
  let patient = 0
  let idleWaiters: (() => void)[] = []

  const finish = (entry: Entry, outcome: AppendOutcome) => {
    if (outcome.kind === 'appended') {
      writes?.succeeded()
      try {
        committed([entry.prepared.request.sessionId])
      } catch {
        // The doorbell is a hint: the commit stands, a poll delivers (LOG-05).
      }
    }
    entry.resolve(outcome)
  }

  function pump() {
    while (groups < groupsInFlightMax && waiting.count() > 0) {
      const group = waiting.takeGroup(groupsInFlightMax - groups)
      if (group.length === 0) break
      groups++
      runGroup(group).finally(() => {
        groups--
        pump()
      })
    }
    const large = isLargeUnderWay ? undefined : waiting.takeLarge()
    if (large !== undefined) {
      isLargeUnderWay = true
      runGroup([large]).finally(() => {
        isLargeUnderWay = false
        pump()
      })
    }
    if (waiting.isIdle() && patient === 0) {
      const waiters = idleWaiters
      idleWaiters = []
      for (const resume of waiters) resume()
    }
  }

  const release = (entry: Entry) => {
    if (!entry.isPatient) return waiting.done(entry.prepared.request.sessionId)
    entry.isPatient = false
    patient--
  }

  async function runGroup(group: Entry[]): Promise<void> {
    const started = performance.now()
    let answer: Awaited<ReturnType<typeof callAppend>>
    try {
      const parameter = groupParameter(
        group.map(({ prepared }) => prepared),
        origin,
        false,
      )
      answer = await callAppend(db, parameter)
    } catch (thrown) {
      // No answer that says anything: whether it was committed is found out member by member.
      for (const entry of group) void runAlone(entry, { looksUp: true, cause: asError(thrown) })
      return
    }
    observe?.({ groupSize: group.length, seconds: (performance.now() - started) / 1000 })
    if (answer.error !== undefined) {
      const alone = group.length === 1 || isTransientState(answer.error)
      if (!alone) return runHalves(group)
      for (const entry of group) void runAlone(entry, {})
      return
    }
    for (const [i, entry] of group.entries()) {
      const outcome = outcomeOf(entry.prepared, answer, i)
      if (outcome.kind === 'locked') {
        // Another transaction holds the session: this one waits for it outside the group, the others have committed (LOG-23).
        void waitForLock(entry)
        continue
      }
      release(entry)
      finish(entry, outcome)
    }
  }

  /** Its session is locked by somebody: it waits for the lock if there is a place, else it is tried again in a later group. */
  async function waitForLock(entry: Entry): Promise<void> {
    if (lockWaiters >= lockWaitersMax) return tryLater(entry)
    lockWaiters++
    await runAlone(entry, { waits: true })
    lockWaiters--
  }

  /** Into the next group, before whatever else its session waits for. */
  async function tryLater(entry: Entry): Promise<void> {
    try {
      await pauseLocked(entry)
      waiting.add(entry, true)
    } catch (thrown) {
      entry.reject(asError(thrown))
    }
    release(entry)
    pump()
  }

  /** Lets some time pass while somebody holds the session's lock. Throws once that has lasted for too long. */
  async function pauseLocked({ prepared, locked }: Entry): Promise<void> {
    locked.since ??= performance.now()
    if (performance.now() - locked.since >= lockedMs)
      throw new UnavailableError(`append to ${prepared.request.sessionId}: the session stays locked`)
    await pause(backoffMs(locked.looks++))
  }

  /** The same again in two parts, as nothing of it is there: what is refused for good ends up alone. */
  async function runHalves(group: Entry[]): Promise<void> {
    const half = Math.ceil(group.length / 2)
    await runGroup(group.slice(0, half))
    await runGroup(group.slice(half))
  }

  /**
   * Was this append committed? `locked`: it was not so far, and a transaction that holds the session may still be the one that does it. Waits
   * for nobody in the database: an answer that is lost is lost for many.
   */
  async function lookUp({ request, appendId }: PreparedAppend): Promise<AppendOutcome | 'locked' | null> {
    const [first, isLocked] = await db.$transaction(async (tx) => {
      const free = await tx.$queryRaw<unknown[]>`
        SELECT id FROM "Session" WHERE id = ${request.sessionId} FOR NO KEY UPDATE SKIP LOCKED`
      const [found] = await tx.$queryRaw<{ seq: number; at: Date }[]>`
        SELECT seq, at FROM "Event" WHERE "appendId" = ${appendId}::uuid AND ordinal = 0`
      if (found !== undefined || free.length > 0) return [found, false]
      return [found, (await tx.session.count({ where: { id: request.sessionId } })) > 0]
    })
    if (isLocked) return 'locked'
    if (first === undefined) return null
    return { kind: 'appended', seq: first.seq, lastSeq: first.seq + request.events.length - 1, at: first.at, appendId }
  }

  /** One append by itself, with a bounded number of attempts. */
  async function runAlone(entry: Entry, how: Alone): Promise<void> {
    try {
      const outcome = await decideAlone(entry, how)
      // It has waited for as long as it may at once; its place is for the next one.
      if (outcome.kind === 'locked') return void tryLater(entry)
      finish(entry, outcome)
    } catch (thrown) {
      entry.reject(asError(thrown))
    }
    release(entry)
    pump()
  }

  async function decideAlone(
    entry: Entry,
    { looksUp = false, waits = false, cause }: Alone,
  ): Promise<AppendOutcome | { kind: 'locked' }> {
    const { prepared } = entry
    const { sessionId, patience } = prepared.request
    let ambiguous = looksUp
    let last = cause
    let races = 0
    const since = performance.now()
    const goesOn = (attempt: number) => {
      if (attempt < attemptsMax) return true
      if (attempt === attemptsMax) writes?.failed(last)
      if (patience?.aborted !== false || performance.now() - since >= patienceMs) return false
      if (!entry.isPatient) {
        // An interrupt must not wait behind it: if that goes through first, the fence refuses this one.
        release(entry)
        entry.isPatient = true
        patient++
        pump()
      }
      return true
    }
    for (let attempt = 0; goesOn(attempt); ) {
      if (attempt > 0 || looksUp) await pause(backoffMs(attempt))
      try {
        if (ambiguous) {
          entry.isRepeat = true
          const found = await lookUp(prepared)
          if (found === 'locked') {
            await pauseLocked(entry)
            continue
          }
          ambiguous = false
          if (found !== null) return found
        }
        const started = performance.now()
        ambiguous = true
        const answer = await callAppend(db, groupParameter([prepared], origin, waits))
        ambiguous = false
        observe?.({ groupSize: 1, seconds: (performance.now() - started) / 1000 })
        const outcome = answer.error === undefined ? outcomeOf(prepared, answer, 0) : null
        if (entry.isRepeat && outcome?.kind !== 'appended') {
          // An earlier attempt may have been committed after it was looked for, and be the very thing that this one met.
          ambiguous = true
          const earlier = await lookUp(prepared)
          if (earlier === 'locked') {
            await pauseLocked(entry)
            continue
          }
          ambiguous = false
          if (earlier !== null) return earlier
        }
        if (outcome !== null) {
          if (outcome.kind !== 'locked') return outcome
          // Waiting for the lock leaves no "locked": a session that is there has been locked.
          if (waits) return { kind: 'missing' }
          await pauseLocked(entry)
          continue
        }
        if (waits && answer.error === lockNotAvailable) return { kind: 'locked' }
        const refused = new AppendRefusedError(
          sessionId,
          answer.error!,
          answer.constraint || null,
          answer.message ?? '',
        )
        // A unique violation can be a race for an id, as a claim that moved is one for the claim: on a second look it is a plain outcome.
        const isRace = (refused.sqlState === '23505' || isClaimRace(refused)) && races++ === 0
        if (!isRace && !isTransientState(refused.sqlState)) throw refused
        last = refused
      } catch (thrown) {
        if (!isTransient(thrown)) throw thrown
        last = asError(thrown)
      }
      attempt++
    }
    throw new UnavailableError(`append to ${sessionId}`, { cause: last })
  }

  return {
    append(request) {
      const holder = behalf()
      return new Promise<AppendOutcome>((resolve, reject) => {
        const prepared = prepareAppend(request)
        if (waiting.count() >= queueMax) throw new UnavailableError('the append queue is full')
        const { bytes } = prepared
        const waits = waiting.bytes()
        if (request.fence === undefined && waits > 0 && waits + bytes > queueBytesMax) throw new OverloadedError()
        waiting.add({
          prepared,
          resolve,
          reject,
          locked: { since: null, looks: 0 },
          isRepeat: false,
          isPatient: false,
          holder,
        })
        // Those of many tenants share what it starts.
        void onOwnBehalf(pump)
      })
    },
    idle: () =>
      new Promise<void>((resolve) => {
        idleWaiters.push(resolve)
        pump()
      }),
  }
}
