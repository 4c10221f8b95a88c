import { ApolloClient, ApolloLink, CombinedGraphQLErrors, HttpLink, InMemoryCache, ServerError } from '@apollo/client'
import { SetContextLink } from '@apollo/client/link/context'
import { ErrorLink } from '@apollo/client/link/error'
import { RetryLink } from '@apollo/client/link/retry'
import { GraphQLWsLink } from '@apollo/client/link/subscriptions'
import { OperationTypeNode } from 'graphql'
import { signedOut } from './connection.ts'
import { socket } from './socket.ts'
import { authorization, token } from './token.ts'

/** The code of a GraphQL error, or what HTTP says instead; undefined when there was no answer at all. */
export function codeOf(error: unknown): string | undefined {
  if (CombinedGraphQLErrors.is(error)) return error.errors[0]?.extensions?.code as string | undefined
  if (ServerError.is(error))
    return error.statusCode === 401
      ? 'UNAUTHENTICATED'
      : error.statusCode >= 500
        ? 'UNAVAILABLE'
        : `HTTP_${error.statusCode}`
  return undefined
}

/** No answer, HTTP 5xx or UNAVAILABLE: every operation may be repeated then, mutations included (docs/clients.md). */
export function isRepeatable(error: unknown): boolean {
  const code = codeOf(error)
  return code === undefined || code === 'UNAVAILABLE'
}

const authorized = new SetContextLink(({ headers }) => {
  const value = authorization()
  return value === undefined ? {} : { headers: { ...headers, authorization: value } }
})

const watched = new ErrorLink(({ error }) => {
  if (codeOf(error) === 'UNAUTHENTICATED') signedOut(token.get() !== null)
})

const retried = new RetryLink({
  delay: { initial: 500, max: 8000, jitter: true },
  attempts: { max: 4, retryIf: (error) => isRepeatable(error) },
})

const http = ApolloLink.from([retried, watched, authorized, new HttpLink({ uri: '/graphql' })])

export const apollo = new ApolloClient({
  link: ApolloLink.split(
    ({ operationType }) => operationType === OperationTypeNode.SUBSCRIPTION,
    ApolloLink.from([watched, new GraphQLWsLink(socket)]),
    http,
  ),
  cache: new InMemoryCache({
    typePolicies: {
      // Which part of these is held by whom is up to the components: pages are kept there, rows here.
      Query: { fields: { sessions: { merge: false }, interactions: { merge: false }, quarantine: { merge: false } } },
      Session: { fields: { events: { merge: false }, messages: { merge: false } } },
    },
  }),
})
