// Rates of a tenant: a bucket that holds what some seconds may take and fills as time goes by.

import { GraphQLError } from 'graphql'

/** When trying again makes sense where nothing tells better. */
const againMs = 1000

/** What is refused for its number is told so, and when to try again. */
export function rateLimited(message: string, retryAfterMs = againMs): GraphQLError {
  const http = { status: 429, headers: { 'retry-after': String(Math.ceil(retryAfterMs / 1000)) } }
  return new GraphQLError(message, { extensions: { code: 'RATE_LIMITED', retryAfterMs, http } })
}

/** Tenants remembered; one that is forgotten begins with a full bucket. */
const tenantsMax = 10_000

/** Takes so many of the tenant's, one if nothing is said; gives 0, or after how many ms there are as many again. */
export type Rate = (tenant: string, count?: number) => number

/**
 * `perSecond` 0: no limit. `now` in ms. `burstSeconds`: how much may come at once, in seconds of the rate. Whoever asks for more than that at once needs
 * a full bucket, and waits longer afterwards.
 */
export function createRate(perSecond: number, now: () => number, burstSeconds = 2): Rate {
  const buckets = new Map<string, { left: number; at: number }>()
  const full = perSecond * burstSeconds
  return (tenant, count = 1) => {
    if (perSecond === 0 || count === 0) return 0
    const at = now()
    const before = buckets.get(tenant) ?? { left: full, at }
    const left = Math.min(full, before.left + ((at - before.at) / 1000) * perSecond)
    const needed = Math.min(count, full)
    const isEnough = left >= needed
    buckets.delete(tenant)
    buckets.set(tenant, { left: isEnough ? left - count : left, at })
    if (buckets.size > tenantsMax) buckets.delete(buckets.keys().next().value!)
    return isEnough ? 0 : Math.ceil(((needed - left) / perSecond) * 1000)
  }
}
