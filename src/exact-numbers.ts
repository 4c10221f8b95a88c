// Numbers of JSON that cannot be kept. Once parsed a number is a double: 9007199254740993 is another one then, 1e400 is none, and nothing tells that it was
// not what somebody wrote. So it is looked for in the text. How a number is written does not matter: 1.0 is 1, 1e2 is 100, -0 is 0.

/** Every number of so many characters without an exponent is kept: a double has 15 decimal digits, and some more. */
const alwaysKept = 15

/** Its digits without zeros around them, and the power of ten behind the first. */
function decimalOf(text: string): string {
  const [mantissa = '', exponent = '0'] = text.replace(/^-/, '').toLowerCase().split('e')
  const [whole = '', fraction = ''] = mantissa.split('.')
  const digits = whole + fraction
  let from = 0
  while (digits[from] === '0') from++
  let to = digits.length
  while (to > from && digits[to - 1] === '0') to--
  return from === to ? '0' : `${digits.slice(from, to)}e${whole.length - from + Number(exponent)}`
}

/** Is this number of JSON or GraphQL, as it is written, the one that comes back after it was kept? */
export function isExact(text: string): boolean {
  if (text.length <= alwaysKept && !/e/i.test(text)) return true
  const kept = Number(text)
  return Number.isFinite(kept) && decimalOf(String(kept)) === decimalOf(text)
}

export interface Inexact {
  path: (string | number)[]
  /** As it is written. */
  number: string
}

/** What is wrong with it, for whoever sent it. `path` begins with the field. */
export const inexactText = ({ path, number }: Inexact): string =>
  `${path.join('.')}: the number ${number.length > 40 ? `${number.slice(0, 40)}…` : number} cannot be kept exactly; send it as text`

/** The first number in this text of JSON that cannot be kept and stands where it is asked for; null if there is none. Takes what is no JSON, and says anything then. */
export function findInexact(
  json: Uint8Array | string,
  isAsked: (path: Inexact['path']) => boolean = () => true,
): Inexact | null {
  const bytes =
    typeof json === 'string' ? Buffer.from(json) : Buffer.from(json.buffer, json.byteOffset, json.byteLength)
  const path: Inexact['path'] = []
  /** Of each level: is it an object? */
  const objects: boolean[] = []
  let key = ''
  for (let at = 0; at < bytes.length; ) {
    const byte = bytes[at]!
    if (byte === 0x22) {
      const end = endOfText(bytes, at)
      // A long text is no key that anybody reads.
      if (objects.at(-1)) key = end - at <= 256 ? textOf(bytes.subarray(at, end)) : '…'
      at = end
    } else if (byte === 0x2d || (byte >= 0x30 && byte <= 0x39)) {
      let end = at + 1
      while (end < bytes.length && /[\d.eE+-]/.test(String.fromCharCode(bytes[end]!))) end++
      const number = bytes.toString('latin1', at, end)
      if (!isExact(number) && isAsked(path)) return { path: [...path], number }
      at = end
    } else {
      if (byte === 0x7b || byte === 0x5b) {
        objects.push(byte === 0x7b)
        path.push(byte === 0x7b ? '' : 0)
      } else if (byte === 0x7d || byte === 0x5d) {
        objects.pop()
        path.pop()
      } else if (byte === 0x3a) path[path.length - 1] = key
      else if (byte === 0x2c && !objects.at(-1)) path[path.length - 1] = Number(path.at(-1)) + 1
      at++
    }
  }
  return null
}

/** Behind the quote that ends the text which begins here. */
function endOfText(bytes: Buffer, begin: number): number {
  for (let at = begin + 1; ; ) {
    const quote = bytes.indexOf(0x22, at)
    if (quote < 0) return bytes.length
    let escapes = 0
    while (bytes[quote - 1 - escapes] === 0x5c) escapes++
    if (escapes % 2 === 0) return quote + 1
    at = quote + 1
  }
}

function textOf(quoted: Buffer): string {
  try {
    return JSON.parse(quoted.toString())
  } catch {
    return '…'
  }
}
