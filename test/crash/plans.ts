// Which deaths are played: every point of a scenario in both modes, a second death at every point of what follows, or a sample of them.
import type { Death, Point } from './gate.ts'
import type { Plan, Played } from './world.ts'

const modes = ['before', 'after'] as const

/** A death at each point of these lives from the nth one on, each plan with the deaths that come before. */
export function plansFor(before: Plan, lives: readonly (readonly Point[])[], from: number): Plan[] {
  return lives.flatMap((points, life) => {
    if (life < from) return []
    const lead: (Death | null)[] = Array.from({ length: life }, (_, n) => before[n] ?? null)
    return points.flatMap((point) => modes.map((mode): Plan => [...lead, { ...point, mode }]))
  })
}

/** The plan of a death during what followed the deaths of a world that was played. */
export const plansAfter = (plan: Plan, played: Played): Plan[] => plansFor(plan, played.lives, plan.length)

export const shownPlan = (plan: Plan) =>
  plan.map((death) => (death === null ? '-' : `${death.mode} ${death.label} #${death.nth}`)).join(', then ')

/** Numbers from 0 up to 1, the same for the same seed (mulberry32). */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** `size` of them, or all if there are no more, in their order. */
export function sampleOf<T>(all: readonly T[], size: number, random: () => number): T[] {
  const order = all.map((_, n) => n)
  for (let n = order.length - 1; n > 0; n--) {
    const other = Math.floor(random() * (n + 1))
    ;[order[n], order[other]] = [order[other]!, order[n]!]
  }
  return order
    .slice(0, size)
    .sort((a, b) => a - b)
    .map((n) => all[n]!)
}
