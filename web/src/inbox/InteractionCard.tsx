import { useLayoutEffect, useRef, useState } from 'react'
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
  const card = useRef<HTMLElement>(null)
  const isHere = useRef(false)
  // Whoever answered by keys would start at the top of the page again when the card goes. A button that is waited for loses the focus before.
  useLayoutEffect(
    () => () => {
      const active = document.activeElement
      if (!isHere.current || !(active === document.body || card.current?.contains(active))) return
      const next = document.getElementById('prompt') ?? document.getElementById('main')
      next?.focus()
    },
    [],
  )
  if (settled !== null) return <Notice tone="info">{settled}</Notice>
  const Form = interaction.kind === 'APPROVAL' ? ApprovalForm : QuestionForm
  return (
    <section
      ref={card}
      onFocus={() => {
        isHere.current = true
      }}
      onBlur={({ relatedTarget }) => {
        if (relatedTarget !== null) isHere.current = card.current?.contains(relatedTarget) ?? false
      }}
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
