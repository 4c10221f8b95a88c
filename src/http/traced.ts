import { type DocumentNode, getOperationAST } from 'graphql'
import { isAsyncIterable, type Plugin, type YogaInitialContext } from 'graphql-yoga'
import { codeOf } from '../schema/masking.ts'
import { callerOf, inSpan } from '../tracing.ts'
import type { Operation } from './operation.ts'

type Args = { document: DocumentNode; operationName?: string | null; contextValue?: unknown }

/**
 * One span for each operation that is carried out, on every transport; over HTTP it is a part of what the caller's `traceparent` names. That of a
 * subscription covers the opening alone: a stream may live for days. Neither the document nor its variables are in it, and an outcome that
 * the schema names (a member of a result union) is no error.
 */
export function useTracing(): Plugin<object, Operation> {
  const traced = <R>({ document, operationName, contextValue }: Args, work: () => R | Promise<R>): Promise<R> => {
    const { request, requestId } = contextValue as Operation & Partial<Pick<YogaInitialContext, 'request'>>
    const operation = getOperationAST(document, operationName)
    const type = operation?.operation ?? 'query'
    const name = operation?.name?.value
    const options = {
      kind: 'server' as const,
      parent: callerOf(request?.headers),
      attributes: {
        'graphql.operation.type': type,
        ...(name === undefined ? {} : { 'graphql.operation.name': name }),
        'holdfast.request.id': requestId,
      },
    }
    return inSpan(name === undefined ? type : `${type} ${name}`, options, async (span) => {
      const result = await work()
      const errors = isAsyncIterable(result) ? undefined : (result as { errors?: readonly unknown[] }).errors
      if (errors?.length) span.fail(codeOf(errors[0]))
      return result
    })
  }
  return {
    onExecute: ({ executeFn, setExecuteFn }) => setExecuteFn((args) => traced(args, () => executeFn(args))),
    onSubscribe: ({ subscribeFn, setSubscribeFn }) => setSubscribeFn((args) => traced(args, () => subscribeFn(args))),
  }
}
