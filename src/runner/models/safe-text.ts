// With the u flag a well-formed pair is one code point, so this class matches lone halves only.
const UNSTORABLE = /[\0\p{Cs}]/gu

/** The text with NUL and lone surrogates as U+FFFD. PostgreSQL's jsonb refuses both. Length in code units is kept. */
export function safeText(text: string): string {
  return text.replace(UNSTORABLE, '\ufffd')
}

/**
 * Cuts a text that goes on in the next delta: `[ready, held]`, where `held` is the first half of a surrogate pair at its
 * end, or empty. Put `held` before the next delta, so that a pair split over two of them is not damaged.
 */
export function holdHalf(text: string): [ready: string, held: string] {
  const last = text.charCodeAt(text.length - 1)
  return last >= 0xd800 && last <= 0xdbff ? [text.slice(0, -1), text.slice(-1)] : [text, '']
}

// One escape at a time from the left, so that an escaped backslash before "u0000" is not taken for an escape.
const ESCAPE = /\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\u([0-9a-f]{4})|\\./gis

/** Like `safeText` for JSON text that is still to be parsed: also the escaped forms, as in `"\u0000"`. */
export function safeJsonText(json: string): string {
  return safeText(json).replace(ESCAPE, (sequence, _high, _low, unit?: string) =>
    unit !== undefined && (unit === '0000' || /^d[89a-f]/i.test(unit)) ? '\ufffd' : sequence,
  )
}
