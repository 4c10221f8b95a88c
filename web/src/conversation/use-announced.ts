import { useEffect, useRef } from 'react'
import type { SessionView } from '../../../src/client/view.ts'
import { announce } from '../app/announce.ts'

/** Tells a screen reader what has come about: an answer that is complete, a question, a failure. Word by word would be too much. */
export function useAnnounced(view: SessionView | null): void {
  const before = useRef<{ id: string; message: string | undefined; open: number } | null>(null)
  const last = view?.messages.at(-1)
  const open = view?.interactions.filter(({ state }) => state === 'OPEN').length ?? 0
  const message = last?.type === 'AssistantMessage' ? `${last.id} ${last.status}` : last?.id
  useEffect(() => {
    if (!view) return
    const old = before.current
    before.current = { id: view.id, message, open }
    if (!old || old.id !== view.id) return
    if (open > old.open) announce('A question waits for your answer')
    else if (message !== old.message && last?.type === 'AssistantMessage' && last.status !== 'RUNNING')
      announce(last.status === 'ENDED' ? 'The answer is complete' : `The step has ${last.status.toLowerCase()}`)
  }, [view, message, open, last])
}
