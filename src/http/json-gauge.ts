import { isExact } from '../exact-numbers.ts'

/** Bytes of a request besides its long texts: what parsing and checking it costs. Its texts and attachments are long texts. */
export const structureBytesMax = 262_144
/** From here on a text counts as one value, however long. */
const longText = 4096
/** No request needs it, and what walks through JSON needs a stack as deep. */
export const levelsMax = 1000

const quote = 0x22
const backslash = 0x5c
const opening = [0x5b, 0x7b]
const closing = [0x5d, 0x7d]

/** A digit or a minus begins a number; within one, a plus, a point and an E too. */
const isOfNumber = (byte: number, within: boolean) =>
  (byte >= 0x30 && byte <= 0x39) ||
  byte === 0x2d ||
  (within && (byte === 0x2e || byte === 0x2b || byte === 0x65 || byte === 0x45))

export interface Gauge {
  /** Looks at the next bytes; false as soon as there is too much, or it is nested too deeply. */
  take(bytes: Uint8Array): boolean
  /** Was there a number that cannot be kept as it is written? Of what was taken so far. */
  hasInexact(): boolean
}

/**
 * Measures JSON as it arrives, before anything is made of it: millions of small values cost seconds of processor and gigabytes, one text of the same
 * length nearly nothing. What is no JSON is measured all the same; the parser refuses it.
 */
export function createGauge(most = structureBytesMax): Gauge {
  let structure = 0
  /** Bytes of the text that is open, -1 between texts. */
  let text = -1
  let escaped = false
  let level = 0
  let deepest = 0
  /** The number that is open. */
  let number = ''
  let inexact = false
  function endNumber() {
    inexact ||= !isExact(number)
    number = ''
  }
  return {
    take(bytes) {
      // By index: an iterator takes several times as long, and there may be 40 MB.
      for (let at = 0; at < bytes.length; at++) {
        const byte = bytes[at]!
        if (text < 0) {
          structure += 1
          if (isOfNumber(byte, number !== '')) number += String.fromCharCode(byte)
          else if (number !== '') endNumber()
          if (byte === quote) text = 0
          else if (opening.includes(byte)) deepest = Math.max(deepest, ++level)
          else if (closing.includes(byte)) level -= 1
        } else if (escaped) {
          escaped = false
          text += 1
        } else if (byte === quote) {
          if (text < longText) structure += text
          text = -1
        } else {
          escaped = byte === backslash
          text += 1
        }
      }
      return structure <= most && deepest <= levelsMax
    },
    hasInexact() {
      endNumber()
      return inexact
    },
  }
}
