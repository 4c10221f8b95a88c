import { Button, Modal, Textarea, TextInput } from '@mantine/core'
import { useState } from 'react'
import { UpdateSessionDocument } from '../../../src/client/generated/graphql.ts'
import type { SessionView } from '../../../src/client/view.ts'
import { act, useAct } from '../api/act.ts'

/** Title, model and instructions of a session. The last two hold from the next step on. */
export function SettingsDialog({ view, onClose }: { view: SessionView; onClose: () => void }) {
  const [title, setTitle] = useState(view.title ?? '')
  const [model, setModel] = useState(view.model)
  const [instructions, setInstructions] = useState(view.instructions ?? '')
  const { busy, error, run } = useAct()
  const save = async () => {
    // Only what was changed here: somebody else may have changed the rest meanwhile.
    const changed = {
      ...(title !== (view.title ?? '') && { title: title.trim() || null }),
      ...(model !== view.model && { model: model.trim() }),
      ...(instructions !== (view.instructions ?? '') && { instructions: instructions.trim() || null }),
    }
    const saved =
      Object.keys(changed).length === 0 ||
      (await run(() => act(UpdateSessionDocument, { input: { sessionId: view.id, ...changed } })))
    if (saved) onClose()
  }
  return (
    <Modal opened onClose={onClose} title="Session" lockScroll={false} centered>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault()
          void save()
        }}
      >
        <TextInput
          label="Title"
          data-autofocus
          value={title}
          onChange={(event) => setTitle(event.currentTarget.value)}
        />
        <TextInput
          label="Model"
          description="From the next step on"
          value={model}
          onChange={(event) => setModel(event.currentTarget.value)}
        />
        <Textarea
          label="Instructions"
          rows={5}
          value={instructions}
          onChange={(event) => setInstructions(event.currentTarget.value)}
        />
        {view.approvedTools.length > 0 && <p className="hint">Runs without asking: {view.approvedTools.join(', ')}</p>}
        {error !== null && (
          <p className="form-error" role="alert">
            {error}
          </p>
        )}
        <div className="form-actions">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" loading={busy}>
            Save
          </Button>
        </div>
      </form>
    </Modal>
  )
}
