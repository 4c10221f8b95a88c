// One world: a session, a client and a provider that outlive every incarnation of the core between them. A plan says where each
// incarnation dies; the next one starts on the same database with the clock moved past the lease, scans once, and the client goes on.
import type { Config, ToolDefinition } from '../../src/config.ts'
import { type Facts, type Finding, findInconsistencies, findStuck, findUnanswered } from '../support/checker.ts'
import { type Client, createClient } from './client.ts'
import { createGate, type Death, type Point } from './gate.ts'
import { bear, type Incarnation, leaseMs } from './incarnation.ts'
import type { Lane } from './lanes.ts'
import { type Asked, type Flags, type Item, worldModel } from './provider.ts'

export interface Scenario {
  name: string
  /** Ids of the scenarios that its points prove. */
  proves: string
  /** Deaths that come first; the points of the incarnation after them are the ones that count. */
  prelude?: Death[]
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

export interface World extends Outside {
  sessionId: string
  lane: Lane
  flags: Flags
  facts: Facts & { admitted: { sessionId: string; messageId: string; text: string }[] }
  scanMs: number
  findings: Finding[]
  /** The incarnation that can be asked now, or the next one that can. */
  current(): Promise<Incarnation>
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

const deadlineMs = 60_000
let made = 0

/** Plays a scenario with these deaths. */
export async function play(scenario: Scenario, plan: Plan, lane: Lane): Promise<Played> {
  const suffix = `${process.pid.toString(36)}x${(++made).toString(36)}`
  const sessionId = `ses_crash${suffix}`.padEnd(14, '_')
  const effects = new Map<string, number>()
  const requests = { step: 0, compaction: 0 }
  const flags = createFlags()
  const lives: Incarnation[] = []
  const missed: Death[] = []
  let announce: (incarnation: Incarnation) => void = () => {}
  let next = new Promise<Incarnation>((resolve) => {
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
    })
    lives.push(born)
    return born
  }

  let isOver = false
  /** Lets one incarnation follow the other until the script has ended. */
  async function supervise(): Promise<void> {
    while (!isOver) {
      const life = await begin()
      if (lives.length > 1) await Promise.race([life.recovery.scan(), life.gate.died])
      if (!life.gate.isDead) announce(life)
      await life.gate.died
      if (isOver) return
      next = new Promise((resolve) => {
        announce = resolve
      })
      await life.bury()
      if (!life.hasLeft) await lane.shift(leaseMs + 1_000)
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
