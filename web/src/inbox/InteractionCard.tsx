import { useState } from 'react'
import { Notice } from '../parts/Notice.tsx'
import { ApprovalForm } from './ApprovalForm.tsx'
import { QuestionForm } from './QuestionForm.tsx'

/** What both the transcript and the inbox know of a question to a person. */
export interface Asked {
  id: string
  kind: string
  state: string
  toolName: string
  toolInput: unknown
  prompt: string
  options: readonly string[]
  expiresAt: string | null
}

const when = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' })

/** A question that waits for a person, with everything that can be answered. It goes away by the event that settles it, whoever did it. */
export function InteractionCard({ interaction }: { interaction: Asked }) {
  const [settled, setSettled] = useState<string | null>(null)
  if (settled !== null) return <Notice tone="info">{settled}</Notice>
  const Form = interaction.kind === 'APPROVAL' ? ApprovalForm : QuestionForm
  return (
    <section
      className="ask"
      aria-label={interaction.kind === 'APPROVAL' ? `Approval of ${interaction.toolName}` : 'Question'}
    >
      <Form interaction={interaction} onSettled={setSettled} />
      {interaction.expiresAt !== null && (
        <p className="ask-expiry">Declined by itself {when.format(new Date(interaction.expiresAt))}.</p>
      )}
    </section>
  )
}
