// Rates of a tenant: a bucket that holds what two seconds may take and fills as time goes by.

/** How much may come at once, in seconds of the rate. */
const burstSeconds = 2
/** Tenants remembered; one that is forgotten begins with a full bucket. */
const tenantsMax = 10_000

/** Takes one of the tenant's; gives 0, or after how many ms there is one again. `perSecond` 0: no limit. `now` in ms. */
export function createRate(perSecond: number, now: () => number): (tenant: string) => number {
  const buckets = new Map<string, { left: number; at: number }>()
  const full = perSecond * burstSeconds
  return (tenant) => {
    if (perSecond === 0) return 0
    const at = now()
    const before = buckets.get(tenant) ?? { left: full, at }
    const left = Math.min(full, before.left + ((at - before.at) / 1000) * perSecond)
    const isEnough = left >= 1
    buckets.delete(tenant)
    buckets.set(tenant, { left: isEnough ? left - 1 : left, at })
    if (buckets.size > tenantsMax) buckets.delete(buckets.keys().next().value!)
    return isEnough ? 0 : Math.ceil(((1 - left) / perSecond) * 1000)
  }
}
