// Ids that a client makes (contract: prefix, then 8 to 64 characters of A-Z a-z 0-9 _ -). Time-ordered, 74 random bits in each.

import { v7 } from 'uuid'

const compact = () => v7().replaceAll('-', '')

/** A new session id. Make it once, before the first try: a call that is repeated with it has its effect once. */
export const newSessionId = () => `ses_${compact()}`

/** A new message id. Make it once, before the first try: a call that is repeated with it has its effect once. */
export const newMessageId = () => `msg_${compact()}`
