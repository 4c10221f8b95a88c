import { useMutation, useQuery, useSubscription } from '@apollo/client/react'
import {
  AdmitPromptDocument,
  CreateSessionDocument,
  newMessageId,
  newSessionId,
  SessionActivityDocument,
  SessionsDocument,
  transcript,
  wordsOf,
} from 'holdfast/client'
import { type FormEvent, useState } from 'react'
import { useSession } from './use-session.ts'

export function App() {
  const [sessionId, setSessionId] = useState<string | null>(null)
  const [create] = useMutation(CreateSessionDocument)
  async function begin() {
    const id = newSessionId()
    const { data } = await create({ variables: { input: { sessionId: id, title: 'From React' } } })
    if (data?.createSession.__typename === 'CreateSessionPayload') setSessionId(id)
  }
  return (
    <main>
      <button type="button" onClick={() => void begin()}>
        New session
      </button>
      <Sessions />
      {sessionId && <Conversation key={sessionId} sessionId={sessionId} />}
    </main>
  )
}

function Sessions() {
  const { data, refetch } = useQuery(SessionsDocument, { variables: { first: 20 } })
  useSubscription(SessionActivityDocument, {
    // The cache puts the session in the place of the one that the list shows. One that the list does not show is new.
    onData({ data: { data: item } }) {
      const id = item?.sessionActivity.id
      if (!data?.sessions.edges.some(({ node }) => node.id === id)) void refetch()
    },
  })
  return (
    <ul>
      {data?.sessions.edges.map(({ node }) => (
        <li key={node.id}>
          {node.title}: {node.status}
        </li>
      ))}
    </ul>
  )
}

function Conversation({ sessionId }: { sessionId: string }) {
  const { view, state } = useSession(sessionId)
  const [admit] = useMutation(AdmitPromptDocument)
  const [text, setText] = useState('')
  // The id belongs to the text, not to the attempt: whoever sends twice has sent once.
  const [messageId, setMessageId] = useState(newMessageId)
  const [problem, setProblem] = useState<string | null>(null)

  async function send(submit: FormEvent) {
    submit.preventDefault()
    const { data, error } = await admit({ variables: { input: { sessionId, messageId, text } }, errorPolicy: 'all' })
    const answer = data?.admitPrompt
    if (answer?.__typename !== 'PromptAdmission') return setProblem(answer?.message ?? error?.message ?? 'no answer')
    setProblem(null)
    setText('')
    setMessageId(newMessageId())
  }

  return (
    <section>
      <p role="status">{state.phase}</p>
      <ol>{view && transcript(view).map((message) => <li key={message.id}>{wordsOf(message)}</li>)}</ol>
      {problem && <p role="alert">{problem}</p>}
      <form onSubmit={(submit) => void send(submit)}>
        <input aria-label="Prompt" value={text} onChange={(change) => setText(change.target.value)} />
        <button type="submit">Send</button>
      </form>
    </section>
  )
}
