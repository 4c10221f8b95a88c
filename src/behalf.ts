// On whose behalf the process does what it does just now: a tenant's, or its own. What is begun inside stays with it, however many awaits later.
// Whatever goes on for longer than the request that began it, or is shared, is the process's own.

import { AsyncLocalStorage } from 'node:async_hooks'

const storage = new AsyncLocalStorage<string | null>()

/** Runs `work` for a tenant: it takes its turn where tenants take turns. Awaited inside, as the database's client begins only when it is. */
export const onBehalfOf = <R>(tenant: string, work: () => R | PromiseLike<R>): Promise<R> =>
  storage.run(tenant, async () => await work())

/** Runs `work` for the process itself, whoever it was that caused it. */
export const onOwnBehalf = <R>(work: () => R | PromiseLike<R>): Promise<R> =>
  storage.run(null, async () => await work())

/** The tenant; null: the process itself. */
export const behalf = (): string | null => storage.getStore() ?? null
