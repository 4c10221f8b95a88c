// The leases of this process: one statement renews all claims (design section 9). A claim that is gone is lost, one in phase CANCELLING has
// been interrupted elsewhere. One that somebody has locked is passed over: it is neither lost nor proven. A process that cannot renew stops
// its own work before the database would say so, by its own monotonic count since the last renewal was sent (CLAIM-14).

import { setTimeout as sleep } from 'node:timers/promises'
import { type Renewed, readClaim, renewClaims } from '../claim.ts'
import { type Db, retrying } from '../db.ts'
import { asError } from '../errors.ts'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics.ts'
import { createStandstill } from '../standstill.ts'
import { type Hold, HoldEnded } from './hold.ts'

/** Can other processes see that this one lives (recovery's liveness lock)? */
export interface Alive {
  isHeld(): boolean
  /** Resolves true once it is held; false when the signal ends the wait. */
  whenHeld(signal?: AbortSignal): Promise<boolean>
}

export interface Leases {
  /** Watches a hold from now on. `acquiredAt`: monotonic ms when its acquisition was sent. */
  add(hold: Hold, acquiredAt: number): void
  /** The hold is over or abandoned: renewed no more. */
  remove(hold: Hold): void
  /** Waits until other processes can see that this one lives; false when the signal ends the wait. A claim before would be taken for a dead owner's. */
  whenAlive(signal: AbortSignal): Promise<boolean>
  /**
   * May this hold start an effect outside now? Waits while this process does not hold its liveness lock, as others may be taking its
   * claims over (CLAIM-23); then by its own count of the lease.
   */
  mayStart(hold: Hold): Promise<boolean>
  /** The same as a demand: otherwise the hold ends and HoldEnded is thrown. */
  mustStart(hold: Hold): Promise<void>
  held(): Hold[]
  heldBy(sessionId: string): Hold | undefined
  /** Finds out why a fence failed, and ends the hold accordingly. */
  examine(hold: Hold): Promise<void>
  renewNow(): Promise<void>
  close(): void
}

export interface LeaseOptions {
  db: Db
  owner: string
  leaseMs: number
  renewMs: number
  log: Log
  metrics: Metrics
  alive?: Alive | null
  /** How long a renewal may take before the next one does not wait for it any more. */
  patienceMs?: number
  now?: () => number
  /** Ms of the wall clock: it goes on where the monotonic one stands still. */
  wall?: () => number
}

/** Between two tries to prove a claim that is in doubt. */
const doubtMs = 200

