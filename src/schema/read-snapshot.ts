import { type ExecutionResult, GraphQLError, getOperationAST, Kind, type OperationDefinitionNode } from 'graphql'
import type { Plugin } from 'graphql-yoga'
import { asError } from '../errors.ts'
import type { Context } from './context.ts'

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
              return executeFn({ ...args, contextValue: { ...context, db: tx } })
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
