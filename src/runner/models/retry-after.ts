/**
 * How long the provider asks to wait, in milliseconds from `now`: `retry-after-ms`, else `retry-after` as seconds or as an
 * HTTP date. Undefined if it says nothing usable. Header names are lower case. The cap is the retry policy's (design
 * section 6), not ours.
 */
export function retryAfter(headers: Record<string, string> | undefined, now: number): number | undefined {
  const ms = amount(headers?.['retry-after-ms'])
  if (ms !== undefined) return ms
  const value = headers?.['retry-after']?.trim()
  const seconds = amount(value)
  if (seconds !== undefined) return seconds * 1000
  // HTTP dates begin with the day's name; Date.parse alone would take "-5" for a year.
  if (value === undefined || !/^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)/i.test(value)) return undefined
  const at = Date.parse(value)
  return Number.isNaN(at) ? undefined : Math.max(0, at - now)
}

function amount(value: string | undefined): number | undefined {
  return value !== undefined && /^\s*\d{1,12}(\.\d+)?\s*$/.test(value) ? Number(value) : undefined
}
