/**
 * The settings cannot be used. The message lists every problem, each with the setting, its value (never a secret's) and
 * the rule it breaks, so that one start is enough to correct them all.
 */
export class ConfigError extends Error {
  override name = 'ConfigError'
  constructor(
    /** One text per problem, in the order found; never empty. */
    readonly problems: readonly string[],
    options?: ErrorOptions,
  ) {
    super(problems.length === 1 ? problems[0] : `${problems.length} problems:\n- ${problems.join('\n- ')}`, options)
  }
}

/** A value as an error may show it: JSON where there is some, on one line and cut at 80 characters. */
export function shown(value: unknown): string {
  let text: string | undefined
  try {
    text = typeof value === 'function' ? 'a function' : JSON.stringify(value)
  } catch {
    text = undefined // a cycle or a BigInt
  }
  text ??= String(value)
  return text.length > 80 ? `${text.slice(0, 80)}…` : text
}

/** The candidate that `word` is a likely misspelling of: at most a third of its letters differ. */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined
  let least = Math.floor(word.length / 3) + 1
  for (const candidate of candidates) {
    const distance = edits(word.toLowerCase(), candidate.toLowerCase())
    if (distance < least) {
      least = distance
      best = candidate
    }
  }
  return best
}

/** Levenshtein distance, one row at a time. */
function edits(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (let i = 1; i <= from.length; i++) {
    const next = [i]
    for (let j = 1; j <= to.length; j++) {
      const substituted = row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1)
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, substituted))
    }
    row = next
  }
  return row[to.length]!
}
