// One world: a session, a client and a provider that outlive every incarnation of the core between them. A plan says where each
// incarnation dies; the next one starts on the same database with the clock moved past the lease, scans once, and the client goes on.
import type { Config, ToolDefinition } from '../../src/config.ts'
import {
  type Admitted,
  type Facts,
  type Finding,
  findInconsistencies,
  findStuck,
  findUnanswered,
} from '../support/checker.ts'
import { type Client, createClient } from './client.ts'
import { createGate, type Death, type Point } from './gate.ts'
import { bear, type Incarnation, leaseMs } from './incarnation.ts'
import type { Lane } from './lanes.ts'
import { shownPlan } from './plans.ts'
import { type Asked, type Flags, type Item, worldModel } from './provider.ts'

export interface Scenario {
  name: string
  /** Ids of the scenarios that its points prove. */
  proves: string
  /** Deaths that come first; the points of the incarnation after them are the ones that count. */
  prelude?: Death[]
  /** A dead owner is found by its liveness lock, without the clock being moved. */
  byLock?: boolean
  /** Tools by name; each counts its effect first. `asks`: needs an approval. `lasts`: runs until the flag is raised or it is stopped. */
  tools?: Record<string, { asks?: boolean; lasts?: string; expiresMs?: number }>
  config?: Partial<Config>
  answer(asked: Asked): Item[] | null
  /** What the client does. It does not know of deaths. */
  script(client: Client): Promise<void>
  /** What must hold of the whole, beside what holds always; null if it does. */
  holds?(world: Outside): string | null
}

/** Where each incarnation dies, from the first one on; null: not by plan. */
export type Plan = readonly (Death | null)[]

/** What has been seen from outside. */
export interface Outside {
  effects: Map<string, number>
  requests: { step: number; compaction: number }
}

/** An incarnation, and when its first scan is over: what is owed then is under way. */
export type Life = Incarnation & { scanned: Promise<void> }

export interface World extends Outside {
  sessionId: string
  lane: Lane
  flags: Flags
  facts: Facts & { admitted: Admitted[] }
  scanMs: number
  findings: Finding[]
  /** The incarnation that can be asked now, or the next one that can. */
  current(): Promise<Life>
  /** Mutations that are sent and not answered. */
  asking: number
  /** The client waits for somebody to do this; for the report of a world that stands still. */
  waitingFor: string
}

export interface Played {
  /** Points of each incarnation, in order. */
  lives: Point[][]
  /** Planned deaths that did not happen where they were planned. */
  missed: Death[]
  findings: Finding[]
  /** The log, oldest first, for the report of a failure. */
  log: () => Promise<string[]>
}

function createFlags(): Flags {
  const raised = new Set<string>()
  const waiting = new Map<string, Set<() => void>>()
  return {
    raise(flag) {
      raised.add(flag)
      for (const resume of waiting.get(flag) ?? []) resume()
      waiting.delete(flag)
    },
    isRaised: (flag) => raised.has(flag),
    until(flag, signal) {
      if (raised.has(flag)) return Promise.resolve()
      return new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason)
        const list = waiting.get(flag) ?? new Set()
        waiting.set(flag, list)
        list.add(resolve)
        signal?.addEventListener('abort', () => reject(signal.reason), { once: true })
      })
    },
  }
}

const deadlineMs = 40_000
let made = 0

