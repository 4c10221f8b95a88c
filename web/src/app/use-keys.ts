import { useEffect } from 'react'
import { go } from './route.ts'

/** Keys that work everywhere. All have Alt, so that none is typed by accident; by their place, as Alt writes other letters on some keyboards. */
export function useKeys({ onSearch }: { onSearch: () => void }): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (!event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return
      if (event.code === 'KeyN') go({ page: 'new' })
      else if (event.code === 'KeyI') go({ page: 'inbox' })
      else if (event.code === 'KeyK') onSearch()
      else if (event.code === 'KeyP') document.getElementById('prompt')?.focus()
      else return
      event.preventDefault()
    }
    window.addEventListener('keydown', onKey)
    return () => window.removeEventListener('keydown', onKey)
  }, [onSearch])
}
