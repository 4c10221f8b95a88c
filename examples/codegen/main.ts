// Documents generated in a repository of your own, sent by the client's transport; any other would do.
//   npx graphql-codegen --config codegen/codegen.ts && node --import tsx codegen/main.ts http://127.0.0.1:4000/
import { fetchTransport, newSessionId, untilAnswered } from 'holdfast/client'
import { BeginDocument, TitlesDocument } from './gql/graphql.ts'

const server = process.argv[2] ?? 'http://127.0.0.1:4000/'
const transport = fetchTransport({ url: new URL('graphql', server).href })

const sessionId = newSessionId()
const { createSession } = await untilAnswered(transport, BeginDocument, { sessionId, title: 'Of my own' })
if (createSession.__typename !== 'CreateSessionPayload') throw new Error(createSession.message)

const { data } = await transport.execute(TitlesDocument, { first: 20 })
const mine = data?.sessions.edges.find(({ node }) => node.id === sessionId)
console.log(`${mine?.node.title}: ${mine?.node.status}`)
