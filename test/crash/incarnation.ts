// One life of a core over a database that others have used before it and will use after it. It is put together as a server is, but for the
// gate around all that leaves it, and for time: back-offs pass at once, chunks and renewals are written when a script says so.
import { type Config, loadConfig, prepareTool, type Tool, type ToolDefinition } from '../../src/config.ts'
import type { Db } from '../../src/db.ts'
import { newOwnerId } from '../../src/ids.ts'
import { createLog } from '../../src/log.ts'
import { createMetrics } from '../../src/metrics.ts'
import { settleFailedDrain } from '../../src/recovery/failed-drain.ts'
import { handOver } from '../../src/recovery/hand-over.ts'
import { createLiveness } from '../../src/recovery/liveness.ts'
import { createRecovery, type Recovery } from '../../src/recovery/resolver.ts'
import { type Clock, realClock } from '../../src/runner/clock.ts'
import type { Core } from '../../src/runner/core.ts'
import { createCore } from '../../src/runner/create-core.ts'
import { createModelRegistry, type ModelSettings } from '../../src/runner/models/registry.ts'
import { builtinTools } from '../../src/runner/tools/builtin.ts'
import type { Gate } from './gate.ts'
import { gatedDb } from './gated-db.ts'

export interface Incarnation {
  core: Core
  recovery: Recovery
  gate: Gate
  /** Its claims were handed over: nobody has to wait for a lease. */
  hasLeft(): boolean
  /** An orderly stop without any grace: what runs is handed over. It is gone afterwards. */
  leave(): Promise<void>
  /** After the death: what a process takes along when it goes, connections and timers. */
  bury(): Promise<void>
}

export interface Birth {
  db: Db
  url: string
  gate: Gate
  models: ModelSettings['models']
  tools: ToolDefinition[]
  config: Partial<Config>
  /** It shows by a lock that it lives, and looks at the locks of others. */
  hasLock: boolean
}

export const leaseMs = 120_000

const ask = builtinTools.find(({ asks }) => asks === 'question')!
const metrics = createMetrics()
const environment = loadConfig({ env: {}, cwd: import.meta.dirname })

const prepared = (definition: ToolDefinition): Tool => {
  const checked = prepareTool(definition)
  if ('tool' in checked) return checked.tool
  throw new Error(checked.issues.map(({ message }) => message).join('; '))
}

/** Waits between attempts pass at once; limits of patience are real time, and none is reached. */
const hurried = (gate: Gate): Clock => ({
  now: realClock.now,
  setTimeout: (fn, ms) =>
    realClock.setTimeout(
      () => {
        if (!gate.isDead) fn()
      },
      ms > 1_500 && ms < 25_000 ? 1 : ms,
    ),
})

export async function bear({ db, url, gate, models, tools, config: over, hasLock }: Birth): Promise<Incarnation> {
  const config: Config = {
    ...(await environment),
    model: 'world/plain',
    leaseMs,
    renewMs: 3_600_000,
    pollMs: 100,
    interruptGraceMs: 60_000,
    ...over,
  }
  const stopping = new AbortController()
  const clock = hurried(gate)
  const log = createLog('silent')
  const owner = newOwnerId()
  const liveness = hasLock ? createLiveness({ url, owner, graceMs: 200, log }) : null
  await liveness?.whenHeld()
  const { core } = createCore({
    config,
    log,
    url,
    db: gatedDb(db, gate),
    metrics,
    owner,
    alive: liveness,
    models: createModelRegistry({ defaultModel: config.model, models }, clock),
    tools: new Map([ask, ...tools.map(prepared)].map((tool) => [tool.name, tool])),
    clock,
    settleFailedDrain,
    stopping: stopping.signal,
  })
  const recovery = createRecovery(core, liveness)
  let hasLeft = false
  return {
    core,
    recovery,
    gate,
    hasLeft: () => hasLeft,
    async leave() {
      stopping.abort()
      await core.coordinator.stop(0)
      await recovery.stop()
      await handOver(core, core.leases.held())
      hasLeft = true
      gate.die()
    },
    async bury() {
      gate.die()
      core.leases.close()
      void recovery.stop()
      await core.doorbell.close()
      await liveness?.close()
      await gate.quiet()
    },
  }
}
