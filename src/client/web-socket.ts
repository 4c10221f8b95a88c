// GraphQL over a WebSocket, by the client of the library graphql-ws that the application makes. Nothing of the library is imported.

import { ProblemError } from './problem.ts'
import { type Answer, bearer, type Token, type Transport, textOf } from './transport.ts'

/** What is used of a client of graphql-ws (one of graphql-sse fits as well). */
export interface SubscribingClient {
  subscribe(
    request: { query: string; variables?: Record<string, unknown> | null },
    // biome-ignore lint/suspicious/noExplicitAny: the libraries type the results more narrowly than is known here
    sink: { next(answer: any): void; error(thrown: unknown): void; complete(): void },
  ): () => void
  terminate?(): void
}

const saysUnauthenticated = ({ data, errors }: Answer<unknown>): boolean =>
  errors?.some((error) => error.extensions?.code === 'UNAUTHENTICATED') === true ||
  Object.values(data ?? {}).some((item) => item?.__typename === 'StreamEnded' && item.cause === 'UNAUTHENTICATED')

/** All operations over one WebSocket. When its token is not taken any more, the socket is left, and the next operation opens a new one. */
export function webSocketTransport(client: SubscribingClient): Transport {
  const subscribe: Transport['subscribe'] = (document, variables, sink) =>
    client.subscribe(
      { query: textOf(document), variables: variables as Record<string, unknown> },
      {
        next(answer) {
          sink.next(answer)
          if (saysUnauthenticated(answer)) client.terminate?.()
        },
        error: (thrown) => sink.error(thrown),
        complete: () => sink.complete(),
      },
    )
  return {
    subscribe,
    execute: (document, variables, { signal } = {}) =>
      new Promise((resolve, reject) => {
        signal?.throwIfAborted()
        const abort = () => {
          stop()
          reject(signal!.reason)
        }
        const done = () => signal?.removeEventListener('abort', abort)
        const stop = subscribe(document, variables, {
          next(answer) {
            done()
            resolve(answer)
          },
          error(thrown) {
            done()
            reject(thrown)
          },
          complete() {
            done()
            reject(new ProblemError({ code: 'NETWORK', message: 'complete without an answer', again: true }))
          },
        })
        signal?.addEventListener('abort', abort, { once: true })
      }),
  }
}

interface Socket {
  readyState: number
  close(code?: number, reason?: string): void
}

/**
 * Options for `createClient` of graphql-ws: the token with each connection, a ping every 10 s, and a socket that is left when no pong
 * comes for 5 s, as after a sleep or behind a network that has gone. Reconnecting is left to followSession, which knows its cursor.
 */
export function webSocketOptions(options: { url: string; token?: Token }) {
  let socket: Socket | null = null
  let timer: ReturnType<typeof setTimeout> | undefined
  return {
    url: options.url,
    lazy: true,
    retryAttempts: 0,
    keepAlive: 10_000,
    async connectionParams(): Promise<Record<string, unknown>> {
      const authorization = await bearer(options.token)
      return authorization === null ? {} : { authorization }
    },
    on: {
      opened(opened: unknown) {
        socket = opened as Socket
      },
      ping(received: boolean) {
        // Ours: the answer has to come.
        if (received) return
        timer = setTimeout(() => socket?.readyState === 1 && socket.close(4408, 'no pong'), 5000)
      },
      pong(received: boolean) {
        if (received) clearTimeout(timer)
      },
      closed() {
        clearTimeout(timer)
      },
    },
  }
}
