import { createRemoteJWKSet, errors, type JWTPayload, type JWTVerifyGetKey, jwtVerify } from 'jose'
import { isTenant } from '../config/api-keys.ts'
import type { Jwt } from '../config.ts'
import type { Timers } from '../pull.ts'
import type { Caller } from './caller.ts'

/** Of the issuer's keys: an answer takes 5 s at most, counts for 10 minutes, and a key id that is not in it asks again after 2 s. */
const jwks = { timeoutDuration: 5000, cacheMaxAge: 600_000, cooldownDuration: 2000 }
/** A timer counts another clock than the one that tokens go by, which may be set or have slept. */
const lookMs = 30_000

/** What is wrong with a token: `reason` is for the log and holds no part of it. */
export type Wrong = { wrong: 'INVALID' | 'EXPIRED' | 'UNAVAILABLE'; reason: string }

/** Verifies signature, times, issuer and audience of tokens and finds their tenant. A token has to expire. */
export function createJwtVerifier({ key, algorithms, issuer, audience, tenantClaim }: Jwt, clock: Timers) {
  const keyOf: Uint8Array | JWTVerifyGetKey = 'secret' in key ? key.secret : createRemoteJWKSet(key.jwksUrl, jwks)

  return async function callerOf(token: string): Promise<Caller | Wrong> {
    const options = {
      algorithms: [...algorithms],
      requiredClaims: ['exp'],
      currentDate: new Date(clock.now()),
      ...(issuer !== undefined && { issuer }),
      ...(audience !== undefined && { audience: typeof audience === 'string' ? audience : [...audience] }),
    }
    let claims: JWTPayload
    try {
      claims = (await jwtVerify(token, keyOf as JWTVerifyGetKey, options)).payload
    } catch (thrown) {
      return wrongOf(thrown)
    }
    const tenant = claims[tenantClaim]
    if (!isTenant(tenant)) return { wrong: 'INVALID', reason: `the claim ${tenantClaim} names no tenant` }
    return until(claims.exp! * 1000, tenant, clock)
  }
}

function wrongOf(thrown: unknown): Wrong {
  if (thrown instanceof errors.JWTExpired) return { wrong: 'EXPIRED', reason: thrown.code }
  if (thrown instanceof errors.JWTClaimValidationFailed)
    return { wrong: 'INVALID', reason: `${thrown.code} ${thrown.claim} ${thrown.reason}` }
  // What a token can be wrong in has codes of its own; anything else happened on the way to the issuer's keys.
  const code = thrown instanceof errors.JOSEError ? thrown.code : 'ERR_JWKS_FETCH'
  const isTokens =
    /^ERR_(JW[ST]_|JOSE_(ALG_NOT_ALLOWED|NOT_SUPPORTED)|JWKS_(NO_MATCHING_KEY|MULTIPLE_MATCHING_KEYS))/.test(code)
  return { wrong: isTokens ? 'INVALID' : 'UNAVAILABLE', reason: code }
}

function until(expiresAt: number, tenant: string, clock: Timers): Caller {
  const hasEnded = () => clock.now() >= expiresAt
  return {
    tenant,
    hasEnded,
    whenEnded(then) {
      let cancel = () => {}
      const wait = () => {
        const left = Math.min(Math.max(expiresAt - clock.now(), 0), lookMs)
        cancel = clock.setTimeout(() => (hasEnded() ? then() : wait()), left)
      }
      wait()
      return () => cancel()
    },
  }
}
