// Apollo Client with HTTP for queries and mutations and a WebSocket for subscriptions.
import { ApolloClient, ApolloLink, HttpLink, InMemoryCache } from '@apollo/client'
import { SetContextLink } from '@apollo/client/link/context'
import { GraphQLWsLink } from '@apollo/client/link/subscriptions'
import { OperationTypeNode } from 'graphql'
import { createClient } from 'graphql-ws'
import { bearer, possibleTypes, type Token, webSocketOptions } from 'holdfast/client'

export function createApollo(url: string, token?: Token) {
  const authenticated = new SetContextLink(async ({ headers }) => {
    const authorization = await bearer(token)
    return { headers: authorization === null ? { ...headers } : { ...headers, authorization } }
  })
  const socket = createClient(webSocketOptions({ url: url.replace(/^http/, 'ws'), ...(token && { token }) }))
  return new ApolloClient({
    link: ApolloLink.split(
      ({ operationType }) => operationType === OperationTypeNode.SUBSCRIPTION,
      new GraphQLWsLink(socket),
      ApolloLink.from([authenticated, new HttpLink({ uri: url })]),
    ),
    // Without the possible types fragments of unions and interfaces match nothing in the cache.
    cache: new InMemoryCache(possibleTypes),
  })
}
