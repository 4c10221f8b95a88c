// What went wrong, whoever says so: a GraphQL error, a status, a closed socket, a library's wrapping of one of these.

import type { Answer, AnswerError } from './transport.ts'

export interface Problem {
  /** `extensions.code` of the GraphQL error; HTTP_401 and the like; NETWORK when there was no answer. */
  code: string
  message: string
  /** Whether the same request may be answered later. False: it has to be mended first. */
  again: boolean
}

/** Codes of docs/clients.md that stay as they are however often one asks. Any other one leaves open what has happened, so asking again is right. */
const final = new Set([
  'BAD_USER_INPUT',
  'GRAPHQL_PARSE_FAILED',
  'GRAPHQL_VALIDATION_FAILED',
  'DOCUMENT_TOO_LARGE',
  'SEARCH_TOO_SLOW',
  'OPERATION_RESOLUTION_FAILURE',
  'BAD_REQUEST',
  'REQUEST_ENTITY_TOO_LARGE',
  'PERSISTED_QUERY_NOT_SUPPORTED',
  'NOT_ACCEPTABLE',
  'NOT_FOUND',
  'CURSOR_AHEAD',
  'UNAUTHENTICATED',
])

const ofErrors = (errors: readonly AnswerError[]): Problem => {
  const coded = errors.find((error) => typeof error.extensions?.code === 'string') ?? errors[0]
  const code = String(coded?.extensions?.code ?? 'INTERNAL_SERVER_ERROR')
  return { code, message: coded?.message ?? 'an error without a message', again: !final.has(code) }
}

/** An answer over HTTP that is no GraphQL. 408, 429 and 5xx pass; the others stay. */
export function problemOfStatus(status: number, message: string): Problem {
  if (status === 401) return { code: 'UNAUTHENTICATED', message, again: false }
  return { code: `HTTP_${status}`, message, again: status >= 500 || status === 408 || status === 429 }
}

/** The problem of an answer; null if it has none. */
export const problemOfAnswer = (answer: Answer<unknown>): Problem | null =>
  answer.errors !== undefined && answer.errors.length > 0 ? ofErrors(answer.errors) : null

interface Thrown {
  message?: unknown
  reason?: unknown
  code?: unknown
  status?: unknown
  statusCode?: unknown
  errors?: unknown
  graphQLErrors?: unknown
  networkError?: unknown
  response?: { status?: unknown } | null
  problem?: unknown
}

const isErrors = (value: unknown): value is AnswerError[] => Array.isArray(value) && value.length > 0

/** The problem behind whatever was thrown. Never throws itself. */
export function problemOfThrown(thrown: unknown): Problem {
  if (isErrors(thrown)) return ofErrors(thrown)
  if (typeof thrown !== 'object' || thrown === null) return { code: 'NETWORK', message: String(thrown), again: true }
  const { message, reason, code, status, statusCode, errors, graphQLErrors, networkError, response, problem } =
    thrown as Thrown
  if (problem !== undefined) return problem as Problem
  if (isErrors(errors) && isErrors(errors.filter((error) => error.extensions !== undefined))) return ofErrors(errors)
  if (isErrors(graphQLErrors)) return ofErrors(graphQLErrors)
  const text = String(message || reason || 'the connection was lost')
  const http = [status, statusCode, response?.status].find((value) => typeof value === 'number')
  if (http !== undefined && http !== 0) return problemOfStatus(http as number, text)
  // How a server closes a WebSocket whose token it does not take.
  if (code === 4401 || code === 4403) return { code: 'UNAUTHENTICATED', message: text, again: false }
  if (networkError) return problemOfThrown(networkError)
  return { code: 'NETWORK', message: text, again: true }
}

/** A problem as an error that can be thrown. */
export class ProblemError extends Error {
  readonly problem: Problem
  constructor(problem: Problem, options?: ErrorOptions) {
    super(`${problem.code}: ${problem.message}`, options)
    this.name = 'ProblemError'
    this.problem = problem
  }
}
