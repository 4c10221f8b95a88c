// The owner's end of an interrupt (design section 8): after everything has stopped, one append settles what is open and removes the
// claim. It is the one append that phase CANCELLING lets pass. If it fails the claim stays CANCELLING: no successor can start.

import { retrying } from '../db.ts'
import { event, type StepError } from '../events.ts'
import type { Core } from './core.ts'
import { again, ownerDecides } from './decide-again.ts'
import type { Hold } from './hold.ts'
import { interruptedByUser, readOpen, settleOpen } from './settle-open.ts'

const stillRuns: StepError = {
  code: 'OUTCOME_UNKNOWN',
  message: 'interrupted, but the tool did not stop; what it did is not known',
}

/** Settles an interrupted execution. `ignoring`: calls whose tools did not stop within the grace. Throws if it cannot be written. */
export async function cleanUp(core: Core, hold: Hold, ignoring: ReadonlySet<string>): Promise<void> {
  const { sessionId, executionId } = hold
  hold.closing = true
  await ownerDecides(core, sessionId, async () => {
    const open = await retrying(() => readOpen(core.db, sessionId))
    const outcome = await core.eventLog.append({
      sessionId,
      events: [
        ...settleOpen(open, {
          tool: ({ callId }) => (ignoring.has(callId) ? stillRuns : interruptedByUser),
          compaction: interruptedByUser,
          step: { interrupted: interruptedByUser },
          live: core.live.partsOf(sessionId),
        }),
        event('execution.settled', { executionId, outcome: 'INTERRUPTED', retryAt: null }),
      ],
      fence: hold.fence(['CANCELLING']),
      // Inputs may still be admitted meanwhile; rows that are open cannot change under CANCELLING, but decide on what is there.
      expectedSeq: open.seq,
      claim: { kind: 'remove' },
    })
    // Fenced: taken over, which settles it too.
    return outcome.kind === 'stale' ? again : null
  })
}
