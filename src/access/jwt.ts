import { type CryptoKey, errors, type JWTVerifyGetKey, jwtVerify } from 'jose'
import { isTenant } from '../config/api-keys.ts'
import type { Jwt } from '../config.ts'
import type { Log } from '../log.ts'
import type { Timers } from '../pull.ts'
import type { Caller } from './caller.ts'
import { createPublishedKeys, KeysUnavailable, type Standing } from './published-keys.ts'

/** A timer counts another clock than the one that tokens go by, which may be set or have slept. */
const lookMs = 30_000

/** What is wrong with a token: `reason` is for the log and holds no part of it. */
export type Wrong = { wrong: 'INVALID' | 'EXPIRED' | 'UNAVAILABLE'; reason: string }

/** Verifies signature, times, issuer and audience of tokens and finds their tenant. A token has to expire. */
export function createJwtVerifier({ key, algorithms, issuer, audience, tenantClaim }: Jwt, clock: Timers, log: Log) {
  const published = 'jwksUrl' in key ? createPublishedKeys(key.jwksUrl, clock, log) : undefined
  const keyOf: JWTVerifyGetKey = published?.keyOf ?? (async () => (key as { secret: Uint8Array }).secret)

  async function callerOf(token: string): Promise<Caller | Wrong> {
    const options = {
      algorithms: [...algorithms],
      requiredClaims: ['exp'],
      currentDate: new Date(clock.now()),
      ...(issuer !== undefined && { issuer }),
      ...(audience !== undefined && { audience: typeof audience === 'string' ? audience : [...audience] }),
    }
    try {
      const { payload, protectedHeader, key: used } = await jwtVerify(token, keyOf, options)
      const tenant = payload[tenantClaim]
      if (!isTenant(tenant)) return { wrong: 'INVALID', reason: `the claim ${tenantClaim} names no tenant` }
      const standing = await published?.standingOf(protectedHeader, used as CryptoKey)
      return until(payload.exp! * 1000, tenant, clock, standing)
    } catch (thrown) {
      return wrongOf(thrown)
    }
  }
  return { callerOf, close: () => published?.close() }
}

function wrongOf(thrown: unknown): Wrong {
  if (thrown instanceof errors.JWTExpired) return { wrong: 'EXPIRED', reason: thrown.code }
  if (thrown instanceof errors.JWTClaimValidationFailed)
    return { wrong: 'INVALID', reason: `${thrown.code} ${thrown.claim} ${thrown.reason}` }
  if (thrown instanceof KeysUnavailable) {
    const { cause } = thrown
    return { wrong: 'UNAVAILABLE', reason: cause instanceof errors.JOSEError ? cause.code : 'ERR_JWKS_FETCH' }
  }
  // Whatever else is wrong is so with the token or with the key that it names, which may be too weak or no key at all: no repeat mends it.
  return { wrong: 'INVALID', reason: thrown instanceof errors.JOSEError ? thrown.code : 'ERR_JWK_UNUSABLE' }
}

function until(expiresAt: number, tenant: string, clock: Timers, standing?: Standing): Caller {
  const hasEnded = () => clock.now() >= expiresAt || standing?.isTaken() === true
  return {
    tenant,
    hasEnded,
    whenEnded(then) {
      let cancel = () => {}
      const wait = () => {
        const left = Math.min(Math.max(expiresAt - clock.now(), 0), lookMs)
        cancel = clock.setTimeout(() => (hasEnded() ? end() : wait()), left)
      }
      const forget = standing?.whenTaken(() => end()) ?? (() => {})
      const stop = () => {
        cancel()
        forget()
      }
      const end = () => {
        stop()
        then()
      }
      wait()
      return stop
    },
  }
}
