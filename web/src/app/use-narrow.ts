import { useSyncExternalStore } from 'react'

const narrow = window.matchMedia('(max-width: 820px)')
const subscribe = (listener: () => void) => {
  narrow.addEventListener('change', listener)
  return () => narrow.removeEventListener('change', listener)
}

/** Is there no room for a list beside the conversation? */
export const useNarrow = () => useSyncExternalStore(subscribe, () => narrow.matches)
