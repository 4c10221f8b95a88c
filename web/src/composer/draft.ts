import { useCallback, useState } from 'react'

const keyOf = (sessionId: string) => `holdfast.draft.${sessionId}`

/** Keeps a draft without showing it; an empty one is forgotten. */
export function keepDraft(sessionId: string, text: string): void {
  try {
    if (text === '') localStorage.removeItem(keyOf(sessionId))
    else localStorage.setItem(keyOf(sessionId), text)
  } catch {
    // No room: the text stays in the page.
  }
}

/** What was written and not sent, per session; kept in the browser, so that a reload or a crash loses no word. */
export function useDraft(sessionId: string): [string, (text: string) => void] {
  const [text, setText] = useState(() => localStorage.getItem(keyOf(sessionId)) ?? '')
  const write = useCallback(
    (next: string) => {
      setText(next)
      keepDraft(sessionId, next)
    },
    [sessionId],
  )
  return [text, write]
}
