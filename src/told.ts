// What a tenant is told of a failure of the server. What the server met (paths, addresses, SQL, names of tables) is for whoever runs it and stands
// in its log.

import { isOfTheRows } from './database-fault.ts'
import { isTransient, sqlStateOf } from './db.ts'
import { AppendRefusedError, BusyError, OverloadedError, UnavailableError, UnknownEventError } from './errors.ts'
import { asError } from './thrown.ts'

export interface Told {
  code: 'OVERLOADED' | 'UNAVAILABLE' | 'BUSY' | 'UNKNOWN_EVENT' | 'ROWS' | 'INTERNAL_SERVER_ERROR'
  /** A sentence that holds nothing of what was thrown. */
  message: string
}

/** What the database said; nothing where what was thrown cannot even be read. */
function ofDatabase(thrown: unknown): { forNow: boolean; state: string | null } {
  try {
    return { forNow: isTransient(thrown), state: sqlStateOf(thrown) }
  } catch {
    return { forNow: false, state: null }
  }
}

/** Did the database or its driver fail, rather than code that reads what it gave? */
export function isOfDatabase(thrown: unknown): boolean {
  const { forNow, state } = ofDatabase(thrown)
  return forNow || state !== null || /^PrismaClient/.test(asError(thrown).name)
}

/**
 * A failure of the server in words for a tenant: the one way from something thrown into an event, a row, an answer or a stream. `under`: by what
 * the log of the server, which has to be told as well, finds it. Never throws.
 */
export function told(thrown: unknown, under: 'request id' | 'session id'): Told {
  if (thrown instanceof OverloadedError)
    return { code: 'OVERLOADED', message: 'the server has too much to do at the moment, try again' }
  if (thrown instanceof BusyError)
    return {
      code: 'BUSY',
      message: 'Too many calls change this session at the same time; this one changed nothing, try again.',
    }
  const { forNow, state: given } = ofDatabase(thrown)
  if (thrown instanceof UnavailableError || forNow)
    return { code: 'UNAVAILABLE', message: 'The database is not available at the moment, try again.' }
  const log = `the log of the server has it under this ${under}.`
  if (under === 'session id') {
    if (thrown instanceof UnknownEventError)
      return { code: 'UNKNOWN_EVENT', message: `Its log holds an event that this version does not know; ${log}` }
    const state = thrown instanceof AppendRefusedError ? thrown.sqlState : given
    if (state !== null && isOfTheRows(state))
      return { code: 'ROWS', message: `What is stored of it contradicts itself or cannot be read; ${log}` }
  }
  return { code: 'INTERNAL_SERVER_ERROR', message: `Unexpected error; ${log}` }
}
