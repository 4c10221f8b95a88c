// Ids and names of tool calls as they are kept. Both are the provider's words, of any length; both stand in events, in columns, and the id
// in keys, whose entries PostgreSQL bounds at about 2700 bytes.

import { createHash } from 'node:crypto'
import { safeText } from './safe-text.ts'

const idMax = 256
const nameMax = 256

/** The id itself where it can be stored; else one that begins like it and is different for every other id. */
export function keptCallId(id: string): string {
  const safe = safeText(String(id))
  if (safe === id && id.length <= idMax) return id
  const digest = createHash('sha256')
    .update(Buffer.from(String(id), 'utf16le'))
    .digest('hex')
  return `${safeText(safe.slice(0, 64))}~${digest}`
}

/** The name, cut where no tool's can be so long: a call by such a name is one of an unknown tool. */
export const keptName = (name: string): string => safeText(String(name).slice(0, nameMax))
