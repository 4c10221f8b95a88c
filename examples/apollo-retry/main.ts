// Mutations that are sent again until they are answered, by Apollo's RetryLink. That is safe because the ids are the client's: a prompt
// whose answer was lost is admitted once, however often it is sent.   node --import tsx main.ts http://127.0.0.1:4000/
import { ApolloClient, ApolloLink, HttpLink, InMemoryCache } from '@apollo/client/core'
import { RetryLink } from '@apollo/client/link/retry'
import {
  AdmitPromptDocument,
  CreateSessionDocument,
  newMessageId,
  newSessionId,
  problemOfThrown,
} from 'holdfast/client'

const server = process.argv[2] ?? 'http://127.0.0.1:4000/'

let attempts = 0
const client = new ApolloClient({
  link: ApolloLink.from([
    new RetryLink({
      delay: { initial: 500, max: 30_000, jitter: true },
      attempts: {
        max: 10,
        // No answer, HTTP 5xx, UNAVAILABLE. A member of the result union is an answer, and what is malformed stays so.
        retryIf: (error) => problemOfThrown(error).again,
      },
    }),
    new ApolloLink((operation, forward) => {
      attempts++
      return forward(operation)
    }),
    new HttpLink({ uri: new URL('graphql', server).href }),
  ]),
  cache: new InMemoryCache(),
})

const sessionId = newSessionId()
await client.mutate({ mutation: CreateSessionDocument, variables: { input: { sessionId } } })
const input = { sessionId, messageId: newMessageId(), text: 'Once, please' }
const { data } = await client.mutate({ mutation: AdmitPromptDocument, variables: { input } })
if (data?.admitPrompt.__typename !== 'PromptAdmission') throw new Error('not admitted')
console.log(`${data.admitPrompt.outcome} in session ${sessionId} after ${attempts} attempts`)
client.stop()
