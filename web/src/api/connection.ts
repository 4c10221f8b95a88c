import { createStore } from './store.ts'

/**
 * How this page stands with its server.
 * `lost`: tried again at `retryAt` (ms since 1970); null while a try is under way. `signedOut`: the server wants a (new) token.
 */
export type Connection =
  | { state: 'connecting' }
  | { state: 'open' }
  | { state: 'lost'; since: number; attempt: number; retryAt: number | null }
  | { state: 'signedOut'; reason: 'required' | 'refused' }

export const connection = createStore<Connection>({ state: 'connecting' })

/** Rises each time the connection is there (again): what is live only has to be read anew. */
export const epoch = createStore(0)

export function connected(): void {
  connection.set({ state: 'open' })
  epoch.set(epoch.get() + 1)
}

/** The socket has closed. */
export function disconnected(): void {
  if (connection.get().state === 'open') connection.set({ state: 'lost', since: Date.now(), attempt: 0, retryAt: null })
}

/** When it is tried next; null: right now. Says nothing where there is a connection: others may have brought it back meanwhile. */
export function retrying(attempt: number, retryAt: number | null): void {
  const now = connection.get()
  if (now.state === 'open' || now.state === 'signedOut') return
  connection.set({ state: 'lost', since: now.state === 'lost' ? now.since : Date.now(), attempt, retryAt })
}

export function signedOut(hadToken: boolean): void {
  const now = connection.get()
  if (now.state !== 'signedOut') connection.set({ state: 'signedOut', reason: hadToken ? 'refused' : 'required' })
}
