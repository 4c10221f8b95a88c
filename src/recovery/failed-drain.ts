// A drain that failed unexpectedly: its own process settles its claim at once, as recovery would when the lease had run out. It counts like
// any other recovery, so a drain that fails again and again ends parked and not in a loop.

import type { Core } from '../runner/core.ts'
import type { Hold } from '../runner/hold.ts'
import { takeOver } from './takeover.ts'

/**
 * Takes the claim of a failed drain over, once nothing of that drain is under way any more. Says whether there may be more to do. Throws what
 * the database refuses: then the claim is left to its lease and to the scans.
 */
export async function settleFailedDrain(core: Core, hold: Hold): Promise<boolean> {
  const { sessionId, executionId } = hold
  const taken = await takeOver(core, sessionId, executionId, { kind: 'failed', received: hold.received() })
  return taken === 'recovered' || taken === 'cleared' || taken === 'removed'
}
