// Server-sent events and fetch, no other library: for places that let no WebSocket through.   node --import tsx main.ts http://127.0.0.1:4000/
import {
  AdmitPromptDocument,
  CreateSessionDocument,
  type FollowState,
  fetchTransport,
  followSession,
  newMessageId,
  newSessionId,
  type StreamItem,
  untilAnswered,
} from 'holdfast/client'

const server = process.argv[2] ?? 'http://127.0.0.1:4000/'
const transport = fetchTransport({ url: new URL('graphql', server).href, token: () => process.env.HOLDFAST_TOKEN })

const sessionId = newSessionId()
await untilAnswered(transport, CreateSessionDocument, { input: { sessionId } })

const phases = new Set<FollowState['phase']>()
const isOver = new Promise<void>((resolve) => {
  const follower = followSession({
    sessionId,
    transport,
    // Each item as it comes: durable events once and in order, deltas in between.
    onItem(item: StreamItem) {
      if (item.__typename === 'TextDelta') process.stdout.write(item.text)
      if (item.__typename === 'StepFailed') console.error(`${item.error.code}: ${item.error.message}`)
      if (item.__typename === 'ExecutionSettled') follower.close()
    },
  })
  follower.subscribe(() => phases.add(follower.current().state.phase))
  void follower.ended.then(({ reason }) => {
    console.log(`\nended: ${reason}`)
    resolve()
  })
})

const input = { sessionId, messageId: newMessageId(), text: '/slow 20 Hello over server-sent events' }
await untilAnswered(transport, AdmitPromptDocument, { input })
await isOver
console.log([...phases].join(' '))
