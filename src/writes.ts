// Whether the database takes what this process writes: what became of the last append, for whoever asks whether the server is ready.

import { sqlStateOf } from './db.ts'

export interface Writes {
  /** An append that was tried as often as it may be: the database cannot write now. */
  failed(cause: Error | undefined): void
  succeeded(): void
  /** Null while all goes well; else why the last append failed, `state` null if no SQLSTATE says it. */
  trouble(): { state: string | null } | null
}

/** Somebody else had the rows: no trouble of the database. */
const isContention = (state: string | null) => state !== null && /^(40|55)/.test(state)

export function createWrites(): Writes {
  let trouble: { state: string | null } | null = null
  return {
    failed(cause) {
      // The append function gives its refusal as a value, the driver throws.
      const { sqlState } = (cause ?? {}) as { sqlState?: unknown }
      const state = typeof sqlState === 'string' ? sqlState : sqlStateOf(cause)
      if (!isContention(state)) trouble = { state }
    },
    succeeded() {
      trouble = null
    },
    trouble: () => trouble,
  }
}
