// Standing in the door of a core's log, between what it decides and the database.
import type { AppendOutcome, AppendRequest } from '../../src/event-log.ts'
import type { EventType } from '../../src/events.ts'
import type { Core } from '../../src/runner/core.ts'
import { gate } from './provider.ts'

export type Matches = (request: AppendRequest) => boolean
export type Act = (go: () => Promise<AppendOutcome>, nth: number, request: AppendRequest) => Promise<AppendOutcome>

export const hasEvent =
  (type: EventType): Matches =>
  (request) =>
    request.events.some((each) => each.type === type)

/**
 * `act` is called with each append of this core that matches, the first as number 1, and says what becomes of it. Counts, so that a test
 * can tell that it did stand in the way.
 */
export function atAppend(core: Core, matches: Matches, act: Act): { count: number } {
  const { append } = core.eventLog
  const met = { count: 0 }
  core.eventLog = {
    ...core.eventLog,
    append: (request) => (matches(request) ? act(() => append(request), ++met.count, request) : append(request)),
  }
  return met
}

/** Every request to the log that this core makes from now on, as it is made. */
export function spyAppends(core: Core): AppendRequest[] {
  const seen: AppendRequest[] = []
  atAppend(
    core,
    () => true,
    (go, _nth, request) => {
      seen.push(request)
      return go()
    },
  )
  return seen
}

/** Holds back the first append that matches, before it reaches the database, until `release`. */
export function holdAppend(core: Core, matches: Matches): { held: Promise<void>; release(): void } {
  const reached = gate()
  const released = gate()
  atAppend(core, matches, async (go, nth) => {
    if (nth === 1) {
      reached.open()
      await released.promise
    }
    return go()
  })
  return { held: reached.promise, release: released.open }
}
