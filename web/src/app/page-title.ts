import { useEffect } from 'react'
import { createStore } from '../api/store.ts'

const waiting = createStore(0)
const name = createStore('')

/** What the browser's tab says: how much waits for a person, and what is shown. */
function show(): void {
  const count = waiting.get() > 0 ? `(${waiting.get()}) ` : ''
  document.title = count + (name.get() === '' ? 'Holdfast' : `${name.get()} · Holdfast`)
}
waiting.subscribe(show)
name.subscribe(show)

/** Names the page in the browser's tab while the component is shown. */
export function usePageTitle(title: string): void {
  useEffect(() => {
    name.set(title)
    return () => name.set('')
  }, [title])
}

/** Tells the browser's tab how much waits for a person. */
export function useWaitingCount(count: number): void {
  useEffect(() => waiting.set(count), [count])
}
