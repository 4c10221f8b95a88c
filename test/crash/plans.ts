// Which deaths are played: every point of a scenario in both modes, a second death at every point of what follows, or a sample of them.
import type { Random } from '../support/random.ts'
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

/** `size` of them, or all if there are no more, in their order. */
export function sampleOf<T>(all: readonly T[], size: number, random: Random): T[] {
  const order = all.map((_, n) => n)
  for (let n = order.length - 1; n > 0; n--) {
    const other = random.below(n + 1)
    ;[order[n], order[other]] = [order[other]!, order[n]!]
  }
  return order
    .slice(0, size)
    .sort((a, b) => a - b)
    .map((n) => all[n]!)
}

/** A sample of `size` in which every group of them has at least one; in their order. */
export function sampleOfEach<T, G>(all: readonly T[], size: number, random: Random, groupOf: (one: T) => G): T[] {
  const groups = new Map<G, T[]>()
  for (const one of all) {
    const group = groups.get(groupOf(one))
    if (group === undefined) groups.set(groupOf(one), [one])
    else group.push(one)
  }
  const drawn = new Set([...groups.values()].flatMap((group) => sampleOf(group, 1, random)))
  const rest = all.filter((one) => !drawn.has(one))
  for (const one of sampleOf(rest, Math.max(0, size - drawn.size), random)) drawn.add(one)
  return all.filter((one) => drawn.has(one))
}
