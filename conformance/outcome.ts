// How a check ends other than well: it fails with what was expected and what was seen, or it is skipped with a reason.

const shownMax = 600

/** A promise that did not hold. The message says what was expected and what was seen. */
export class Failed extends Error {
  constructor(what: string, expected: unknown, seen: unknown) {
    super(`${what}: expected ${shown(expected)}, saw ${shown(seen)}`)
    this.name = 'Failed'
  }
}

/** A promise that cannot be checked on this server, and why. */
export class Skipped extends Error {
  constructor(reason: string) {
    super(reason)
    this.name = 'Skipped'
  }
}

/** A value for people, cut to a line of bearable length. */
export function shown(value: unknown): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? String(value))
  return text.length <= shownMax ? text : `${text.slice(0, shownMax / 2)} … ${text.slice(-shownMax / 2)}`
}

/** Fails unless both are the same JSON; the order of keys does not count. */
export function expectEqual(what: string, seen: unknown, expected: unknown): void {
  if (canonical(seen) !== canonical(expected)) throw new Failed(what, expected, seen)
}

/** Fails unless `held`; `expected` says in words what should have been. */
export function expectThat(what: string, held: boolean, expected: string, seen: unknown): void {
  if (!held) throw new Failed(what, expected, seen)
}

const canonical = (value: unknown) => JSON.stringify(value, (_key, inner: unknown) => sorted(inner)) ?? 'undefined'

function sorted(value: unknown): unknown {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
}
