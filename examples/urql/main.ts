// urql: its cache and hooks for lists and mutations, followSession for the conversation.   node --import tsx main.ts http://127.0.0.1:4000/
import { createClient } from 'graphql-ws'
import {
  AdmitPromptDocument,
  bearer,
  CreateSessionDocument,
  followSession,
  newMessageId,
  newSessionId,
  SessionsDocument,
  statusOf,
  transcript,
  urqlTransport,
  webSocketOptions,
  wordsOf,
} from 'holdfast/client'
import { Client, cacheExchange, fetchExchange, subscriptionExchange } from 'urql'
// Browsers, and Node from version 22 on, have a WebSocket of their own.
import WebSocket from 'ws'

const server = process.argv[2] ?? 'http://127.0.0.1:4000/'
const token = () => process.env.HOLDFAST_TOKEN
const authorization = await bearer(token)

const url = new URL('graphql', server).href
const socket = createClient({
  ...webSocketOptions({ url: url.replace(/^http/, 'ws'), token }),
  webSocketImpl: WebSocket,
})
const client = new Client({
  url,
  preferGetMethod: false,
  fetchOptions: { headers: authorization === null ? {} : { authorization } },
  exchanges: [
    cacheExchange,
    fetchExchange,
    subscriptionExchange({
      forwardSubscription: ({ query = '', variables }) => ({
        subscribe: (sink) => ({ unsubscribe: socket.subscribe({ query, variables: variables ?? null }, sink) }),
      }),
    }),
  ],
})

const sessionId = newSessionId()
const created = await client.mutation(CreateSessionDocument, { input: { sessionId, title: 'By urql' } }).toPromise()
if (created.data?.createSession.__typename !== 'CreateSessionPayload') throw created.error ?? new Error('not created')

const follower = followSession({ sessionId, transport: urqlTransport(client) })
const input = { sessionId, messageId: newMessageId(), text: '/slow 20 Hello through urql' }
const admitted = await client.mutation(AdmitPromptDocument, { input }).toPromise()
if (admitted.data?.admitPrompt.__typename !== 'PromptAdmission') throw admitted.error ?? new Error('not admitted')

await new Promise<void>((resolve) => {
  follower.subscribe(() => {
    const { view } = follower.current()
    const isAnswered = view?.messages.some((message) => message.type === 'AssistantMessage')
    if (view && isAnswered && statusOf(view) === 'IDLE') resolve()
  })
})
for (const message of transcript(follower.current().view!)) console.log(`${message.type}: ${wordsOf(message)}`)

const { data } = await client.query(SessionsDocument, { first: 20 }).toPromise()
console.log(`listed: ${data?.sessions.edges.some(({ node }) => node.id === sessionId)}`)

follower.close()
await follower.ended
await socket.dispose()
