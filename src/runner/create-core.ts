// Puts a core together: the parts of the ground and the runner around one database, for a server (start.ts) and for tests alike.

import { bytesMaxDefault, createByteBudget } from '../byte-budget.ts'
import type { Config, Tool } from '../config.ts'
import { turnsOfPool } from '../connection-turns.ts'
import { connect, type Db } from '../db.ts'
import { createDoorbell } from '../doorbell.ts'
import { createEventLog } from '../event-log.ts'
import { createLiveText } from '../live-text.ts'
import type { Log } from '../log.ts'
import { createMetrics, type Metrics } from '../metrics.ts'
import { createPlaces } from '../places.ts'
import { createWrites } from '../writes.ts'
import type { Clock } from './clock.ts'
import type { Core } from './core.ts'
import { drain } from './drain.ts'
import type { Hold } from './hold.ts'
import { type Alive, createLeases } from './leases.ts'
import type { ModelRegistry } from './models/registry.ts'
import { createTurns } from './turns.ts'
import { createWaits, databaseWaitMs } from './waits.ts'
import { createCoordinator } from './wake.ts'

export interface CreateCoreOptions {
  config: Config
  log: Log
  /** Of the database. */
  url: string
  /** In place of a connection of its own to `url`; closed with the core. */
  db?: Db
  /** In place of new ones: a process that runs more than one core shows them together. */
  metrics?: Metrics
  /** New with every start of a process. */
  owner: string
  /** Says whether other processes can see that this one lives; nothing is started while they cannot. */
  alive: Alive | null
  models: ModelRegistry
  tools: ReadonlyMap<string, Tool>
  clock: Clock
  /** Of the recovery, which the runner does not know. */
  settleFailedDrain: (core: Core, hold: Hold) => Promise<boolean>
  stopping: AbortSignal
}

/** Reads of one tenant that may wait for a connection: of its operations and of all its streams. */
const turnsWaitingMax = 20_000

/** A running core, and how to close it once its drains have ended. */
export function createCore(options: CreateCoreOptions): { core: Core; close(): Promise<void> } {
  const { config, log, url, owner, alive, models, tools, clock, stopping } = options
  const metrics = options.metrics ?? createMetrics()
  // Without authentication there is one tenant, who takes nothing from others.
  const turns = createPlaces({
    ...turnsOfPool(config.dbPool, config.auth === undefined),
    waitingOfTenant: turnsWaitingMax,
  })
  metrics.showConnectionsWaiting(turns.waiting)
  const db = options.db ?? connect(url, config.dbPool, undefined, undefined, turns)
  // Renewals have connections of their own, which they keep: whatever takes all others, or all that the server has, takes no lease. Two, as
  // the next renewal must not wait for one whose wire is silent.
  const renewals = options.db ?? connect(url, 2, undefined, 4 * config.renewMs)
  const waits = createWaits({ log, overdueWaits: metrics.overdueWaits })
  const warn = (error: Error, what: string) => log.warn({ err: error }, what)
  const doorbell = createDoorbell({ db, url, origin: owner, pollMs: config.pollMs, warn })
  const live = createLiveText({
    db,
    owner,
    warn,
    // A stale owner learns it from its own text, before its next event or renewal.
    refused(ones) {
      for (const { sessionId, executionId } of ones) {
        metrics.refusedStaleWrites.inc({ what: 'chunk' })
        lookAtHold(sessionId, executionId)
      }
    },
  })
  const leases = createLeases({
    db: renewals,
    owner,
    leaseMs: config.leaseMs,
    renewMs: config.renewMs,
    log,
    metrics,
    alive,
  })
  function lookAtHold(sessionId: string, executionId?: string) {
    const hold = leases.heldBy(sessionId)
    if (hold === undefined || (executionId !== undefined && hold.executionId !== executionId)) return
    leases.examine(hold).catch((thrown: Error) => warn(thrown, 'claim'))
  }
  const bytes = createByteBudget(config.bytesMax ?? bytesMaxDefault(), {
    refused: () => metrics.overloaded.inc(),
    moved: (held) => metrics.bytesHeld.set(held),
  })
  const writes = createWrites()
  const eventLog = createEventLog({
    db,
    doorbell,
    origin: owner,
    writes,
    observe: ({ groupSize, seconds }) => {
      metrics.appendGroupSize.observe(groupSize)
      metrics.appendSeconds.observe(seconds)
    },
  })
  const coordinator = createCoordinator({
    maxDrains: config.maxDrains,
    drain: (sessionId, armedBy) => drain(core, sessionId, armedBy),
    log,
    metrics,
  })
  const core: Core = {
    config,
    log,
    metrics,
    db,
    writes,
    eventLog: {
      ...eventLog,
      append: (request) => {
        const { sessionId, fence } = request
        const by = fence === undefined ? { sessionId } : { sessionId, executionId: fence.executionId }
        return waits.during(by, 'append', databaseWaitMs, eventLog.append(request))
      },
    },
    doorbell,
    live: {
      ...live,
      end: (sessionId, ...part) =>
        waits.during({ sessionId }, 'live text', databaseWaitMs, live.end(sessionId, ...part)),
      drop: (sessionId) => waits.during({ sessionId }, 'live text', databaseWaitMs, live.drop(sessionId)),
    },
    clock,
    owner,
    models,
    tools,
    bytes,
    promotedBytesMax: 32 * 1024 * 1024,
    leases,
    turns: createTurns({ refused: () => metrics.busySessions.inc() }),
    coordinator,
    waits,
    settleFailedDrain: (hold) => options.settleFailedDrain(core, hold),
    stopping,
  }
  // An interrupt that another process committed: its owner looks at once, its next fence or renewal is the latest (INT-04, INT-05).
  const stopHearing = doorbell.listenAll((sessionIds, foreign) => {
    if (!foreign) return
    for (const sessionId of sessionIds) lookAtHold(sessionId)
  })
  return {
    core,
    async close() {
      stopHearing()
      leases.close()
      waits.close()
      await live.close()
      await eventLog.idle()
      await doorbell.close()
      await db.$disconnect()
      await renewals.$disconnect()
    },
  }
}
