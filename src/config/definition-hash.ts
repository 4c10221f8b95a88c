import { createHash } from 'node:crypto'

/**
 * A short hash of what a person saw of a tool when they approved it: name, description and JSON Schema. The same on every machine
 * and after every restart; the order of keys makes no difference. A remembered approval holds only while it stays (ASK-25).
 */
export function definitionHash(name: string, description: string, jsonSchema: unknown): string {
  const text = JSON.stringify([name, description, sorted(jsonSchema)])
  return createHash('sha256').update(text).digest('base64url').slice(0, 22)
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).map(([key, inner]) => [key, sorted(inner)] as const)
  // An array of pairs, as a key such as "__proto__" would get lost in an object.
  return entries.sort(([a], [b]) => (a < b ? -1 : 1))
}
