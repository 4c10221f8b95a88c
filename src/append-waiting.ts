// The appends of a queue that wait, and which of them go next: many small ones together, large ones one by one, tenants in turn. At most one per
// session is under way, in order of arrival.

import type { PreparedAppend } from './append.ts'

const groupSizeMax = 128

/** What waits. */
export interface WaitingAppend {
  prepared: PreparedAppend
  /** Whose turn it takes if it is large. */
  holder: string | null
}

export interface Waiting<E extends WaitingAppend> {
  /** To the end, or before all others. */
  add(entry: E, first?: boolean): void
  /** The next ones that share a statement, a fair part of them if so many statements are free: none if none are small and free. */
  takeGroup(free: number): E[]
  /** The next large one: of whoever has waited longest for a turn. */
  takeLarge(): E | undefined
  /** What was taken is over: its session's next one may go. */
  done(sessionId: string): void
  count(): number
  bytes(): number
  /** Nothing waits, and nothing that was taken is under way. */
  isIdle(): boolean
}

/** `groupBytesMax`: what is larger goes by itself. */
export function createWaiting<E extends WaitingAppend>(groupBytesMax: number): Waiting<E> {
  let waiting: E[] = []
  let bytes = 0
  let large = 0
  const busy = new Set<string>()
  /** Who has had its turn for a large one, since there were last none; the higher, the later. */
  const turns = new Map<string | null, number>()

  const isLarge = ({ prepared }: E) => prepared.bytes > groupBytesMax

  /** The first waiting append of each session that has none under way. */
  function ready(): E[] {
    const seen = new Set(busy)
    return waiting.filter(({ prepared }) => {
      const id = prepared.request.sessionId
      const isFirst = !seen.has(id)
      seen.add(id)
      return isFirst
    })
  }

  function takeOut(entries: readonly E[]): void {
    const taken = new Set(entries)
    waiting = waiting.filter((entry) => !taken.has(entry))
    for (const entry of entries) {
      busy.add(entry.prepared.request.sessionId)
      bytes -= entry.prepared.bytes
      if (isLarge(entry)) large--
    }
  }

  return {
    add(entry, first = false) {
      if (first) waiting.unshift(entry)
      else waiting.push(entry)
      bytes += entry.prepared.bytes
      if (isLarge(entry)) large++
    },
    takeGroup(free) {
      const small = ready().filter((entry) => !isLarge(entry))
      const size = Math.min(groupSizeMax, Math.ceil(small.length / free))
      const taken: E[] = []
      let together = 0
      // The first is taken in any case, so what did not fit is taken first of all in a later group.
      for (const entry of small) {
        if (taken.length === size) break
        if (taken.length > 0 && together + entry.prepared.bytes > groupBytesMax) continue
        taken.push(entry)
        together += entry.prepared.bytes
      }
      takeOut(taken)
      return taken
    },
    takeLarge() {
      if (large === 0) {
        turns.clear()
        return undefined
      }
      const turnOf = ({ holder }: E) => turns.get(holder) ?? 0
      let next: E | undefined
      for (const entry of ready())
        if (isLarge(entry) && (next === undefined || turnOf(entry) < turnOf(next))) next = entry
      if (next === undefined) return undefined
      turns.set(next.holder, Math.max(0, ...turns.values()) + 1)
      takeOut([next])
      return next
    },
    done: (sessionId) => void busy.delete(sessionId),
    count: () => waiting.length,
    bytes: () => bytes,
    isIdle: () => waiting.length === 0 && busy.size === 0,
  }
}
