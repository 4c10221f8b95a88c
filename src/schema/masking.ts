import { randomUUID } from 'node:crypto'
import { type ExecutionResult, GraphQLError } from 'graphql'
import { isAsyncIterable, type Plugin } from 'graphql-yoga'
import { asError, OverloadedError } from '../errors.ts'
import type { Log } from '../log.ts'
import { type Told, told } from '../told.ts'
import type { Context } from './context.ts'

/** The error that nobody meant for the caller, undefined if this one was. */
function surpriseIn(error: unknown): Error | undefined {
  let current: unknown = error
  while (current instanceof GraphQLError && current.originalError) current = current.originalError
  return current instanceof GraphQLError ? undefined : asError(current)
}

/** A session that is too busy is to be called again, like a database that is away. */
const outwardCode = (code: Told['code']) => (code === 'BUSY' ? 'UNAVAILABLE' : code)

/** The code under which an error goes out. */
export function codeOf(error: unknown): string {
  const surprise = surpriseIn(error)
  if (surprise) return outwardCode(told(surprise, 'request id').code)
  return String((error as GraphQLError).extensions.code ?? 'BAD_USER_INPUT')
}

/**
 * What goes out for an error. Errors that were made for the caller pass, with a code if they lack one; anything else is
 * replaced by a text that says nothing, and its cause goes into the log under the same request id (API-14).
 */
export function presentable(error: unknown, log: Log, requestId: string): GraphQLError {
  const outer = error instanceof GraphQLError ? error : undefined
  const surprise = surpriseIn(error)
  // What is left without a code is a value that does not fit its type.
  if (!surprise) return outer?.extensions.code ? outer : coded(outer!, 'BAD_USER_INPUT')
  const { code, message } = told(surprise, 'request id')
  if (surprise instanceof OverloadedError)
    return new GraphQLError(message, {
      nodes: outer?.nodes,
      path: outer?.path,
      extensions: { code, retryAfterMs: surprise.retryAfterMs, requestId },
    })
  const path = outer?.path?.join('.')
  if (code === 'BUSY') log.warn({ requestId, path, err: surprise }, 'a session is too busy')
  else
    log.error({ requestId, path, err: surprise }, code === 'UNAVAILABLE' ? 'database unavailable' : 'unexpected error')
  return new GraphQLError(message, {
    nodes: outer?.nodes,
    path: outer?.path,
    extensions: { code: outwardCode(code), requestId },
  })
}

function coded(error: GraphQLError, code: string): GraphQLError {
  error.extensions.code = code
  return error
}

/** For errors outside of any operation: there is no context to take a request id from. */
export const maskOutside = (log: Log, requestId: () => string | undefined) => (error: unknown) =>
  presentable(error, log, requestId() ?? randomUUID())

/** Masks the errors of operations on every transport, of each item of a subscription too. */
export function useMasking(): Plugin<Context> {
  const masked = (result: ExecutionResult, { core, requestId }: Context): ExecutionResult =>
    result.errors
      ? { ...result, errors: result.errors.map((error) => presentable(error, core.log, requestId)) }
      : result
  return {
    onParse:
      () =>
      ({ result }) => {
        if (result instanceof GraphQLError && !result.extensions.code) coded(result, 'GRAPHQL_PARSE_FAILED')
      },
    onExecute: () => ({
      onExecuteDone({ args, result, setResult }) {
        if (!isAsyncIterable(result)) setResult(masked(result as ExecutionResult, args.contextValue))
      },
    }),
    onSubscribe: () => ({
      onSubscribeResult({ args, result, setResult }) {
        const context = args.contextValue
        if (isAsyncIterable(result))
          setResult(maskedStream(result as AsyncIterable<ExecutionResult>, (item) => masked(item, context)))
        else setResult(masked(result as ExecutionResult, context))
      },
    }),
  }
}

/**
 * A source that breaks ends its stream with an error as last item: thrown on, it would cost a WebSocket client all its
 * other operations. Written by hand, as return() has to reach a source that waits.
 */
function maskedStream(
  stream: AsyncIterable<ExecutionResult>,
  masked: (result: ExecutionResult) => ExecutionResult,
): AsyncIterableIterator<ExecutionResult> {
  const source = stream[Symbol.asyncIterator]()
  let broken = false
  return {
    async next() {
      if (broken) return { done: true, value: undefined }
      try {
        const item = await source.next()
        return item.done ? { done: true, value: undefined } : { done: false, value: masked(item.value) }
      } catch (thrown) {
        broken = true
        const originalError = asError(thrown)
        return { done: false, value: masked({ errors: [new GraphQLError(originalError.message, { originalError })] }) }
      }
    },
    async return() {
      broken = true
      await source.return?.()
      return { done: true, value: undefined }
    },
    async throw(error) {
      broken = true
      await source.return?.()
      throw error
    },
    [Symbol.asyncIterator]() {
      return this
    },
  }
}
