// Rules for what callers send. Each gives the field's rule as text, or null where it is kept.

import { isClientId } from '../ids.ts'

const idRule = (prefix: string) =>
  `must be "${prefix}" followed by 8 to 64 characters of A-Z, a-z, 0-9, "_" and "-" (ids with a dot are the server's)`

export const brokenIdRule = (prefix: 'ses_' | 'msg_', id: string): string | null =>
  isClientId(prefix, id) ? null : idRule(prefix)

/** Text that the database can keep: no NUL, no half of a surrogate pair; at most `bytesMax` bytes of UTF-8. */
export function brokenTextRule(text: string, bytesMax: number): string | null {
  if (text.includes('\u0000')) return 'must not contain the NUL character'
  if (/\p{Cs}/u.test(text)) return 'must be well-formed Unicode: it has half of a surrogate pair'
  const bytes = Buffer.byteLength(text, 'utf8')
  return bytes > bytesMax ? `has ${bytes} bytes, at most ${bytesMax} are taken` : null
}

/** Can this id be looked up at all? Text that the database cannot hold names nothing. */
export const isLookable = (id: string) => !id.includes('\u0000') && !/\p{Cs}/u.test(id) && id.length <= 200
