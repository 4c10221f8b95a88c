// Tool output as it is kept and shown to the model: JSON, bounded to 2000 lines or 50 KiB of text with head and tail kept and the gap
// marked (design section 6). Media parts pass, and the order of parts is kept.

import type { JsonValue } from '../../events.ts'
import { safeJson } from '../models/safe-text.ts'

export const outputLinesMax = 2000
export const outputBytesMax = 50 * 1024

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

/** The text within the bounds: itself, or head and tail with a marker that says how much was left out. */
export function boundText(text: string, linesMax = outputLinesMax, bytesMax = outputBytesMax): string {
  const lines = text.split('\n')
  if (lines.length <= linesMax && bytesOf(text) <= bytesMax) return text
  let head = text
  let tail = ''
  if (lines.length > linesMax) {
    const half = Math.floor(linesMax / 2)
    head = lines.slice(0, half).join('\n')
    tail = lines.slice(-half).join('\n')
  }
  if (bytesOf(head) + bytesOf(tail) > bytesMax) {
    const half = Math.floor(bytesMax / 2)
    tail = within(tail === '' ? text : tail, half, 'end')
    head = within(head, half, 'start')
  }
  const leftBytes = bytesOf(text) - bytesOf(head) - bytesOf(tail)
  const leftLines = lines.length - head.split('\n').length - tail.split('\n').length
  return `${head}\n[... ${leftBytes} bytes${leftLines > 0 ? `, ${leftLines} lines` : ''} left out ...]\n${tail}`
}

function boundParts(parts: JsonValue[]): JsonValue[] {
  const texts = parts.filter(isTextPart).map(({ text }) => text)
  const all = texts.join('\n')
  if (boundText(all) === all) return parts
  // The budget is shared by size, so that a small part beside a huge one stays whole where it can.
  const share = (text: string, budget: number, size: number) =>
    Math.max(2, Math.floor((budget * size) / Math.max(1, bytesOf(all)) || text.length))
  return parts.map((part) =>
    isTextPart(part)
      ? {
          ...part,
          text: boundText(
            part.text,
            Math.max(2, Math.floor((outputLinesMax * part.text.split('\n').length) / all.split('\n').length)),
            share(part.text, outputBytesMax, bytesOf(part.text)),
          ),
        }
      : part,
  )
}

/**
 * What a tool returned, as it is stored: plain JSON (nothing becomes an empty text), storable and bounded. Throws if the value has no
 * JSON form (a cycle, a bigint): that is the tool's error.
 */
export function boundOutput(returned: unknown): JsonValue {
  const text = JSON.stringify(returned)
  const output = text === undefined ? '' : safeJson(JSON.parse(text) as JsonValue)
  if (output === null) return ''
  if (typeof output === 'string') return boundText(output)
  if (isPartList(output)) return boundParts(output)
  const json = JSON.stringify(output)
  return bytesOf(json) <= outputBytesMax ? output : boundText(json)
}
