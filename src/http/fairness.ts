import { type ExecutionResult, getOperationAST } from 'graphql'
import { isAsyncIterable, type Plugin } from 'graphql-yoga'
import { onBehalfOf } from '../behalf.ts'
import { createPlaces } from '../places.ts'
import type { Core } from '../runner/core.ts'
import { admissionsOf } from '../schema/admissions.ts'
import type { Context } from '../schema/context.ts'
import { createRate, type Rate, rateLimited } from './rates.ts'

/** Work that comes in bunches, as an import does, is no flood. */
const admissionBurstSeconds = 10

type Why = 'rate' | 'admissions' | 'waiting' | 'streams'

/**
 * No tenant takes the process from the others: operations are carried out in places that tenants get in turn, streams are counted, and rates hold. The same on every transport and for each operation of a batch. What is refused has the code
 * RATE_LIMITED and says when to try again.
 */
export function useFairness({ config, metrics }: Core): Plugin<Context> {
  const places = createPlaces({
    most: config.maxOperations,
    mostOfTenant: config.tenantOperations,
    waitingOfTenant: config.tenantWaiting,
  })
  const queries = createRate(config.tenantQueriesPerSecond, () => performance.now())
  const mutations = createRate(config.tenantMutationsPerSecond, () => performance.now())
  const admitted = createRate(config.tenantAdmissionsPerSecond, () => performance.now(), admissionBurstSeconds)
  const streams = new Map<string, number>()

  function refused(why: Why, message: string, retryAfterMs?: number): ExecutionResult {
    metrics.rateLimited.inc({ why })
    return { errors: [rateLimited(message, retryAfterMs)] }
  }

  async function inPlace<R>(context: Context, rate: Rate, work: () => R | Promise<R>) {
    const { tenant, gone } = context
    const waitMs = rate(tenant)
    if (waitMs > 0) return refused('rate', 'too many operations a second', waitMs)
    metrics.operationsWaiting.inc()
    const leave = await places.enter(tenant, gone).finally(() => metrics.operationsWaiting.dec())
    if (leave === null) return refused('waiting', 'too many operations wait to be carried out')
    metrics.operations.inc()
    try {
      return await onBehalfOf(tenant, work)
    } finally {
      metrics.operations.dec()
      leave()
    }
  }

  /** Its items take places too: a change that thousands of streams tell of is answered for as many at once as the tenant may have, no more. */
  async function subscribed(context: Context, subscribe: () => unknown) {
    const { tenant, gone } = context
    let leave: (() => void) | null = null
    context.itemPlace = async () => {
      // Bounded by the number of streams: each answers one item at a time.
      leave = await places.enter(tenant, gone, true)
    }
    const result = await inPlace(context, queries, subscribe)
    return isAsyncIterable(result) ? eachOf(tenant, result, () => leave?.()) : result
  }

  return {
    onExecute({ args, executeFn, setExecuteFn }) {
      const isMutation = getOperationAST(args.document, args.operationName)?.operation === 'mutation'
      const rate = isMutation ? mutations : queries
      const count = isMutation ? admissionsOf(args.document, args.operationName) : 0
      setExecuteFn(async (args) => {
        const context = args.contextValue as Context
        const waitMs = admitted(context.tenant, count)
        if (waitMs > 0) return refused('admissions', 'too many admissions a second', waitMs)
        return inPlace(context, rate, () => executeFn(args))
      })
    },
    onSubscribe({ subscribeFn, setSubscribeFn }) {
      setSubscribeFn((args) => {
        const context = args.contextValue as Context
        const { tenant, gone } = context
        const open = streams.get(tenant) ?? 0
        if (open >= config.tenantStreams) return refused('streams', `at most ${config.tenantStreams} streams at once`)
        streams.set(tenant, open + 1)
        whenOver(gone, () => {
          const left = streams.get(tenant)! - 1
          if (left === 0) streams.delete(tenant)
          else streams.set(tenant, left)
        })
        return subscribed(context, () => subscribeFn(args))
      })
    },
  }
}

/** The same items, each made on the tenant's behalf too; calls `out` after each. */
function eachOf<T>(tenant: string, items: AsyncIterable<T>, out: () => void): AsyncIterableIterator<T> {
  const source = items[Symbol.asyncIterator]()
  const end = { done: true, value: undefined } as const
  return {
    next: () => onBehalfOf(tenant, () => source.next()).finally(out),
    return: async () => (await source.return?.()) ?? end,
    throw: async (error) => {
      await source.return?.()
      throw error
    },
    [Symbol.asyncIterator]() {
      return this
    },
  }
}

function whenOver(gone: AbortSignal, then: () => void): void {
  if (gone.aborted) then()
  else gone.addEventListener('abort', then, { once: true })
}
