// Transports out of clients that an application has already. Nothing of the libraries is imported; they are known by their shape.

import type { Answer, AnswerError, Transport } from './transport.ts'

/** What is used of an Apollo Client (version 3.8 and later). */
export interface ApolloLike {
  // biome-ignore lint/suspicious/noExplicitAny: Apollo's own types are narrower than what is known here
  query(options: any): Promise<any>
  // biome-ignore lint/suspicious/noExplicitAny: as above
  mutate(options: any): Promise<any>
  // biome-ignore lint/suspicious/noExplicitAny: as above
  subscribe(options: any): { subscribe(observer: any): { unsubscribe(): void } }
}

interface ApolloResult<Result> {
  data?: Result | null
  error?: { errors?: readonly AnswerError[]; graphQLErrors?: readonly AnswerError[] }
  errors?: readonly AnswerError[]
}

/** GraphQL errors as part of the answer; anything else is thrown. */
function answerOfApollo<Result>({ data, error, errors }: ApolloResult<Result>): Answer<Result> {
  const found = errors ?? error?.errors ?? error?.graphQLErrors
  if (error !== undefined && (found === undefined || found.length === 0)) throw error
  return { data, errors: found }
}

const isMutation = (document: { definitions: readonly object[] }) =>
  document.definitions.some((one) => 'operation' in one && one.operation === 'mutation')

/**
 * The links of an Apollo Client as a transport. Its cache is passed by: the view has a life of its own, and a cache that merges two
 * moments of a session would show neither.
 */
export function apolloTransport(client: ApolloLike): Transport {
  const shared = { fetchPolicy: 'no-cache', errorPolicy: 'all' }
  return {
    async execute(document, variables, { signal } = {}) {
      const context = { fetchOptions: { signal } }
      const result = isMutation(document)
        ? await client.mutate({ mutation: document, variables, context, ...shared })
        : await client.query({ query: document, variables, context, ...shared })
      return answerOfApollo(result)
    },
    subscribe(document, variables, sink) {
      const subscription = client.subscribe({ query: document, variables, ...shared }).subscribe({
        // biome-ignore lint/suspicious/noExplicitAny: as above
        next(result: any) {
          try {
            sink.next(answerOfApollo(result))
          } catch (thrown) {
            sink.error(thrown)
          }
        },
        error: sink.error,
        complete: sink.complete,
      })
      return () => subscription.unsubscribe()
    },
  }
}

/** What is used of an urql client. */
export interface UrqlLike {
  // biome-ignore lint/suspicious/noExplicitAny: urql's own types are narrower than what is known here
  query(document: any, variables: any, context?: any): { toPromise(): Promise<any> }
  // biome-ignore lint/suspicious/noExplicitAny: as above
  mutation(document: any, variables: any, context?: any): { toPromise(): Promise<any> }
  // biome-ignore lint/suspicious/noExplicitAny: as above
  subscription(document: any, variables: any, context?: any): any
}

interface UrqlResult<Result> {
  data?: Result | null
  error?: { graphQLErrors?: readonly AnswerError[] }
}

function answerOfUrql<Result>({ data, error }: UrqlResult<Result>): Answer<Result> {
  if (error === undefined) return { data }
  if (error.graphQLErrors === undefined || error.graphQLErrors.length === 0) throw error
  return { data, errors: error.graphQLErrors }
}

/** A signal of a wonka source, which is what urql's results come from. Its own `subscribe` does not tell of the end. */
type Signal = 0 | { tag: 0; 0: (talkback: 0 | 1) => void } | { tag: 1; 0: UrqlResult<never> }
type Source = (sink: (signal: Signal) => void) => void

/** The exchanges of an urql client as a transport; its cache is passed by. Subscriptions need a subscriptionExchange. */
export function urqlTransport(client: UrqlLike): Transport {
  const context = { requestPolicy: 'network-only' }
  return {
    async execute(document, variables, { signal } = {}) {
      const options = signal ? { ...context, fetchOptions: { signal } } : context
      const source = isMutation(document)
        ? client.mutation(document, variables, options)
        : client.query(document, variables, options)
      return answerOfUrql(await source.toPromise())
    },
    subscribe(document, variables, sink) {
      let talkback: ((talkback: 0 | 1) => void) | null = null
      let isOver = false
      const source = client.subscription(document, variables, context) as Source
      source((signal) => {
        if (isOver) return
        if (signal === 0) {
          isOver = true
          return sink.complete()
        }
        if (signal.tag === 0) {
          talkback = signal[0]
        } else {
          try {
            sink.next(answerOfUrql(signal[0]))
          } catch (thrown) {
            sink.error(thrown)
          }
        }
        if (!isOver) talkback?.(0)
      })
      return () => {
        if (isOver) return
        isOver = true
        talkback?.(1)
      }
    },
  }
}
