import { Button, TextInput } from '@mantine/core'
import { useState } from 'react'
import { AnswerQuestionDocument, DismissQuestionDocument } from '../../../src/client/generated/graphql.ts'
import { useAct } from '../api/act.ts'
import { decide } from './decide.ts'
import type { Asked } from './InteractionCard.tsx'

/** Choose an answer, write one, or say that there will be none. */
export function QuestionForm({ interaction, onSettled }: { interaction: Asked; onSettled: (words: string) => void }) {
  const [text, setText] = useState('')
  const { busy, error, run } = useAct()
  const interactionId = interaction.id
  const answer = (answer: string) =>
    run(() => decide(onSettled, AnswerQuestionDocument, { input: { interactionId, answer } }))
  const dismiss = () => run(() => decide(onSettled, DismissQuestionDocument, { input: { interactionId } }))
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault()
        if (text.trim() !== '') void answer(text.trim())
      }}
    >
      <p className="ask-title ask-question">{interaction.prompt}</p>
      {interaction.options.length > 0 && (
        <fieldset className="ask-options">
          <legend className="visually-hidden">Answers to choose from</legend>
          {interaction.options.map((option) => (
            <Button key={option} size="xs" variant="light" disabled={busy} onClick={() => void answer(option)}>
              {option}
            </Button>
          ))}
        </fieldset>
      )}
      <TextInput
        size="xs"
        aria-label={interaction.options.length > 0 ? 'Or another answer' : 'Your answer'}
        placeholder={interaction.options.length > 0 ? 'Or another answer' : 'Your answer'}
        value={text}
        onChange={(event) => setText(event.currentTarget.value)}
      />
      {error !== null && (
        <p className="form-error" role="alert">
          {error}
        </p>
      )}
      <div className="ask-actions">
        <Button type="submit" size="xs" loading={busy} disabled={text.trim() === ''}>
          Answer
        </Button>
        <Button size="xs" variant="subtle" color="red" disabled={busy} onClick={() => void dismiss()}>
          Dismiss and stop
        </Button>
      </div>
    </form>
  )
}
