// Places for what is carried out at the same time, given to tenants in turn: whoever asks for ten thousand things at once waits for itself.

export interface PlacesOptions {
  /** Of all together. */
  most: number
  /** Of one tenant. */
  mostOfTenant: number
  /** Of one tenant that may wait. */
  waitingOfTenant: number
}

export interface Places {
  /**
   * Resolves to what gives the place back once there is one; null when too many of the tenant wait, or once the signal is aborted. `always`: it waits
   * however many do, as something else bounds them.
   */
  enter(tenant: string, gone: AbortSignal, always?: boolean): Promise<(() => void) | null>
  running(): number
  waiting(): number
}

interface Waiter {
  go(leave: (() => void) | null): void
}

interface Tenant {
  running: number
  waiting: Set<Waiter>
}

export function createPlaces({ most, mostOfTenant, waitingOfTenant }: PlacesOptions): Places {
  /** In the order in which they get their next place: who has got one goes to the end. */
  const tenants = new Map<string, Tenant>()
  let running = 0

  function start(name: string, tenant: Tenant): () => void {
    running++
    tenant.running++
    tenants.delete(name)
    tenants.set(name, tenant)
    let left = false
    return () => {
      if (left) return
      left = true
      running--
      tenant.running--
      next()
      if (tenant.running === 0 && tenant.waiting.size === 0) tenants.delete(name)
    }
  }

  function next(): void {
    if (running >= most) return
    for (const [name, tenant] of tenants) {
      const [first] = tenant.waiting
      if (first === undefined || tenant.running >= mostOfTenant) continue
      tenant.waiting.delete(first)
      first.go(start(name, tenant))
      return
    }
  }

  return {
    async enter(name, gone, always = false) {
      if (gone.aborted) return null
      const tenant = tenants.get(name) ?? { running: 0, waiting: new Set() }
      if (running < most && tenant.running < mostOfTenant && tenant.waiting.size === 0) return start(name, tenant)
      if (!always && tenant.waiting.size >= waitingOfTenant) return null
      tenants.set(name, tenant)
      return new Promise((resolve) => {
        const away = () => {
          if (tenant.waiting.delete(waiter)) resolve(null)
          if (tenant.running === 0 && tenant.waiting.size === 0) tenants.delete(name)
        }
        const waiter: Waiter = {
          go(leave) {
            gone.removeEventListener('abort', away)
            resolve(leave)
          },
        }
        tenant.waiting.add(waiter)
        gone.addEventListener('abort', away, { once: true })
      })
    },
    running: () => running,
    waiting: () => [...tenants.values()].reduce((sum, { waiting }) => sum + waiting.size, 0),
  }
}
