// The public keys of an issuer. One that it takes out of its set ends whoever is connected by it: a request is checked when it comes, but a
// socket or a stream lives for as long as its token, which may be long after.

import {
  type CryptoKey,
  calculateJwkThumbprint,
  createLocalJWKSet,
  createRemoteJWKSet,
  errors,
  exportJWK,
  type JSONWebKeySet,
  type JWTHeaderParameters,
  type JWTVerifyGetKey,
} from 'jose'
import { asError } from '../errors.ts'
import type { Log } from '../log.ts'
import type { Timers } from '../pull.ts'

/** An answer takes 5 s at most, counts for 10 minutes, and a key id that is not in it asks again after 2 s. */
const fetching = { timeoutDuration: 5000, cacheMaxAge: 600_000, cooldownDuration: 2000 }
/** How often the set is fetched while somebody is connected by one of its keys: the ten minutes above hold for them too. */
const lookAgainMs = 240_000

/** The set could not be fetched, which says nothing about a token. */
export class KeysUnavailable extends Error {
  override name = 'KeysUnavailable'
}

/** One key for as long as the issuer publishes it. */
export interface Standing {
  isTaken(): boolean
  /** Calls `then` once when it is taken out; returns how to stop waiting. */
  whenTaken(then: () => void): () => void
}

export interface PublishedKeys {
  /** The key for a token. Throws KeysUnavailable, or what is wrong with the token or with the key that it names. */
  readonly keyOf: JWTVerifyGetKey
  /** How the key stands by which a token with this header was verified. */
  standingOf(header: JWTHeaderParameters, key: CryptoKey): Promise<Standing>
  close(): void
}

interface Known {
  header: JWTHeaderParameters
  print: string
  taken: boolean
  waiting: Set<() => void>
}

const printOf = async (key: CryptoKey) => calculateJwkThumbprint(await exportJWK(key))

/** Is this still the key that a token with its header is verified by? */
async function isIn(set: JSONWebKeySet, { header, print }: Known): Promise<boolean> {
  try {
    return (await printOf(await createLocalJWKSet(set)(header))) === print
  } catch {
    return false
  }
}

/** The keys that are published at this address. Fetched when a token needs them. */
export function createPublishedKeys(url: URL, clock: Timers, log: Log): PublishedKeys {
  const remote = createRemoteJWKSet(url, fetching)
  // No more entries than the issuer has keys: only verified tokens make one, and it goes with its key.
  const known = new Map<string, Known>()
  let compared: JSONWebKeySet | undefined
  let cancel: (() => void) | null = null

  async function compare(): Promise<void> {
    const set = remote.jwks()
    if (set === undefined || set === compared) return
    compared = set
    for (const [name, one] of [...known]) {
      if (await isIn(set, one)) continue
      one.taken = true
      known.delete(name)
      for (const then of [...one.waiting]) then()
    }
  }

  /** Only while somebody waits: who has gone needs no look. */
  function lookAgain(): void {
    if (cancel !== null || ![...known.values()].some(({ waiting }) => waiting.size > 0)) return
    cancel = clock.setTimeout(async () => {
      try {
        await remote.reload()
        await compare()
      } catch (thrown) {
        // An issuer that is away takes nothing back.
        log.error({ reason: asError(thrown).name }, "the issuer's keys cannot be fetched: those fetched last count")
      }
      cancel = null
      lookAgain()
    }, lookAgainMs)
  }

  return {
    async keyOf(header, token) {
      try {
        return await remote(header, token)
      } catch (thrown) {
        if (thrown instanceof errors.JWKSNoMatchingKey || thrown instanceof errors.JWKSMultipleMatchingKeys)
          throw thrown
        const set = remote.jwks()
        // The set is here, and the key in it is no key: that is no matter of the way to it.
        if (set !== undefined) await createLocalJWKSet(set)(header).catch(throwUnlessMissing)
        throw new KeysUnavailable('the set could not be fetched', { cause: thrown })
      } finally {
        await compare()
      }
    },
    async standingOf(header, key) {
      const made = { header, print: await printOf(key), taken: false, waiting: new Set<() => void>() }
      const name = JSON.stringify([header.alg, header.kid, made.print])
      let one = known.get(name)
      if (one === undefined) {
        one = made
        known.set(name, one)
        // The set may have changed since the token was verified, before this key was known here.
        const set = remote.jwks()
        if (set !== undefined && !(await isIn(set, one))) {
          one.taken = true
          known.delete(name)
        }
      }
      const standing = one
      return {
        isTaken: () => standing.taken,
        whenTaken(then) {
          const once = () => {
            standing.waiting.delete(once)
            then()
          }
          standing.waiting.add(once)
          lookAgain()
          const stop = standing.taken ? clock.setTimeout(once, 0) : () => {}
          return () => {
            stop()
            standing.waiting.delete(once)
          }
        },
      }
    },
    close() {
      cancel?.()
      cancel = () => {}
    },
  }
}

function throwUnlessMissing(thrown: unknown): void {
  if (!(thrown instanceof errors.JWKSNoMatchingKey)) throw thrown
}
