// Everything over one WebSocket: queries, mutations and the session's stream.   node --import tsx main.ts http://127.0.0.1:4000/
import { createClient } from 'graphql-ws'
import {
  AdmitPromptDocument,
  CreateSessionDocument,
  followSession,
  newMessageId,
  newSessionId,
  statusOf,
  transcript,
  untilAnswered,
  webSocketOptions,
  webSocketTransport,
  wordsOf,
} from 'holdfast/client'
// Browsers, and Node from version 22 on, have a WebSocket of their own.
import WebSocket from 'ws'

const server = process.argv[2] ?? 'http://127.0.0.1:4000/'
// A function is asked at each connection, so a token can be renewed. Without authentication it gives nothing.
const token = () => process.env.HOLDFAST_TOKEN

const url = new URL('graphql', server.replace(/^http/, 'ws')).href
const socket = createClient({ ...webSocketOptions({ url, token }), webSocketImpl: WebSocket })
const transport = webSocketTransport(socket)

// The ids are made once. Sent again after a lost answer, both calls have their effect once.
const sessionId = newSessionId()
const { createSession } = await untilAnswered(transport, CreateSessionDocument, { input: { sessionId } })
if (createSession.__typename !== 'CreateSessionPayload') throw new Error(createSession.message)

const follower = followSession({ sessionId, transport })
const input = { sessionId, messageId: newMessageId(), text: '/slow 20 Hello over a WebSocket' }
const { admitPrompt } = await untilAnswered(transport, AdmitPromptDocument, { input })
if (admitPrompt.__typename !== 'PromptAdmission') throw new Error(admitPrompt.message)

await new Promise<void>((resolve) => {
  follower.subscribe(() => {
    const { view } = follower.current()
    const isAnswered = view?.messages.some((message) => message.type === 'AssistantMessage')
    if (view && isAnswered && statusOf(view) === 'IDLE') resolve()
  })
})
for (const message of transcript(follower.current().view!)) console.log(`${message.type}: ${wordsOf(message)}`)

follower.close()
console.log(`ended: ${(await follower.ended).reason}`)
await socket.dispose()
