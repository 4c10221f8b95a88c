// A claim as its owner holds it in memory: what phase it believes in, and the signal by which everything that runs under it stops.
// The belief is never enough: each effect is fenced in the database, right before it or in the same commit.

import { ownersPatienceMs, retrying } from '../db.ts'
import type { Fence } from '../event-log.ts'
import type { ExecutionPhase } from '../events.ts'
import type { Received } from './settle-open.ts'
import { databaseWaitMs, type WaitName, type Waits } from './waits.ts'

/**
 * Why a hold ended before its time.
 * - `cancelled`: an interrupt moved the claim to CANCELLING; its owner does the cleanup
 * - `lost`: taken over or expired; nothing of this owner may happen any more
 * - `shutdown`: the process leaves and will hand the claim over
 * - `failed`: its drain failed; recovery's path settles the claim
 */
export type HoldEnd = 'cancelled' | 'lost' | 'shutdown' | 'failed'

/** Thrown inside whatever runs under a hold when it ended. */
export class HoldEnded extends Error {
  override name = 'HoldEnded'
  constructor(readonly end: HoldEnd) {
    super(`the claim is ${end}`)
  }
}

export interface Hold {
  readonly sessionId: string
  readonly executionId: string
  readonly owner: string
  /** As of the last append of this owner. */
  phase: ExecutionPhase
  /** The owner is giving the claim back itself: its absence is no loss. */
  closing: boolean
  /** What was decided at a boundary is written: whoever waited for it may go on. Calling it again does nothing. */
  begun: () => void
  /** What the step that runs under it has received; whoever ends the step in its place asks. Set by the step. */
  received: () => Received | null
  /** Aborts with HoldEnded as its reason. */
  readonly signal: AbortSignal
  /** Null while the claim is believed to be held. The first reason counts, except that `lost` overrides. */
  readonly ended: HoldEnd | null
  end(reason: HoldEnd): void
  /** What its drain waits for, under a name and a bound (waits.ts). */
  during<T>(what: WaitName, mayMs: number, wait: Promise<T>): Promise<T>
  /** The fence of this owner, for the phases that the caller expects. */
  fence(phases: readonly ExecutionPhase[]): Fence
}

/** `waits`: of the process, which tell a wait that is overdue. */
export function createHold(sessionId: string, executionId: string, owner: string, waits?: Waits): Hold {
  const controller = new AbortController()
  let ended: HoldEnd | null = null
  return {
    sessionId,
    executionId,
    owner,
    phase: 'READY',
    closing: false,
    begun() {},
    received: () => null,
    signal: controller.signal,
    get ended() {
      return ended
    },
    end(reason) {
      if (ended === null || reason === 'lost') ended = reason
      if (!controller.signal.aborted) controller.abort(new HoldEnded(reason))
    },
    during: (what, mayMs, wait) =>
      waits === undefined ? wait : waits.during({ sessionId, executionId }, what, mayMs, wait),
    fence: (phases) => ({ executionId, owner, phases }),
  }
}

/**
 * A read of what runs under this hold: made again after a lost connection, as an append is, so that it costs neither a step nor a
 * recovery. Throws HoldEnded if the hold ends meanwhile.
 */
export const reading = <T>(hold: Hold, read: () => Promise<T>): Promise<T> =>
  hold.during('read', databaseWaitMs, retrying(read, hold.signal, ownersPatienceMs))
