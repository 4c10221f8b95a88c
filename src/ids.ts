// Ids that the server makes contain a dot, which clients may not use (design section 3), so the two can never collide.
// Time-ordered (UUID v7), so that indexes grow at one end. Derived ids make a repeat of the same decision the same row.

import { v7 } from 'uuid'

const compact = () => v7().replaceAll('-', '')

export const newExecutionId = () => `exe_.${compact()}`
export const newMessageId = () => `msg_.${compact()}`
export const newInteractionId = () => `req_.${compact()}`
export const newQuarantineId = () => `qua_.${compact()}`
export const newOwnerId = () => `own_.${compact()}`
export const newAppendId = () => v7()

const suffixOf = (executionId: string) => executionId.slice(executionId.indexOf('_') + 1)

/** The continuation that follows from a cut-off execution: the same execution always gives the same input (design section 9). */
export const continuationIdOf = (executionId: string) => `msg_.continue${suffixOf(executionId)}`

/** The recovery row of a cut-off execution. */
export const recoveryIdOf = (executionId: string) => `rec_${suffixOf(executionId)}`

/** Ids that clients make: prefix + 8 to 64 characters of [A-Za-z0-9_-]. */
const clientId = /^[A-Za-z0-9_-]{8,64}$/

/** Is this an id that a client may make with the given prefix? */
export function isClientId(prefix: 'ses_' | 'msg_', id: string): boolean {
  return id.startsWith(prefix) && clientId.test(id.slice(prefix.length))
}