export function createLeases({
  db,
  owner,
  leaseMs,
  renewMs,
  log,
  metrics,
  alive,
  patienceMs = Math.max(renewMs, 5000),
  now,
  wall,
}: LeaseOptions): Leases {
  const monotonic = now ?? (() => performance.now())
  const standstill = createStandstill(monotonic, wall ?? now)
  const holds = new Map<string, { hold: Hold; provenAt: number }>()
  let renewing: Promise<void> | null = null
  let soon: NodeJS.Timeout | undefined
  let closed = false

  const isHeld = (hold: Hold) => holds.get(hold.sessionId)?.hold === hold

  function lose(hold: Hold, why: string) {
    if (hold.ended === 'lost') return
    metrics.refusedStaleWrites.inc({ what: 'claim' })
    log.warn({ sessionId: hold.sessionId, executionId: hold.executionId, why }, 'claim lost')
    hold.end('lost')
  }

  /** What can no longer be proven to be ours ends a little before the lease does. */
  const provenForMs = leaseMs - Math.min(1000, leaseMs / 10)

  /** May this hold start anything, by this process's own count? False from shortly before its lease can have run out. */
  function isFresh(hold: Hold): boolean {
    const entry = holds.get(hold.sessionId)
    if (entry?.hold !== hold || hold.ended === 'lost') return false
    if (monotonic() - entry.provenAt <= provenForMs) return true
    lose(hold, 'could not renew in time')
    return false
  }

  /** Proven before the machine stood still: it may have been taken over since, and only the database knows. */
  const isInDoubt = (hold: Hold) => (holds.get(hold.sessionId)?.provenAt ?? 0) <= standstill.noticedAt()

  async function mayStart(hold: Hold): Promise<boolean> {
    for (;;) {
      if (alive && !alive.isHeld() && !(await alive.whenHeld(hold.signal))) return false
      if (hold.ended !== null || !isFresh(hold)) return false
      if (!isInDoubt(hold)) return true
      // As long as there is no answer it is asked again; that ends with the lease, by the count of the monotonic clock.
      await renewNow()
      if (isInDoubt(hold)) await sleep(doubtMs)
    }
  }

  function expire() {
    const live = [...holds.values()].filter(({ hold }) => isFresh(hold))
    if (live.some(({ hold }) => isInDoubt(hold))) void renewNow()
  }

  /** What is asked while a renewal is under way shares it. */
  function renewNow(): Promise<void> {
    renewing ??= renewAll().finally(() => {
      renewing = null
    })
    return renewing
  }

  async function renewAll() {
    clearTimeout(soon)
    if (holds.size === 0) return
    const sentAt = monotonic()
    const asked = [...holds.values()].map(({ hold }) => hold)
    let renewed: Map<string, Renewed>
    try {
      const ids = asked.map(({ executionId }) => executionId)
      const answer = await within(
        patienceMs,
        retrying(() => renewClaims(db, owner, ids, leaseMs)),
      )
      renewed = new Map(answer.map((claim) => [claim.executionId, claim]))
    } catch (thrown) {
      log.warn({ err: asError(thrown) }, 'lease renewal failed')
      return renewSoon()
    }
    const unanswered: Hold[] = []
    for (const hold of asked) {
      if (!isHeld(hold)) continue
      const claim = renewed.get(hold.executionId)
      // Also while its owner gives it back, which takes as long as the database does.
      if (claim !== undefined) holds.get(hold.sessionId)!.provenAt = sentAt
      if (hold.closing) continue
      if (claim === undefined) {
        unanswered.push(hold)
        continue
      }
      if (claim.phase === 'CANCELLING') hold.end('cancelled')
    }
    if (unanswered.length === 0) return
    // Passed over, as somebody has the row locked, or gone; its own last append may have removed it while this statement ran. Each is looked
    // at by itself, when all others are proven.
    await Promise.all(unanswered.map((hold) => lookAt(hold)))
    if (unanswered.some((hold) => isHeld(hold) && hold.ended !== 'lost' && !hold.closing)) renewSoon()
  }

  /** What was not renewed now is asked again long before its lease ends, and not only at the next turn. */
  function renewSoon() {
    if (closed) return
    clearTimeout(soon)
    soon = setTimeout(() => void renewNow(), Math.min(1000, renewMs / 10))
    soon.unref()
  }

  async function lookAt(hold: Hold) {
    try {
      await within(patienceMs, examine(hold))
    } catch (thrown) {
      log.warn({ err: asError(thrown), sessionId: hold.sessionId }, 'a claim that was not renewed could not be read')
    }
  }

  async function examine(hold: Hold) {
    const claim = await retrying(() => readClaim(db, hold.sessionId))
    if (!isHeld(hold) || hold.closing) return
    if (claim === null || claim.executionId !== hold.executionId || claim.owner !== owner || !claim.live)
      return lose(hold, 'another owner or none')
    if (claim.phase === 'CANCELLING') hold.end('cancelled')
  }

  const renewal = setInterval(() => void renewNow(), renewMs)
  const watch = setInterval(expire, Math.max(50, Math.min(1000, leaseMs / 10)))
  renewal.unref()
  watch.unref()

  return {
    add(hold, acquiredAt) {
      holds.set(hold.sessionId, { hold, provenAt: acquiredAt })
    },
    remove(hold) {
      if (isHeld(hold)) holds.delete(hold.sessionId)
    },
    whenAlive: async (signal) => !alive || alive.isHeld() || alive.whenHeld(signal),
    mayStart,
    async mustStart(hold) {
      if (await mayStart(hold)) return
      if (hold.ended === null) hold.end('lost')
      throw new HoldEnded(hold.ended ?? 'lost')
    },
    held: () => [...holds.values()].map(({ hold }) => hold),
    heldBy: (sessionId) => holds.get(sessionId)?.hold,
    examine,
    renewNow,
    close() {
      closed = true
      clearTimeout(soon)
      clearInterval(renewal)
      clearInterval(watch)
    },
  }
}

/** The answer, if it comes in time: over a wire that is dead it would come never, and another connection may do. */
async function within<T>(ms: number, answer: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms)
  })
  try {
    return await Promise.race([answer, late])
  } finally {
    clearTimeout(timer)
  }
}
