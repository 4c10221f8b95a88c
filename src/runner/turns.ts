// Whose turn it is to decide on a session, within this process. Who reads, decides and appends while others do the same only makes them
// decide again; so callers stand in line, in order of arrival, and the owner's own decisions go first.
//
// Another process has a line of its own. A line that never empties therefore rests now and then, long enough for a decision: else whoever
// decides elsewhere would find the session moved each time.

import { BusyError } from '../errors.ts'

/** In the order in which they are served. There is one owner of a session at most, so that nobody waits for ever behind it. */
const ranks = ['owner', 'interrupt', 'caller'] as const
export type Rank = (typeof ranks)[number]

export interface Turns {
  /**
   * Runs `work` when its turn has come, alone of those with this key. Throws BusyError, without having run it, when too many wait or the
   * wait was too long; an owner is never refused. `work` must not take a turn of the same key.
   */
  take<T>(key: string, rank: Rank, work: () => Promise<T>): Promise<T>
  /** An owner's turn, for work that goes on longer: it ends when what this resolves to is called. */
  hold(key: string): Promise<() => void>
  /** How many wait, over all keys. */
  waiting(): number
}

const callers = ranks.indexOf('caller')

interface Waiter {
  rank: number
  go(): void
}

interface Line {
  waiting: Waiter[]
  /** Turns since the line was empty or rested. */
  inARow: number
  /** The line rests; ends it. */
  rest: (() => void) | null
}

export interface TurnsOptions {
  /** For one key. */
  waitingMax?: number
  waitMs?: number
  /** After so many turns in a row the line rests. */
  restEvery?: number
  restMs?: number
  /** Told for each one that is refused. */
  refused?: () => void
}

export function createTurns({
  waitingMax = 1000,
  waitMs = 15_000,
  restEvery = 16,
  restMs = 50,
  refused,
}: TurnsOptions = {}): Turns {
  const lines = new Map<string, Line>()

  function busy(why: string): BusyError {
    refused?.()
    return new BusyError(why)
  }

  function join(line: Line, rank: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const isOwner = rank === 0
      if (!isOwner && line.waiting.length >= waitingMax) return reject(busy('too many calls wait for this session'))
      const giveUp = () => {
        line.waiting.splice(line.waiting.indexOf(waiter), 1)
        reject(busy('the calls before this one took too long'))
      }
      const late = isOwner ? undefined : setTimeout(giveUp, waitMs)
      const go = () => {
        clearTimeout(late)
        resolve()
      }
      const waiter: Waiter = { rank, go }
      const behind = line.waiting.findIndex((other) => other.rank > rank)
      if (behind < 0) line.waiting.push(waiter)
      else line.waiting.splice(behind, 0, waiter)
      // Only callers wait for the end of a rest: it is made for the others.
      if (rank < callers) line.rest?.()
    })
  }

  function next(key: string, line: Line, tookMs: number): void {
    line.rest = null
    const first = line.waiting[0]
    if (first === undefined) return void lines.delete(key)
    line.inARow++
    if (first.rank < callers || line.inARow < restEvery) {
      line.waiting.shift()
      first.go()
      return
    }
    line.inARow = 0
    const go = () => {
      clearTimeout(timer)
      next(key, line, 0)
    }
    // On a slow machine the others are slow too.
    const timer = setTimeout(go, Math.min(Math.max(restMs, 4 * tookMs), 10 * restMs))
    line.rest = go
  }

  async function take<T>(key: string, rank: Rank, work: () => Promise<T>): Promise<T> {
    let line = lines.get(key)
    if (line === undefined) {
      line = { waiting: [], inARow: 0, rest: null }
      lines.set(key, line)
    } else await join(line, ranks.indexOf(rank))
    const began = performance.now()
    try {
      return await work()
    } finally {
      next(key, line, performance.now() - began)
    }
  }

  return {
    take,
    hold: (key) =>
      new Promise((begun) => {
        void take(key, 'owner', () => new Promise<void>((end) => begun(end)))
      }),
    waiting: () => [...lines.values()].reduce((sum, { waiting }) => sum + waiting.length, 0),
  }
}
