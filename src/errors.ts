// The errors of the ground: few classes, each with what a caller can decide on. Expected outcomes (conflict, fenced, stale) are values,
// not errors; see event-log.ts. What is not listed here is a surprise and gets masked at the edge.

export { asError } from './thrown.ts'

/** The log holds an event type that this version does not know (a newer one wrote it). The session cannot be folded by this version. */
export class UnknownEventError extends Error {
  override name = 'UnknownEventError'
  constructor(
    readonly sessionId: string,
    readonly seq: number,
    readonly type: string,
  ) {
    super(`event ${seq} of ${sessionId} has the type "${type}", which this version does not know`)
  }
}

/** The projection or a constraint refused the append: a programming error or rows that do not match the log. Nothing was written. */
export class AppendRefusedError extends Error {
  override name = 'AppendRefusedError'
  constructor(
    readonly sessionId: string,
    readonly sqlState: string,
    readonly constraint: string | null,
    reason: string,
  ) {
    super(`append to ${sessionId} refused (${sqlState}${constraint ? ` ${constraint}` : ''}): ${reason}`)
  }
}

/**
 * Did the claim move between the fence's look and the write, as when a renewal that began before the lease ran out commits just then?
 * Nothing was written, and on a second look the fence sees it.
 */
export const isClaimRace = (thrown: unknown) => thrown instanceof AppendRefusedError && thrown.sqlState === 'HF003'

/** The database could not be reached, or transient failures used up the retry budget. Nothing is half written; try again later. */
export class UnavailableError extends Error {
  override name = 'UnavailableError'
  constructor(what: string, options?: ErrorOptions) {
    super(`${what}: the database is not available at the moment, try again`, options)
  }
}

/** Others keep moving what a caller wants to change, or too many wait for the same. Nothing was done; the same call can be made again. */
export class BusyError extends Error {
  override name = 'BusyError'
}

/** The process has too much in memory for what was asked. Nothing was done; try again after `retryAfterMs`. */
export class OverloadedError extends Error {
  override name = 'OverloadedError'
  readonly retryAfterMs = 1000
  constructor() {
    super('the server has too much to do at the moment, try again')
  }
}
