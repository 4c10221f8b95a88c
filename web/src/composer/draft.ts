import { useCallback, useState } from 'react'

const keyOf = (sessionId: string) => `holdfast.draft.${sessionId}`

/** What was written and not sent, per session; kept in the browser, so that a reload or a crash loses no word. */
export function useDraft(sessionId: string): [string, (text: string) => void] {
  const [text, setText] = useState(() => localStorage.getItem(keyOf(sessionId)) ?? '')
  const write = useCallback(
    (next: string) => {
      setText(next)
      try {
        if (next === '') localStorage.removeItem(keyOf(sessionId))
        else localStorage.setItem(keyOf(sessionId), next)
      } catch {
        // No room: the text stays in the page.
      }
    },
    [sessionId],
  )
  return [text, write]
}
