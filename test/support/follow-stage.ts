// Followers of sessions over each of the ways in which an application can carry GraphQL, and what their tests ask again and again.

import { ApolloClient, HttpLink, InMemoryCache } from '@apollo/client/core'
import { ApolloLink } from '@apollo/client/link'
import { GraphQLWsLink } from '@apollo/client/link/subscriptions'
import { OperationTypeNode } from 'graphql'
import { createClient } from 'graphql-ws'
import { fetchExchange, subscriptionExchange, Client as UrqlClient } from 'urql'
import WebSocket from 'ws'
import {
  apolloTransport,
  type FollowState,
  fetchTransport,
  possibleTypes,
  type SessionFollower,
  SessionSnapshotDocument,
  type SessionView,
  type Token,
  type Transport,
  urqlTransport,
  viewOfSnapshot,
  webSocketOptions,
  webSocketTransport,
} from '../../src/client/index.ts'
import { until } from './stream-process.ts'

export interface Carrier {
  transport: Transport
  close(): void | Promise<void>
}

const socketOf = (url: string, token?: Token) =>
  createClient({
    ...webSocketOptions({ url: url.replace('http', 'ws'), ...(token && { token }) }),
    webSocketImpl: WebSocket,
  })

export const carriers: Record<string, (url: string, token?: Token) => Carrier> = {
  'fetch and SSE': (url, token) => ({ transport: fetchTransport({ url, ...(token && { token }) }), close() {} }),
  'graphql-ws': (url, token) => {
    const socket = socketOf(url, token)
    return { transport: webSocketTransport(socket), close: () => socket.dispose() }
  },
  'Apollo Client': (url) => {
    const socket = socketOf(url)
    const isSubscription: Parameters<typeof ApolloLink.split>[0] = ({ operationType }) =>
      operationType === OperationTypeNode.SUBSCRIPTION
    const link = ApolloLink.split(isSubscription, new GraphQLWsLink(socket), new HttpLink({ uri: url }))
    const client = new ApolloClient({ link, cache: new InMemoryCache({ possibleTypes: possibleTypes.possibleTypes }) })
    return {
      transport: apolloTransport(client),
      close() {
        client.stop()
        return socket.dispose()
      },
    }
  },
  urql: (url) => {
    const socket = socketOf(url)
    const client = new UrqlClient({
      url,
      preferGetMethod: false,
      exchanges: [
        fetchExchange,
        subscriptionExchange({
          forwardSubscription: ({ query = '', variables }) => ({
            subscribe: (sink) => ({ unsubscribe: socket.subscribe({ query, variables: variables ?? null }, sink) }),
          }),
        }),
      ],
    })
    return { transport: urqlTransport(client), close: () => socket.dispose() }
  },
}

export const isLive = (follower: SessionFollower) => follower.current().state.phase === 'LIVE'

/** Waits until the view holds this event. */
export const holds = (follower: SessionFollower, seq: number) =>
  until(() => follower.current().view?.seq === seq, `a view of seq ${seq}`)

export const inPhase = (follower: SessionFollower, phase: FollowState['phase']) =>
  until(() => follower.current().state.phase === phase, `the phase ${phase}`, 30_000)

/** The view of somebody who reloads the page now. */
export async function reloaded(transport: Transport, id: string): Promise<SessionView> {
  const { data } = await transport.execute(SessionSnapshotDocument, { id, last: 200, inputs: 'PENDING' })
  return viewOfSnapshot(data!.session!)
}

/** Without inputs that are pending no more: a tab that stayed open still knows them, one that is reloaded does not ask for them. */
export const shown = (view: SessionView | null) =>
  view && { ...view, inputs: view.inputs.filter((input) => input.state === 'PENDING') }
