// Tool output as it is kept and shown to the model: JSON, bounded to 2000 lines or 50 KiB of text with head and tail kept and the gap
// marked (design section 6). Media parts pass, and the order of parts is kept.

import type { JsonValue } from '../../events.ts'
import { plainJson } from '../plain-json.ts'

const outputLinesMax = 2000
export const outputBytesMax = 50 * 1024
/** Of all media parts together, as base64. No append could hold much more. */
const mediaBytesMax = 32 * 1024 * 1024

/** A part of an output that is no text; `data` is base64. */
export interface MediaPart {
  type: 'media'
  data: string
  mediaType: string
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export const isMediaPart = (part: unknown): part is MediaPart =>
  isRecord(part) && part.type === 'media' && typeof part.data === 'string' && typeof part.mediaType === 'string'

const isTextPart = (part: unknown): part is { type: 'text'; text: string } =>
  isRecord(part) && part.type === 'text' && typeof part.text === 'string'

/** Is this output a list of text and media parts? */
export const isPartList = (output: unknown): output is JsonValue[] =>
  Array.isArray(output) && output.length > 0 && output.every((part) => isTextPart(part) || isMediaPart(part))

const bytesOf = (text: string) => Buffer.byteLength(text, 'utf8')

/** The longest start (or end) of the text within the bytes, never splitting a character. */
function within(text: string, bytes: number, from: 'start' | 'end'): string {
  const buffer = Buffer.from(text, 'utf8')
  if (buffer.length <= bytes) return text
  let cut = from === 'start' ? bytes : buffer.length - bytes
  const step = from === 'start' ? -1 : 1
  // A UTF-8 continuation byte looks like 10xxxxxx: move off it.
  while (cut > 0 && cut < buffer.length && (buffer[cut]! & 0xc0) === 0x80) cut += step
  return (from === 'start' ? buffer.subarray(0, cut) : buffer.subarray(cut)).toString('utf8')
}

/** What is left out of a text beyond the bounds: from here, to there, and the marker that says how much. Null: it is within them. */
function gapOf(text: string, linesMax: number, bytesMax: number): { from: number; to: number; marker: string } | null {
  const lines = text.split('\n')
  // A final newline ends a line and begins none.
  const ended = text.endsWith('\n') ? 1 : 0
  const isLong = lines.length - ended > linesMax
  if (!isLong && bytesOf(text) <= bytesMax) return null
  const halfOfLines = Math.floor(linesMax / 2)
  // An empty tail of a long text is its last line, not a text that has not been cut yet.
  let head = isLong ? lines.slice(0, halfOfLines).join('\n') : text
  let tail = isLong ? lines.slice(-halfOfLines - ended).join('\n') : text
  if (!isLong || bytesOf(head) + bytesOf(tail) > bytesMax) {
    const halfOfBytes = Math.floor(bytesMax / 2)
    head = within(head, halfOfBytes, 'start')
    tail = within(tail, halfOfBytes, 'end')
  }
  const leftBytes = bytesOf(text) - bytesOf(head) - bytesOf(tail)
  const leftLines = lines.length - head.split('\n').length - tail.split('\n').length
  const marker = `[... ${leftBytes} bytes${leftLines > 0 ? `, ${leftLines} lines` : ''} left out ...]`
  return { from: head.length, to: text.length - tail.length, marker }
}

/** The text within the bounds: itself, or head and tail with a marker that says how much was left out. */
export function boundText(text: string, linesMax = outputLinesMax, bytesMax = outputBytesMax): string {
  const gap = gapOf(text, linesMax, bytesMax)
  return gap === null ? text : `${text.slice(0, gap.from)}\n${gap.marker}\n${text.slice(gap.to)}`
}

/** The texts of the parts are bounded as the one text that they are to the model, so that their number makes no difference. */
function boundParts(parts: JsonValue[]): JsonValue[] {
  const media = parts.reduce((sum: number, part) => sum + (isMediaPart(part) ? part.data.length : 0), 0)
  if (media > mediaBytesMax)
    throw new Error(`the output has ${media} bytes of media, more than the ${mediaBytesMax} that can be kept`)
  const all = parts.filter(isTextPart).map(({ text }) => text)
  const gap = gapOf(all.join('\n'), outputLinesMax, outputBytesMax)
  if (gap === null) return parts
  let at = 0
  let isMarked = false
  return parts.flatMap((part) => {
    if (!isTextPart(part)) return [part]
    const start = at
    const end = start + part.text.length
    at = end + 1
    if (end <= gap.from || start >= gap.to) return [part]
    const head = part.text.slice(0, Math.max(0, gap.from - start))
    const tail = part.text.slice(gap.to - start)
    if (isMarked) return tail === '' ? [] : [{ ...part, text: tail }]
    isMarked = true
    return [{ ...part, text: `${head}\n${gap.marker}\n${tail}` }]
  })
}

/**
 * What a tool returned, as it is stored: plain JSON (nothing becomes an empty text), storable and bounded, in depth too. Throws if the
 * value has no JSON form (a cycle, a bigint) or more media than can be kept: that is the tool's error.
 */
export function boundOutput(returned: unknown): JsonValue {
  const output = plainJson(returned) ?? ''
  if (typeof output === 'string') return boundText(output)
  if (isPartList(output)) return boundParts(output)
  const json = JSON.stringify(output)
  return bytesOf(json) <= outputBytesMax ? output : boundText(json)
}
