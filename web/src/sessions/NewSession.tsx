import { NativeSelect, Textarea, TextInput } from '@mantine/core'
import { useEffect, useState } from 'react'
import { ModelsDocument } from '../../../src/client/generated/graphql.ts'
import { newMessageId, newSessionId } from '../../../src/client/ids.ts'
import { apollo } from '../api/apollo.ts'
import { epoch } from '../api/connection.ts'
import { useStore } from '../api/store.ts'
import { go } from '../app/route.ts'
import { Composer } from '../composer/Composer.tsx'
import { post } from '../composer/outbox.ts'
import { titleFrom } from './title.ts'

const lastModel = 'holdfast.model'

/** A session begins with its first prompt; model, title and instructions can be said before. */
export function NewSession() {
  const models = useModels()
  const [model, setModel] = useState<string | null>(() => localStorage.getItem(lastModel))
  const [title, setTitle] = useState('')
  const [instructions, setInstructions] = useState('')
  // One that is no longer offered would be refused.
  const chosen = models === null || (model !== null && models.includes(model)) ? model : null

  return (
    <div className="new-session">
      <div className="new-inner">
        <h1>New session</h1>
        <p className="page-about">
          It goes on whatever happens to this page or to the server. Try <code>/slow 100 One two three</code> or{' '}
          <code>{'/tool ask_user {"question":"Which colour?","options":["red","blue"]}'}</code> with the demo model.
        </p>
        <div className="new-fields">
          <NativeSelect
            label="Model"
            data={[{ value: '', label: 'As the server is set' }, ...(models ?? [])]}
            value={chosen ?? ''}
            onChange={({ currentTarget: { value } }) => {
              setModel(value || null)
              if (value === '') localStorage.removeItem(lastModel)
              else localStorage.setItem(lastModel, value)
            }}
          />
          <TextInput
            label="Title"
            placeholder="The first words of the prompt"
            value={title}
            onChange={(event) => setTitle(event.currentTarget.value)}
          />
        </div>
        <details className="new-more">
          <summary>Instructions for the model</summary>
          <Textarea
            aria-label="Instructions for the model"
            rows={4}
            value={instructions}
            onChange={(event) => setInstructions(event.currentTarget.value)}
          />
        </details>
        <Composer
          draftOf="new"
          placeholder="What is to be done?"
          running={false}
          autoFocus
          onSend={({ text, attachments, delivery }) => {
            const sessionId = newSessionId()
            const create = {
              title: title.trim() || titleFrom(text || attachments[0]!.name),
              model: chosen,
              instructions: instructions.trim() || null,
            }
            post({ messageId: newMessageId(), sessionId, text, attachments, delivery, create })
            go({ page: 'session', id: sessionId })
          }}
        />
      </div>
    </div>
  )
}

function useModels(): string[] | null {
  const [models, setModels] = useState<string[] | null>(null)
  const connection = useStore(epoch)
  // biome-ignore lint/correctness/useExhaustiveDependencies: a server that is there again may offer others
  useEffect(() => {
    let gone = false
    apollo
      .query({ query: ModelsDocument, fetchPolicy: 'network-only' })
      .then(({ data }) => gone || setModels(data?.models.map(({ id }) => id) ?? []))
      .catch(() => {})
    return () => {
      gone = true
    }
  }, [connection])
  return models
}
