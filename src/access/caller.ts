// Who asks, and for how long that counts. What comes in holds on to a caller, never to the token.

/** A tenant, for as long as the token that named it counts. */
export interface Caller {
  readonly tenant: string
  /** The token has expired or was revoked: nothing new is done for this caller. */
  hasEnded(): boolean
  /** Calls `then` once when it ends, at the latest half a second after; returns how to stop waiting. */
  whenEnded(then: () => void): () => void
}

/** Why there is no caller. `message` is meant for whoever sent the token. */
export interface Refused {
  code: 'UNAUTHENTICATED' | 'UNAVAILABLE'
  message: string
}

export const isRefused = (found: Caller | Refused): found is Refused => 'code' in found

/** What a caller who has ended is told. */
export const endedMessage = 'the token has expired or was revoked: come back with a new one'

/** Whose everything is while no authentication is configured. */
const onlyTenant = 'default'

/** Anybody, for ever: the caller while no authentication is configured. */
export const anybody: Caller = { tenant: onlyTenant, hasEnded: () => false, whenEnded: () => () => {} }
