// The owner's end of an interrupt (design section 8): after everything has stopped, one append settles what is open and removes the
// claim. It is the one append that phase CANCELLING lets pass. If it fails the claim stays CANCELLING: no successor can start.

import { event, type StepError } from '../events.ts'
import type { Core } from './core.ts'
import { endOpen } from './end-open.ts'
import type { Hold } from './hold.ts'
import { interruptedByUser } from './settle-open.ts'

const stillRuns: StepError = {
  code: 'OUTCOME_UNKNOWN',
  message: 'interrupted, but the tool did not stop; what it did is not known',
}

/** Settles an interrupted execution. `ignoring`: calls whose tools did not stop within the grace. Throws if it cannot be written. */
export async function cleanUp(core: Core, hold: Hold, ignoring: ReadonlySet<string>): Promise<void> {
  const { executionId } = hold
  hold.closing = true
  // Fenced: taken over, which settles it too.
  await endOpen(core, hold, {
    ending: {
      tool: ({ callId }) => (ignoring.has(callId) ? stillRuns : interruptedByUser),
      compaction: interruptedByUser,
      step: { interrupted: interruptedByUser },
    },
    after: [event('execution.settled', { executionId, outcome: 'INTERRUPTED', retryAt: null })],
    phase: 'CANCELLING',
    claim: { kind: 'remove' },
  })
}
