// JSON from outside (clients, tools, models) as it can be kept and walked: plain, storable, and not nested without end. What has passed here
// can be handed to any function that goes down level by level: stringifying, validation, a comparison.

import type { JsonValue } from '../events.ts'
import { safeText } from './models/safe-text.ts'

/** How deep lists and objects may stand inside each other. Functions that go down by recursion give up somewhere beyond 2000. */
export const jsonLevelsMax = 100

export const tooDeepRule = `must not be nested deeper than ${jsonLevelsMax} levels`

/** How deep this JSON text is nested: 0 for a text or a number, 1 for a list of them. Reads on without recursion. */
export function levelsOf(json: string): number {
  let level = 0
  let most = 0
  let isInText = false
  for (let at = 0; at < json.length; at++) {
    const unit = json[at]
    if (unit === '"') isInText = !isInText
    else if (isInText) {
      if (unit === '\\') at++
    } else if (unit === '[' || unit === '{') most = Math.max(most, ++level)
    else if (unit === ']' || unit === '}') level--
  }
  return most
}

const leftOut = `[nested deeper than ${jsonLevelsMax} levels: left out]`

/**
 * A storable copy of whatever a tool or a model's library gave: what lies too deep is replaced by a text that says so, texts that the
 * database refuses are made safe. `undefined` for what JSON has nothing for, such as a function. Throws if the value has no JSON form: a
 * cycle, a bigint.
 */
export function plainJson(value: unknown): JsonValue | undefined {
  const levels = new WeakMap<object, number>()
  const text = JSON.stringify(value, function (this: object, _key, inner: unknown) {
    if (typeof inner !== 'object' || inner === null) return inner
    // Asked before anything inside is looked at, so that stringifying itself never goes deeper.
    const level = (levels.get(this) ?? 0) + 1
    if (level > jsonLevelsMax) return leftOut
    levels.set(inner, level)
    return inner
  })
  return text === undefined ? undefined : safe(JSON.parse(text) as JsonValue)
}

/** Every text and key made storable. */
function safe(value: JsonValue): JsonValue {
  if (typeof value === 'string') return safeText(value)
  if (Array.isArray(value)) return value.map(safe)
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [safeText(key), safe(inner)]))
}
