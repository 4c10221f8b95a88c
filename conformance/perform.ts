import { type Check, type Need, perform, type Result } from './check.ts'
import type { Target } from './http.ts'

/** Checks at once: most of their time is waiting for a server. */
const atOnce = 8

/** Runs the checks and answers their results in the order given; `say` hears of each in that order too, as soon as it can. */
export async function performAll(
  checks: readonly Check[],
  target: Target,
  lacks: Map<Need, string>,
  say: (result: Result) => void = () => {},
): Promise<Result[]> {
  const results: Result[] = []
  let said = 0
  const queue = checks
    .map((check, place) => ({ check, place }))
    .sort((a, b) => Number(!!b.check.slow) - Number(!!a.check.slow))
  const work = async () => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      results[next.place] = await perform(next.check, target, lacks)
      while (results[said] !== undefined) say(results[said++]!)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, work))
  return results
}
