// Every commit and every call to the outside of the core is a point. Each scenario runs once to count its points; then once for each point
// and mode, and there the incarnation dies. CRASH_SAMPLE=n: the three shortest scenarios whole, n of the other deaths drawn by CRASH_SEED
// (by default the day), one of each scenario at least. CRASH_ONLY and CRASH_PLAN (parts of a scenario's name and of a plan as it is
// printed) play a part again.

import { afterAll, beforeAll, expect, it } from 'vitest'
import { shown } from '../support/checker.ts'
import { random } from '../support/random.ts'
import { inLanes, type Lane, openLane } from './lanes.ts'
import { plansAfter, plansFor, sampleOf, sampleOfEach, shownPlan } from './plans.ts'
import { scenarios } from './scenarios.ts'
import { type Plan, type Played, play, type Scenario } from './world.ts'

const sample = process.env.CRASH_SAMPLE ? Number(process.env.CRASH_SAMPLE) : null
const seed = Number(process.env.CRASH_SEED ?? new Date().toISOString().slice(0, 10).replaceAll('-', ''))
const laneCount = Number(process.env.CRASH_LANES ?? 6)
const only = process.env.CRASH_ONLY ?? ''
const onlyPlan = process.env.CRASH_PLAN ?? ''
/** A point that is not reached on the repeat is tried this often: then the numbering is broken, and the run is red. */
const triesMax = 3

interface Count {
  points: number
  deaths: number
  played: number
  again: number
}

const lanes: Lane[] = []
const counts = new Map<string, Count>()
const chosen = new Map<Scenario, Plan[]>()
let shortest: Scenario[] = []
/** What followed each single death of the shortest. */
const followed = new Map<Scenario, { plan: Plan; played: Played }[]>()
const isWanted = ({ name }: Scenario) => name.includes(only)

/** Plays one plan, again if a point was not reached, and says what is wrong. */
async function playPlan(scenario: Scenario, plan: Plan, lane: Lane, count: Count) {
  for (let tries = 1; ; tries++) {
    const played = await play(scenario, plan, lane)
    const problems = shown(played.findings)
    if (problems.length === 0 && played.missed.length > 0) {
      count.again++
      if (tries < triesMax) continue
      problems.push(`not reached in ${tries} runs: ${shownPlan(played.missed)}`)
    }
    count.played++
    const story = problems.length === 0 ? [] : [...problems, ...(await played.log())]
    return { played, problems: problems.length === 0 ? null : [`${scenario.name}: ${shownPlan(plan)}`, ...story] }
  }
}

async function playAll(
  scenario: Scenario,
  plans: readonly Plan[],
  count: Count,
  seen: (plan: Plan, played: Played) => void = () => {},
) {
  const problems: string[] = []
  await inLanes(lanes, plans, async (plan, lane) => {
    const outcome = await playPlan(scenario, plan, lane, count)
    seen(plan, outcome.played)
    if (outcome.problems !== null) problems.push(outcome.problems.join('\n  '))
    return { spoilt: outcome.problems !== null }
  })
  expect(problems.slice(0, 10).join('\n\n'), `${problems.length} of ${plans.length}`).toBe('')
}

beforeAll(async () => {
  lanes.push(...(await Promise.all(Array.from({ length: laneCount }, openLane))))
  const wholes = new Map<Scenario, Plan[]>()
  await inLanes(lanes, scenarios.filter(isWanted), async (scenario, lane) => {
    const prelude = scenario.prelude ?? []
    const played = await play(scenario, prelude, lane)
    const problems = [...shown(played.findings), ...played.missed.map((death) => `not reached: ${shownPlan([death])}`)]
    if (problems.length > 0)
      throw new Error(`${scenario.name} without a death: ${problems.join('; ')}\n${(await played.log()).join('\n')}`)
    const plans = plansFor(prelude, played.lives, prelude.length).filter((plan) => shownPlan(plan).includes(onlyPlan))
    wholes.set(scenario, plans)
    counts.set(scenario.name, { points: plans.length / 2, deaths: plans.length, played: 0, again: 0 })
    return { spoilt: false }
  })
  const size = (scenario: Scenario) => wholes.get(scenario)!.length
  shortest = scenarios
    .filter((each) => wholes.has(each) && each.prelude === undefined)
    .sort((a, b) => size(a) - size(b))
    .slice(0, 3)
  const others = scenarios.filter((each) => wholes.has(each) && !shortest.includes(each))
  const all = others.flatMap((scenario) => wholes.get(scenario)!.map((plan) => ({ scenario, plan })))
  const drawn = sample === null ? all : sampleOfEach(all, sample, random(seed), ({ scenario }) => scenario)
  for (const scenario of shortest) chosen.set(scenario, wholes.get(scenario)!)
  for (const scenario of others) chosen.set(scenario, [])
  for (const { scenario, plan } of drawn) chosen.get(scenario)!.push(plan)
  console.log(`seed ${seed}${sample === null ? '' : `, a sample of ${drawn.length}, CRASH_SEED=${seed} repeats it`}`)
})

afterAll(async () => {
  await Promise.all(lanes.map((lane) => lane.close()))
  const lines = [...counts].map(
    ([name, { points, deaths, played, again }]) =>
      `| ${name} | ${points} | ${deaths} | ${played} |${again > 0 ? ` ${again} more runs, as a point was not reached` : ''}`,
  )
  console.log(['| scenario | points | deaths | played |', '|---|---|---|---|', ...lines].join('\n'))
})

for (const scenario of scenarios.filter(isWanted)) {
  it(`${scenario.proves}: ${scenario.name}: whatever it dies of, nothing is lost, doubled or stuck`, async ({
    skip,
  }) => {
    const single: { plan: Plan; played: Played }[] = []
    followed.set(scenario, single)
    // Without a death nothing is proven; a part of the plans that was asked for by name may leave a scenario out.
    const plans = chosen.get(scenario)!
    if (onlyPlan === '') expect(plans).not.toEqual([])
    if (plans.length === 0) return skip(`no plan of this scenario has ${onlyPlan}`)
    await playAll(scenario, plans, counts.get(scenario.name)!, (plan, played) => {
      if (shortest.includes(scenario)) single.push({ plan, played })
    })
  })
}

if (onlyPlan === '')
  it('REC-14, REC-36: a second death during the recovery from the first, in the three shortest scenarios', async ({
    skip,
  }) => {
    if (shortest.length === 0) return skip('what was asked for by name has none of them')
    for (const scenario of shortest) {
      const pairs = (followed.get(scenario) ?? []).flatMap(({ plan, played }) => plansAfter(plan, played))
      const count = { points: pairs.length / 2, deaths: pairs.length, played: 0, again: 0 }
      counts.set(`${scenario.name}, pairs`, count)
      expect(pairs, scenario.name).not.toEqual([])
      const drawn = sample === null ? pairs : sampleOf(pairs, Math.ceil(sample / 10), random(seed + 1))
      await playAll(scenario, drawn, count)
    }
  })
