import { Button, Checkbox, Textarea } from '@mantine/core'
import { useState } from 'react'
import { type ApprovalDecision, DecideApprovalDocument } from '../../../src/client/generated/graphql.ts'
import { useAct } from '../api/act.ts'
import { readable } from '../conversation/json.ts'
import { Icon } from '../parts/Icon.tsx'
import { decide } from './decide.ts'
import type { Asked } from './InteractionCard.tsx'

type Mode = 'decide' | 'edit' | 'decline'

/** Approve as it is or with other input, once or from now on; or decline, with words for the model, and go on or stop. */
export function ApprovalForm({ interaction, onSettled }: { interaction: Asked; onSettled: (words: string) => void }) {
  const [mode, setMode] = useState<Mode>('decide')
  const [input, setInput] = useState(() => JSON.stringify(interaction.toolInput ?? {}, null, 2))
  const [feedback, setFeedback] = useState('')
  const [remember, setRemember] = useState(false)
  const { busy, error, run } = useAct()
  const parsed = parse(input)

  const send = (decision: ApprovalDecision) =>
    run(() =>
      decide(onSettled, DecideApprovalDocument, {
        input: {
          interactionId: interaction.id,
          decision,
          ...(decision === 'APPROVE'
            ? { remember, ...(mode === 'edit' ? { editedInput: parsed.value } : {}) }
            : { feedback: feedback.trim() || null }),
        },
      }),
    )

  return (
    <>
      <p className="ask-title">
        <Icon name="shield" size={16} /> May <strong>{interaction.toolName}</strong> run?
      </p>
      <p className="ask-prompt">{interaction.prompt}</p>
      {mode === 'edit' ? (
        <Textarea
          label="Input of the tool, as JSON"
          classNames={{ input: 'mono' }}
          value={input}
          onChange={(event) => setInput(event.currentTarget.value)}
          error={parsed.error}
          rows={Math.min(14, input.split('\n').length + 1)}
          spellCheck={false}
        />
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: long input is scrolled by keys, too
        <section className="ask-input" tabIndex={0} aria-label="Input of the tool">
          {readable(interaction.toolInput)}
        </section>
      )}
      {mode === 'decline' && (
        <Textarea
          label="Why not? The model reads this."
          value={feedback}
          onChange={(event) => setFeedback(event.currentTarget.value)}
          rows={2}
        />
      )}
      {mode !== 'decline' && (
        <Checkbox
          size="xs"
          checked={remember}
          onChange={(event) => setRemember(event.currentTarget.checked)}
          label={`Do not ask again for ${interaction.toolName} in this session`}
        />
      )}
      {error !== null && (
        <p className="form-error" role="alert">
          {error}
        </p>
      )}
      <div className="ask-actions">
        {mode !== 'decline' && (
          <>
            <Button
              size="xs"
              loading={busy}
              disabled={mode === 'edit' && parsed.error !== null}
              onClick={() => send('APPROVE')}
            >
              {mode === 'edit' ? 'Approve with this input' : 'Approve'}
            </Button>
            <Button size="xs" variant="default" onClick={() => setMode(mode === 'edit' ? 'decide' : 'edit')}>
              {mode === 'edit' ? 'Leave input as it was' : 'Edit input'}
            </Button>
            <Button size="xs" variant="subtle" color="red" onClick={() => setMode('decline')}>
              Decline…
            </Button>
          </>
        )}
        {mode === 'decline' && (
          <>
            <Button size="xs" variant="default" loading={busy} onClick={() => send('DECLINE_AND_CONTINUE')}>
              Decline and go on
            </Button>
            <Button size="xs" variant="outline" color="red" loading={busy} onClick={() => send('DECLINE_AND_STOP')}>
              Decline and stop
            </Button>
            <Button size="xs" variant="subtle" color="gray" onClick={() => setMode('decide')}>
              Back
            </Button>
          </>
        )}
      </div>
    </>
  )
}

function parse(text: string): { value: unknown; error: string | null } {
  try {
    return { value: JSON.parse(text), error: null }
  } catch (thrown) {
    return { value: undefined, error: thrown instanceof Error ? thrown.message : 'not JSON' }
  }
}
