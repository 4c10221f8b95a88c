// Attachments: checked when a prompt is admitted, turned into a file part when the model is asked. Nothing is fetched here: an https
// URL is passed on to the provider as it is.

import type { LanguageModelV4FilePart } from '@ai-sdk/provider'
import type { Attachment } from '../events.ts'

const mediaTypeRule = /^[a-zA-Z0-9!#$&^_.+-]+\/[a-zA-Z0-9!#$&^_.+-]+$/
const base64Rule = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

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

/** The bytes that an attachment takes, or the rule that it breaks. */
export function checkAttachment({ name, mediaType, url }: Attachment): { bytes: number } | { rule: string } {
  if (name.trim() === '' || name.length > 255) return { rule: 'a name has 1 to 255 characters' }
  if (!mediaTypeRule.test(mediaType) || mediaType.length > 127) return { rule: 'a mediaType looks like image/png' }
  if (/^data:/i.test(url)) {
    const data = parseDataUrl(url)
    if (data === null) return { rule: 'a data: URL needs a comma before its data' }
    if (!data.base64)
      return isPercentEncoded(data.body)
        ? { bytes: data.body.length }
        : { rule: 'a data: URL without ;base64 is percent-encoded' }
    if (!base64Rule.test(data.body)) return { rule: 'the data: URL is not valid base64' }
    return { bytes: Math.floor((data.body.length * 3) / 4) }
  }
  if (!/^https:\/\//i.test(url) || !URL.canParse(url)) return { rule: 'a url is a data: or an https: URL' }
  if (url.length > 8192) return { rule: 'an https: URL has at most 8192 characters' }
  return { bytes: url.length }
}

function isPercentEncoded(body: string): boolean {
  try {
    decodeURIComponent(body)
    return true
  } catch {
    return false
  }
}

/** The attachment as a provider takes it: data: URLs as their data, https: URLs as they are. */
export function attachmentPart({ name, mediaType, url }: Attachment): LanguageModelV4FilePart {
  const data = parseDataUrl(url)
  const common = { type: 'file' as const, filename: name, mediaType }
  if (data === null) return { ...common, data: { type: 'url', url: new URL(url) } }
  const bytes = data.base64 ? data.body : Buffer.from(decodeURIComponent(data.body), 'utf8').toString('base64')
  return { ...common, data: { type: 'data', data: bytes } }
}
