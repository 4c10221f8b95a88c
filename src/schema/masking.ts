import { randomUUID } from 'node:crypto'
import { type ExecutionResult, GraphQLError } from 'graphql'
import { isAsyncIterable, type Plugin } from 'graphql-yoga'
import { isTransient } from '../db.ts'
import { asError, BusyError, OverloadedError, UnavailableError } from '../errors.ts'
import type { Log } from '../log.ts'
import type { Context } from './context.ts'

/** The error that nobody meant for the caller, undefined if this one was. */
function surpriseIn(error: unknown): Error | undefined {
  let current: unknown = error
  while (current instanceof GraphQLError && current.originalError) current = current.originalError
  return current instanceof GraphQLError ? undefined : asError(current)
}

const isUnavailable = (surprise: Error) =>
  surprise instanceof UnavailableError || surprise instanceof BusyError || isTransient(surprise)

/** The code under which an error goes out. */
export function codeOf(error: unknown): string {
  const surprise = surpriseIn(error)
  if (surprise instanceof OverloadedError) return 'OVERLOADED'
  if (surprise) return isUnavailable(surprise) ? 'UNAVAILABLE' : 'INTERNAL_SERVER_ERROR'
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
  if (surprise instanceof OverloadedError)
    return new GraphQLError(surprise.message, {
      nodes: outer?.nodes,
      path: outer?.path,
      extensions: { code: 'OVERLOADED', retryAfterMs: surprise.retryAfterMs, requestId },
    })
  const unavailable = isUnavailable(surprise)
  const busy = surprise instanceof BusyError
  const path = outer?.path?.join('.')
  if (busy) log.warn({ requestId, path, err: surprise }, 'a session is too busy')
  else log.error({ requestId, path, err: surprise }, unavailable ? 'database unavailable' : 'unexpected error')
  return new GraphQLError(
    busy
      ? 'Too many calls change this session at the same time; this one changed nothing, try again.'
      : unavailable
        ? 'The database is not available at the moment, try again.'
        : 'Unexpected error; the log of the server has it under this request id.',
    {
      nodes: outer?.nodes,
      path: outer?.path,
      extensions: { code: codeOf(surprise), requestId },
    },
  )
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
