// Rules for what callers send. Each gives the field's rule as text, or null where it is kept.

import { hasUnstorableText } from '../append.ts'
import type { JsonValue } from '../events.ts'
import { isClientId } from '../ids.ts'
import { jsonLevelsMax, levelsOf, tooDeepRule } from './plain-json.ts'

const idRule = (prefix: string) =>
  `must be "${prefix}" followed by 8 to 64 characters of A-Z, a-z, 0-9, "_" and "-" (ids with a dot are the server's)`

export const brokenIdRule = (prefix: 'ses_' | 'msg_', id: string): string | null =>
  isClientId(prefix, id) ? null : idRule(prefix)

/** Has it half of a surrogate pair? The engine's own look takes a thousandth of the time that a pattern takes with a long text. */
export const isIllFormed = (text: string): boolean => !(text as string & { isWellFormed(): boolean }).isWellFormed()

/** Text that the database can keep: no NUL, no half of a surrogate pair. */
export function unstorableRule(text: string): string | null {
  if (text.includes('\u0000')) return 'must not contain the NUL character'
  return isIllFormed(text) ? 'must be well-formed Unicode: it has half of a surrogate pair' : null
}

/** At most `bytesMax` bytes of UTF-8. */
export function tooLongRule(text: string, bytesMax: number): string | null {
  const bytes = Buffer.byteLength(text, 'utf8')
  return bytes > bytesMax ? `has ${bytes} bytes, at most ${bytesMax} are taken` : null
}

export const brokenTextRule = (text: string, bytesMax: number): string | null =>
  unstorableRule(text) ?? tooLongRule(text, bytesMax)

/**
 * A caller's JSON as it comes back from the database, so that a repeat of the call compares equal to what is stored; or the rule that it
 * breaks. At most `bytesMax` bytes of JSON text.
 */
export function storableJson(json: unknown, bytesMax: number): { value: JsonValue } | { rule: string } {
  const text = jsonText(json ?? null)
  if (text === null) return { rule: tooDeepRule }
  const rule = tooLongRule(text, bytesMax)
  if (rule !== null) return { rule }
  if (levelsOf(text) > jsonLevelsMax) return { rule: tooDeepRule }
  if (hasUnstorableText(text)) return { rule: 'must not contain the NUL character or half of a surrogate pair' }
  return { value: JSON.parse(text) as JsonValue }
}

/** Null where the stack does not reach down to the end of it, which is all that can fail with what was parsed from JSON. */
function jsonText(json: unknown): string | null {
  try {
    return JSON.stringify(json)
  } catch {
    return null
  }
}

/** Can this id be looked up at all? Text that the database cannot hold names nothing. */
export const isLookable = (id: string) => !id.includes('\u0000') && !/\p{Cs}/u.test(id) && id.length <= 200
