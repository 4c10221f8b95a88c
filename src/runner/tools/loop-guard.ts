// The loop guard: a model that makes the same call again and again is told so, then stopped (design section 6).

import type { JsonValue } from '../../events.ts'

/** From this repetition on, in a row within an activity, the call is not dispatched. */
export const guardedFrom = 3
/** At this repetition the step fails. */
export const failsAt = 5

/** JSON with sorted keys, so that the order in which a model writes them makes no difference. */
export function canonical(value: JsonValue): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const entries = Object.keys(value)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonical(value[key]!)}`)
  return `{${entries.join(',')}}`
}

interface Call {
  name: string
  input: JsonValue
}

/** How often this call stands in a row at the end of `before` and itself: 1 for one that differs from the call before it. */
export function repetition(before: readonly Call[], call: Call): number {
  const key = canonical(call.input)
  let count = 1
  for (let i = before.length - 1; i >= 0; i--) {
    const earlier = before[i]!
    if (earlier.name !== call.name || canonical(earlier.input) !== key) break
    count++
  }
  return count
}
