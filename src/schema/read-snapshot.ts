import { setMaxListeners } from 'node:events'
import { type ExecutionResult, GraphQLError, getOperationAST, Kind, type OperationDefinitionNode } from 'graphql'
import type { Plugin } from 'graphql-yoga'
import type { Release } from '../byte-budget.ts'
import { asError } from '../errors.ts'
import { goneError, mustStay, smallBytes, takeRoom } from './account.ts'
import type { Context } from './context.ts'
import { watchedReads } from './watched-reads.ts'

// These ask other servers or nobody; a transaction would only hold a connection meanwhile.
const outsideDatabase = new Set(['__schema', '__type', '__typename', 'models', 'tools'])

/**
 * Runs each query operation inside one read-only REPEATABLE READ transaction, so that all its fields see one point in time: a stream
 * that starts at `session { seq }` continues exactly what the same operation showed (STREAM-24).
 */
export function useReadSnapshot(): Plugin<Context> {
  return {
    onExecute({ args, executeFn, setExecuteFn }) {
      const operation = getOperationAST(args.document, args.operationName)
      if (operation?.operation !== 'query' || !readsDatabase(operation)) return
      setExecuteFn(async (args): Promise<ExecutionResult> => {
        const context = args.contextValue as Context
        let release: Release = () => {}
        try {
          const { core, gone } = context
          // Any number of its values listen; that is no leak.
          setMaxListeners(0, gone)
          // Waits without a connection. Held as long as the answer is.
          release = await takeRoom(context, smallBytes)
          gone.addEventListener('abort', release, { once: true })
          return await core.db.$transaction(
            async (tx) => {
              // It may have gone while it waited for a connection.
              mustStay(context)
              await tx.$queryRaw`
                SELECT set_config('transaction_read_only', 'on', true), set_config('statement_timeout', ${String(core.config.queryMs)}, true)`
              const reads = watchedReads(tx)
              const result = await executeFn({ ...args, contextValue: { ...context, db: reads.client } })
              // An error that leaves nothing of the answer ends it at once, while fields beside it still read. They would find the snapshot closed, and the answer
              // would say that the database is away.
              if ((result as ExecutionResult).errors) await reads.quiet()
              return result as ExecutionResult
            },
            { isolationLevel: 'RepeatableRead' },
          )
        } catch (thrown) {
          release()
          const originalError = context.gone.aborted ? goneError() : asError(thrown)
          return { data: null, errors: [new GraphQLError(originalError.message, { originalError })] }
        }
      })
    },
  }
}

function readsDatabase(operation: OperationDefinitionNode): boolean {
  return operation.selectionSet.selections.some(
    (selection) => selection.kind !== Kind.FIELD || !outsideDatabase.has(selection.name.value),
  )
}
