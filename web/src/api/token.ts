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
