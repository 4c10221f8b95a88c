// Tenants take the connections of the pool in turn, and none has more than its part: its reads may take seconds each, and whoever comes next
// would wait behind all of them. What the process does on its own behalf (the runner, appends, recovery) waits for no turn.

import { behalf } from './behalf.ts'
import { OverloadedError } from './errors.ts'
import type { Places } from './places.ts'

interface Queries {
  queryRaw(query: unknown): Promise<unknown>
  executeRaw(query: unknown): Promise<unknown>
}
interface Transaction extends Queries {
  commit(): Promise<void>
  rollback(): Promise<void>
}
interface Connected extends Queries {
  startTransaction(...level: unknown[]): Promise<Transaction>
}

/**
 * How many connections of a pool tenants may have together, and one of them. Some are the process's own; the part of one leaves as many to the
 * others, and when there is no other (`alone`) it has them all.
 */
export function turnsOfPool(pool: number, alone: boolean): { most: number; mostOfTenant: number } {
  const most = Math.max(1, pool - Math.max(1, Math.floor(pool / 5)))
  return { most, mostOfTenant: alone ? most : Math.max(1, Math.floor(most / 2)) }
}

/**
 * Makes the adapters of a factory wait for a place before they take a connection for a tenant, until that is given back. Who waits for longer
 * than `waitMs`, or behind too many of its own, gets OverloadedError.
 */
export function withConnectionTurns<F extends object>(factory: F, places: Places, waitMs: number): F {
  async function enter(): Promise<() => void> {
    const tenant = behalf()
    if (tenant === null) return () => {}
    const late = new AbortController()
    const timer = setTimeout(() => late.abort(), waitMs)
    const leave = await places.enter(tenant, late.signal)
    clearTimeout(timer)
    if (leave === null) throw new OverloadedError()
    return leave
  }
  async function during<R>(work: () => Promise<R>): Promise<R> {
    const leave = await enter()
    try {
      return await work()
    } finally {
      leave()
    }
  }

  const target = factory as unknown as { connect(): Promise<Connected> }
  const connect = target.connect.bind(target)
  target.connect = async () => {
    const adapter = await connect()
    for (const name of ['queryRaw', 'executeRaw'] as const) {
      const send = adapter[name].bind(adapter)
      adapter[name] = (query) => during(() => send(query))
    }
    const startTransaction = adapter.startTransaction.bind(adapter)
    adapter.startTransaction = async (...level) => {
      const leave = await enter()
      try {
        return leavesAtItsEnd(await startTransaction(...level), leave)
      } catch (thrown) {
        leave()
        throw thrown
      }
    }
    return adapter
  }
  return factory
}

/** Its connection goes back to the pool with either; `leave` may be called twice. */
function leavesAtItsEnd(transaction: Transaction, leave: () => void): Transaction {
  for (const name of ['commit', 'rollback'] as const) {
    const end = transaction[name].bind(transaction)
    transaction[name] = () => end().finally(leave)
  }
  return transaction
}
