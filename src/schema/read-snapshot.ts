import { type ExecutionResult, GraphQLError, getOperationAST, Kind, type OperationDefinitionNode } from 'graphql'
import type { Plugin } from 'graphql-yoga'
import { asError } from '../errors.ts'
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
        try {
          return await context.core.db.$transaction(
            async (tx) => {
              await tx.$executeRaw`SET TRANSACTION READ ONLY`
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
          const originalError = asError(thrown)
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
