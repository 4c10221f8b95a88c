import { createStore } from './store.ts'

const key = 'holdfast.token'

/** What the user signed in with: kept for this tab until it is closed, never in an address or a log. */
export const token = createStore<string | null>(sessionStorage.getItem(key))

token.subscribe(() => {
  const value = token.get()
  if (value === null) sessionStorage.removeItem(key)
  else sessionStorage.setItem(key, value)
})

/** The Authorization header's value; undefined when nobody has signed in. */
export const authorization = () => {
  const value = token.get()
  return value === null ? undefined : `Bearer ${value}`
}

/** Leaves nothing of whoever was here: no token, no unsent prompt that the next one would send, no draft. */
export function signOut(): void {
  sessionStorage.clear()
  for (const name of Object.keys(localStorage)) if (name.startsWith('holdfast.draft.')) localStorage.removeItem(name)
  location.reload()
}
