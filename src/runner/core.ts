// What the rooms work with: one object per server, made by the roof (start.ts). A plain record, no container.

import type { ByteBudget } from '../byte-budget.ts'
import type { Config, Tool } from '../config.ts'
import type { Db } from '../db.ts'
import type { Doorbell } from '../doorbell.ts'
import { asError } from '../errors.ts'
import type { EventLog } from '../event-log.ts'
import type { LiveText } from '../live-text.ts'
import type { Log } from '../log.ts'
import type { Metrics } from '../metrics.ts'
import type { Writes } from '../writes.ts'
import type { Clock } from './clock.ts'
import type { Hold } from './hold.ts'
import type { Leases } from './leases.ts'
import type { ModelRegistry } from './models/registry.ts'
import type { Turns } from './turns.ts'
import type { Waits } from './waits.ts'
import type { Coordinator } from './wake.ts'

export interface Core {
  config: Config
  log: Log
  metrics: Metrics
  db: Db
  /** What became of the last append: whether the database takes writes. */
  writes: Writes
  eventLog: EventLog
  doorbell: Doorbell
  live: LiveText
  clock: Clock
  /** New with every start of a process (CLAIM-18). */
  owner: string
  models: ModelRegistry
  tools: ReadonlyMap<string, Tool>
  /**
   * Bytes of text and attachments that one boundary promotes, beyond the first prompt. They go into one append, twice, and what is beyond
   * 256 MB there is refused by PostgreSQL; long before that it is much for the memory of both.
   */
  promotedBytesMax: number
  /** For what is read, and for prompts that come in. */
  bytes: ByteBudget
  leases: Leases
  /** Whose turn it is to decide on a session. */
  turns: Turns
  coordinator: Coordinator
  /** What the drains wait for, and since when. */
  waits: Waits
  /** Recovery's way to settle the claim of a drain that failed; says whether the session is to be looked at again. Throws what the database refuses. */
  settleFailedDrain(hold: Hold): Promise<boolean>
  /** Aborted when the server begins to stop: no new drains, streams end. */
  stopping: AbortSignal
}

/** A hint that the session may have work; never throws, as durable intent stands behind it: the next scan finds it (DRAIN-09). */
export function wake(core: Core, sessionId: string): void {
  try {
    core.coordinator.wake(sessionId)
  } catch (thrown) {
    core.log.error({ err: asError(thrown), sessionId }, 'a wake failed; the next scan repeats it')
  }
}
