// Orderly hand-over (design section 9): after its shutdown grace the leaving owner itself writes what recovery would, so that the next
// process goes on at once. It does not count against the session: nothing has crashed.

import { asError } from '../errors.ts'
import type { Core } from '../runner/core.ts'
import type { Hold } from '../runner/hold.ts'
import { takeOver } from './takeover.ts'

/**
 * Ends these holds, waits for their provider requests and tools to stop (at most the interrupt grace) and gives each claim away in one
 * append. What cannot be written is left to the recovery of other processes. Never throws. Call it before live text and leases close.
 */
export async function handOver(core: Core, holds: readonly Hold[]): Promise<void> {
  if (holds.length === 0) return
  for (const hold of holds) hold.end('shutdown')
  await core.coordinator.stop(core.config.interruptGraceMs)
  await Promise.all(
    holds.map(async (hold) => {
      const { sessionId, executionId } = hold
      // An interrupt has its own end, and a lost claim is not ours to give.
      if (hold.ended !== 'shutdown') return
      hold.closing = true
      try {
        await takeOver(core, sessionId, executionId, { kind: 'handover', received: hold.received() })
      } catch (thrown) {
        core.log.warn({ err: asError(thrown), sessionId, executionId }, 'a claim could not be handed over')
      } finally {
        core.leases.remove(hold)
      }
    }),
  )
}