/** Plays a scenario with these deaths. `mutate`: breaks each incarnation on purpose, to see that it is found. */
export async function play(
  scenario: Scenario,
  plan: Plan,
  lane: Lane,
  mutate: (life: Incarnation) => void = () => {},
): Promise<Played> {
  const suffix = `${process.pid.toString(36)}x${(++made).toString(36)}`
  const sessionId = `ses_crash${suffix}`.padEnd(14, '_')
  const effects = new Map<string, number>()
  const requests = { step: 0, compaction: 0 }
  const flags = createFlags()
  const lives: Incarnation[] = []
  const missed: Death[] = []
  let announce: (life: Life) => void = () => {}
  let next = new Promise<Life>((resolve) => {
    announce = resolve
  })
  const world: World = {
    sessionId,
    lane,
    flags,
    effects,
    requests,
    facts: { sessionIds: [sessionId], admitted: [], effects },
    scanMs: 5_000,
    findings: [],
    current: () => next,
    asking: 0,
    waitingFor: 'the first incarnation',
  }

  async function begin(): Promise<Incarnation> {
    const planned = plan[lives.length] ?? null
    const gate = createGate(planned, (label) => flags.raise(`done ${label}`))
    let born: Incarnation
    const tools = Object.entries(scenario.tools ?? {}).map(
      ([name, { asks = false, lasts, expiresMs }]): ToolDefinition => ({
        name,
        description: `the tool ${name}`,
        inputSchema: { type: 'object' },
        needsApproval: asks,
        ...(expiresMs === undefined ? {} : { approvalExpiresMs: expiresMs }),
        async execute(_input, { callId, signal }) {
          await gate.through(`tool ${name}`, async () => {
            effects.set(callId, (effects.get(callId) ?? 0) + 1)
          })
          if (lasts !== undefined) await flags.until(lasts, signal)
          return `${name} is done`
        },
      }),
    )
    const model = worldModel({
      gate,
      core: () => born.core,
      flags,
      counts: requests,
      suffix,
      answer: (asked) =>
        (/^(continue|usable)$/.test(asked.words) ? null : scenario.answer(asked)) ?? [{ text: 'very| well' }],
    })
    born = await bear({
      db: lane.db,
      url: lane.url,
      gate,
      models: { 'world/plain': { model }, 'world/small': { model, contextTokens: 4000 } },
      tools,
      config: scenario.config ?? {},
      hasLock: scenario.byLock ?? false,
    })
    lives.push(born)
    return born
  }

  /** In half of the plans what the client repeats comes before the scan. */
  const isEager = [...shownPlan(plan)].length % 2 === 1

  /** What a server does when it starts: looks at all that is owed. */
  async function boot(life: Life, isFirst: boolean): Promise<void> {
    if (isFirst) return announce(life)
    if (isEager) {
      announce(life)
      const since = performance.now()
      do await new Promise((resolve) => setImmediate(resolve))
      while (world.asking > 0 && !life.gate.isDead && performance.now() - since < 1_000)
    }
    await Promise.race([scenario.byLock ? takenOver(life) : life.recovery.scan(), life.gate.died])
    if (!life.gate.isDead) announce(life)
  }

  /** Scans until no claim of another owner is left: their locks are free, and the grace passes. */
  async function takenOver({ recovery, core }: Life): Promise<void> {
    for (;;) {
      await recovery.scan()
      if ((await core.db.claim.count({ where: { sessionId, owner: { not: core.owner } } })) === 0) return
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }

  let isOver = false
  /** Lets one incarnation follow the other until the script has ended. */
  async function supervise(): Promise<void> {
    while (!isOver) {
      const born = await begin()
      mutate(born)
      let scanned = () => {}
      const life: Life = {
        ...born,
        scanned: new Promise((resolve) => {
          scanned = resolve
        }),
      }
      await boot(life, lives.length === 1)
      scanned()
      await born.gate.died
      if (isOver) return
      // A client that waits for somebody goes on waiting when the one that was to come has died over its first scan.
      if ((await Promise.race([next, null])) !== null)
        next = new Promise((resolve) => {
          announce = resolve
        })
      await born.bury()
      if (!born.hasLeft() && !scenario.byLock) await lane.shift(leaseMs + 1_000)
    }
  }

  const client = createClient(world)
  const supervised = supervise()
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing happens: ${world.waitingFor}`)), deadlineMs)
  })
  try {
    const script = async () => {
      await scenario.script(client)
      await client.rest()
      // What follows proves that the session can be used; deaths in it are other scenarios' business.
      const last = await world.current()
      last.gate.counts = false
      plan.forEach((death, n) => {
        if (death !== null && lives[n]?.gate.wasHit !== true) missed.push(death)
      })
      await client.provesUsable()
    }
    await Promise.race([script(), supervised.then(() => late), late])
    world.findings.push(
      ...(await findInconsistencies(lane.db, world.facts)),
      ...(await findStuck(lane.db, [sessionId], world.scanMs)),
      ...(await findUnanswered(lane.db, world.facts.admitted)),
    )
    const broken = scenario.holds?.(world) ?? null
    if (broken !== null) world.findings.push({ kind: 'broken', sessionId, what: broken })
  } catch (thrown) {
    world.findings.push({ kind: 'stuck', sessionId, what: thrown instanceof Error ? thrown.message : String(thrown) })
  } finally {
    clearTimeout(timer)
    isOver = true
    await lives.at(-1)?.bury()
    await supervised.catch((thrown) => {
      world.findings.push({ kind: 'broken', sessionId, what: `an incarnation could not begin: ${thrown}` })
    })
  }
  return {
    lives: lives.map(({ gate }) => [...gate.points]),
    missed,
    findings: world.findings,
    log: async () => {
      const events = await lane.db.event.findMany({ where: { sessionId }, orderBy: { seq: 'asc' } })
      return events.map(({ seq, type, payload }) => `${seq} ${type} ${JSON.stringify(payload)}`)
    },
  }
}
