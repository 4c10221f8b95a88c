// Attachments: checked when a prompt is admitted, turned into a file part when the model is asked. Nothing is fetched here: an https
// URL is passed on to the provider as it is.

import type { LanguageModelV4FilePart, LanguageModelV4TextPart } from '@ai-sdk/provider'
import type { Attachment } from '../events.ts'
import { type Dialect, isTextual, takesFile } from './dialect.ts'
import { safeText } from './models/safe-text.ts'

const mediaTypeRule = /^[a-zA-Z0-9!#$&^_.+-]+\/[a-zA-Z0-9!#$&^_.+-]+$/
// Flat on purpose: a repeated group would need a stack as deep as the attachment is long.
const base64Rule = /^[A-Za-z0-9+/]*={0,2}$/

interface DataUrl {
  mediaType: string
  base64: boolean
  body: string
}

/** Splits a data: URL (RFC 2397); null if it is none. */
export function parseDataUrl(url: string): DataUrl | null {
  if (!/^data:/i.test(url)) return null
  const comma = url.indexOf(',')
  if (comma === -1) return null
  const head = url.slice(5, comma)
  const base64 = /;base64$/i.test(head)
  return { mediaType: head.split(';')[0] || 'text/plain', base64, body: url.slice(comma + 1) }
}

/** The bytes that an attachment takes, or the rule that it breaks. Looks at a long one slice by slice, so that others get their turn. */
export async function checkAttachment({
  name,
  mediaType,
  url,
}: Attachment): Promise<{ bytes: number } | { rule: string }> {
  if (name.trim() === '' || name.length > 255) return { rule: 'a name has 1 to 255 characters' }
  if (!mediaTypeRule.test(mediaType) || mediaType.length > 127) return { rule: 'a mediaType looks like image/png' }
  if (/^data:/i.test(url)) {
    const data = parseDataUrl(url)
    if (data === null) return { rule: 'a data: URL needs a comma before its data' }
    if (!data.base64)
      return (await everySlice(data.body, endOfEscapes, isPercentEncoded))
        ? { bytes: data.body.length }
        : { rule: 'a data: URL without ;base64 is percent-encoded' }
    if (data.body.length % 4 !== 0 || !(await isBase64(data.body))) return { rule: 'the data: URL is not valid base64' }
    return { bytes: Math.floor((data.body.length * 3) / 4) }
  }
  if (!/^https:\/\//i.test(url) || !URL.canParse(url)) return { rule: 'a url is a data: or an https: URL' }
  const { username, password } = new URL(url)
  if (username !== '' || password !== '') return { rule: 'an https: URL must not hold a user name or password' }
  if (url.length > 8192) return { rule: 'an https: URL has at most 8192 characters' }
  return { bytes: url.length }
}

const sliceLength = 1_000_000

/** Does every slice of a text pass? `end` says where a slice that would end at a place has to end instead. */
async function everySlice(
  text: string,
  end: (text: string, at: number) => number,
  passes: (slice: string) => boolean,
): Promise<boolean> {
  for (let from = 0, to: number; from < text.length; from = to) {
    to = from + sliceLength < text.length ? end(text, from + sliceLength) : text.length
    if (!passes(text.slice(from, to))) return false
    if (to < text.length) await new Promise((resolve) => setImmediate(resolve))
  }
  return true
}

/** Only the last four characters may hold the signs that fill it up. */
const isBase64 = async (text: string) =>
  base64Rule.test(text.slice(-4)) &&
  everySlice(
    text.slice(0, -4),
    (_, at) => at,
    (slice) => /^[A-Za-z0-9+/]*$/.test(slice),
  )

/**
 * The next place at which no escaped character is cut in two: before a `%` that does not go on with the character before it (10xxxxxx). A character has at most
 * four bytes, of three signs each; where they go on for longer something is wrong, and any place will do.
 */
function endOfEscapes(text: string, at: number): number {
  const first = text.indexOf('%', at - 2)
  if (first === -1 || first > at) return at
  for (let place = first; place < first + 15; place += 3)
    if (!/^%[89ab]/i.test(text.slice(place, place + 2))) return place
  return at
}

function isPercentEncoded(body: string): boolean {
  try {
    decodeURIComponent(body)
    return true
  } catch {
    return false
  }
}

const textPart = (text: string): LanguageModelV4TextPart => ({ type: 'text', text })

/**
 * The attachment as the model's provider takes it: files as data: or https: URLs where it can read them, textual ones as text, and of
 * all others the name, so that the model can say what it was not shown.
 */
export function attachmentPart(
  { name, mediaType, url }: Attachment,
  dialect: Dialect,
): LanguageModelV4FilePart | LanguageModelV4TextPart {
  const data = parseDataUrl(url)
  const label = `Attachment ${JSON.stringify(name)} (${mediaType})`
  const file = { type: 'file' as const, filename: name, mediaType }
  if (data === null) {
    if (takesFile(dialect, mediaType, 'url')) return { ...file, data: { type: 'url', url: new URL(url) } }
    return textPart(`[${label}: ${url}]`)
  }
  const bytes = data.base64 ? Buffer.from(data.body, 'base64') : Buffer.from(decodeURIComponent(data.body), 'utf8')
  if (takesFile(dialect, mediaType, 'data')) {
    return { ...file, data: { type: 'data', data: data.base64 ? data.body : bytes.toString('base64') } }
  }
  if (isTextual(mediaType)) return textPart(`${label}:\n\n${safeText(bytes.toString('utf8'))}`)
  return textPart(`[${label} is left out: this model cannot read such a file]`)
}
