// From the token that came with a request or a connection to who asks. Everything that needs a token goes through here first.

import type { Auth } from '../config.ts'
import type { Log } from '../log.ts'
import type { Timers } from '../pull.ts'
import { anybody, type Caller, type Refused } from './caller.ts'
import { createJwtVerifier } from './jwt.ts'
import { createKeys } from './keys.ts'

/** Headers of 16 KB are all that HTTP lets in; a WebSocket's first message may be larger. */
const tokenLengthMax = 8192

const messages = {
  MISSING: 'a token is needed: "Authorization: Bearer TOKEN", over WebSocket in the payload of connection_init',
  INVALID: 'the token is not valid',
  EXPIRED: 'the token has expired',
  UNAVAILABLE: 'the token cannot be checked at the moment, try again',
}

export interface Gate {
  /** Whether a token is needed at all. */
  readonly guarded: boolean
  /**
   * Who sends this token, which is what stands behind `Bearer`; never throws. UNAVAILABLE: the issuer's keys cannot be fetched, which says
   * nothing about the token. The reason goes to the log at debug; the token goes nowhere.
   */
  callerOf(token: string | undefined, requestId: string): Promise<Caller | Refused>
  close(): void
}

/** The gate of a configuration. Without authentication everybody is let in as the tenant `default`. */
export function createGate(
  auth: Auth | undefined,
  { clock, log, refusals }: { clock: Timers; log: Log; refusals?: { inc(): void } },
): Gate {
  if (auth === undefined) return { guarded: false, callerOf: async () => anybody, close() {} }
  const keys = createKeys(auth, clock, log)
  const jwts = auth.jwt && createJwtVerifier(auth.jwt, clock, log)

  async function find(token: string | undefined): Promise<Caller | { wrong: keyof typeof messages; reason: string }> {
    if (token === undefined) return { wrong: 'MISSING', reason: 'no token' }
    if (token.length > tokenLengthMax) return { wrong: 'INVALID', reason: 'too long' }
    return keys.callerOf(token) ?? (await jwts?.callerOf(token)) ?? { wrong: 'INVALID', reason: 'no such key' }
  }

  return {
    guarded: true,
    async callerOf(token, requestId) {
      const found = await find(token)
      if (!('wrong' in found)) return found
      const { wrong, reason } = found
      refusals?.inc()
      if (wrong === 'UNAVAILABLE') log.error({ requestId, reason }, "the issuer's keys cannot be fetched")
      else log.debug({ requestId, reason }, 'refused: not authenticated')
      return { code: wrong === 'UNAVAILABLE' ? 'UNAVAILABLE' : 'UNAUTHENTICATED', message: messages[wrong] }
    },
    close() {
      keys.close()
      jwts?.close()
    },
  }
}

/** The token behind `Bearer`; undefined if there is none in that form. */
export function bearerToken(authorization: unknown): string | undefined {
  return typeof authorization === 'string' ? /^Bearer +([\w.~+/=-]+) *$/i.exec(authorization)?.[1] : undefined
}
