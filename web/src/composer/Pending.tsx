import { Button, SegmentedControl } from '@mantine/core'
import { ChangeDeliveryDocument, type Delivery, WithdrawPromptDocument } from '../../../src/client/generated/graphql.ts'
import { pendingInputs } from '../../../src/client/select.ts'
import type { InputView, SessionView } from '../../../src/client/view.ts'
import { act, useAct } from '../api/act.ts'
import { useStore } from '../api/store.ts'
import { again, forget, type Outgoing, outbox } from './outbox.ts'

/** What has been written and is not part of the conversation yet: admitted prompts that wait, and those that are still on their way. */
export function Pending({ view, onEdit }: { view: SessionView; onEdit: (text: string) => void }) {
  const sent = useStore(outbox)
  const pending = pendingInputs(view)
  const known = new Set([...view.inputs, ...view.messages].map(({ id }) => id))
  const leaving = sent.filter(({ sessionId, messageId }) => sessionId === view.id && !known.has(messageId))
  if (pending.length + leaving.length === 0) return null
  return (
    <section className="pending" aria-label="Waiting prompts">
      <ul>
        {pending.map((input) => (
          <PendingInput key={input.id} sessionId={view.id} input={input} />
        ))}
        {leaving.map((outgoing) => (
          <Leaving key={outgoing.messageId} outgoing={outgoing} onEdit={onEdit} />
        ))}
      </ul>
    </section>
  )
}

function PendingInput({ sessionId, input }: { sessionId: string; input: InputView }) {
  const { busy, error, run } = useAct()
  const of = { sessionId, messageId: input.id }
  return (
    <li className="pending-item">
      <span className="pending-text">{input.kind === 'COMPACTION' ? 'Compaction of the history' : input.text}</span>
      {input.attachments.length > 0 && <span className="pending-note">{input.attachments.length} attached</span>}
      {!input.wakePending && <span className="pending-note">not started</span>}
      <span className="pending-actions">
        {input.kind === 'PROMPT' && (
          <SegmentedControl
            size="xs"
            aria-label="Delivery of this prompt"
            value={input.delivery}
            disabled={busy}
            onChange={(delivery) =>
              void run(() => act(ChangeDeliveryDocument, { input: { ...of, delivery: delivery as Delivery } }))
            }
            data={[
              { value: 'STEER', label: 'Steer' },
              { value: 'QUEUE', label: 'Queue' },
            ]}
          />
        )}
        <Button
          size="compact-xs"
          variant="subtle"
          color="red"
          loading={busy}
          onClick={() => void run(() => act(WithdrawPromptDocument, { input: of }))}
        >
          Withdraw
        </Button>
      </span>
      {error !== null && (
        <span className="form-error" role="alert">
          {error}
        </span>
      )}
    </li>
  )
}

function Leaving({ outgoing, onEdit }: { outgoing: Outgoing; onEdit: (text: string) => void }) {
  const { messageId, text, refused } = outgoing
  if (refused === undefined)
    return (
      <li className="pending-item">
        <span className="pending-text">{text}</span>
        <span className="pending-note">sending…</span>
      </li>
    )
  return (
    <li className="pending-item" data-refused>
      <span className="pending-text">{text}</span>
      <span className="pending-actions">
        <Button size="compact-xs" variant="default" onClick={() => again(outgoing)}>
          Try again
        </Button>
        <Button
          size="compact-xs"
          variant="subtle"
          onClick={() => {
            forget(messageId)
            onEdit(text)
          }}
        >
          Take back to edit
        </Button>
      </span>
      <span className="form-error" role="alert">
        Not accepted: {refused}
      </span>
    </li>
  )
}
