import type { SessionEventFieldsFragment } from './generated/graphql.ts'
import type { Problem } from './problem.ts'
import type { SessionView } from './view.ts'

/** An item of a session's stream. */
export type StreamItem = SessionEventFieldsFragment

/** Why nothing follows a session any more. */
export type FollowEnd =
  /** The caller closed it. */
  | { reason: 'CLOSED' }
  /** There is no such session, or it is another tenant's. */
  | { reason: 'NOT_FOUND' }
  /** The token was not taken, and neither was the one that was asked for after that. */
  | { reason: 'UNAUTHENTICATED'; problem: Problem }
  /** The server refuses the request itself; asking again would not help. */
  | { reason: 'REFUSED'; problem: Problem }
  /** As many failures in a row as `retries` allows. */
  | { reason: 'GAVE_UP'; problem: Problem }

/** How current the view is. */
export type FollowState =
  /** The snapshot is being read. */
  | { phase: 'LOADING' }
  /** The stream has been asked for; what happened meanwhile is coming in. */
  | { phase: 'CONNECTING' }
  /** The view is what the server has. */
  | { phase: 'LIVE' }
  /** The connection is lost; the next try is made in `delayMs`. */
  | { phase: 'OFFLINE'; failures: number; delayMs: number; problem: Problem }
  | { phase: 'ENDED'; end: FollowEnd }

/** What can be shown. A new object with each change, so that it can be compared by identity. */
export interface Followed {
  /** Null until the snapshot is there. */
  view: SessionView | null
  state: FollowState
  /** Whether there are messages before the first of the view: `loadEarlier` gets them. */
  hasEarlier: boolean
}
