// One function around fetch, typed by the documents. Without a stream the log is asked for what is new: `events(after)`.
//   node --import tsx main.ts http://127.0.0.1:4000/
import type { TypedDocumentNode } from '@graphql-typed-document-node/core'
import {
  AdmitPromptDocument,
  CreateSessionDocument,
  emptyView,
  newMessageId,
  newSessionId,
  reduce,
  SessionLogDocument,
  textOf,
  transcript,
  wordsOf,
} from 'holdfast/client'

const endpoint = new URL('graphql', process.argv[2] ?? 'http://127.0.0.1:4000/')
const token = process.env.HOLDFAST_TOKEN

async function ask<Result, Variables>(
  document: TypedDocumentNode<Result, Variables>,
  variables: Variables,
): Promise<Result> {
  const response = await fetch(endpoint, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(token && { authorization: `Bearer ${token}` }) },
    body: JSON.stringify({ query: textOf(document), variables }),
    signal: AbortSignal.timeout(60_000),
  })
  const answer = (await response.json()) as { data?: Result | null; errors?: { message: string }[] }
  if (answer.errors) throw new Error(answer.errors.map(({ message }) => message).join('; '))
  return answer.data as Result
}

const sessionId = newSessionId()
await ask(CreateSessionDocument, { input: { sessionId, title: 'Polled' } })
const { admitPrompt } = await ask(AdmitPromptDocument, {
  input: { sessionId, messageId: newMessageId(), text: 'Hello over plain fetch' },
})
// What a caller can act on is a member of the union, and typed.
switch (admitPrompt.__typename) {
  case 'PromptAdmission':
    console.log(admitPrompt.outcome)
    break
  case 'PromptConflictError':
    throw new Error(`the id was used for something else: ${admitPrompt.differingFields.join(', ')}`)
  case 'LimitExceededError':
    throw new Error(`try again in ${admitPrompt.retryAfterMs} ms`)
  default:
    throw new Error(admitPrompt.message)
}

let view = emptyView(sessionId)
for (let isOver = false; !isOver; ) {
  const { session } = await ask(SessionLogDocument, { id: sessionId, after: view.seq })
  for (const event of session?.events ?? []) {
    view = reduce(view, event)
    isOver = event.__typename === 'ExecutionSettled'
  }
  if (!isOver) await new Promise((resolve) => setTimeout(resolve, 200))
}
for (const message of transcript(view)) console.log(`${message.type}: ${wordsOf(message)}`)
