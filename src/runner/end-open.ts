// The owner's end of what is open, taken from the rows instead of from what its memory believes: after an interrupt, and when something
// of a step could not be stored. What was refused once would be refused again, so each further try holds less of what came from outside.

import { patiently } from '../db.ts'
import { AppendRefusedError } from '../errors.ts'
import type { AppendOutcome, ClaimMove } from '../event-log.ts'
import { type ExecutionPhase, type NewEvent, noUsage } from '../events.ts'
import type { Core } from './core.ts'
import { again, ownerDecides } from './decide-again.ts'
import type { Hold } from './hold.ts'
import { type Ending, type OpenRows, readOpen, settleOpen } from './settle-open.ts'

/** With what the owner has received; with what the rows have; without a word of either. */
const tries = ['received', 'rows', 'nothing'] as const

function eventsOf(open: OpenRows, ending: Ending, by: (typeof tries)[number]): NewEvent[] {
  if (by === 'received') return settleOpen(open, ending)
  const { received: _, ...rest } = ending
  if (by === 'rows') return settleOpen(open, rest)
  const step = open.step && { ...open.step, usage: noUsage }
  return settleOpen({ ...open, step, parts: open.parts.map((part) => ({ ...part, text: '' })) }, rest)
}

export interface OwnEnd {
  ending: Omit<Ending, 'received'>
  /** After what settles the rows, in the same append. */
  after: readonly NewEvent[]
  phase: ExecutionPhase
  claim: ClaimMove
}

/** Settles what is open of the session and moves the claim, in one append. Gives its outcome; throws if that cannot be written at all. */
export async function endOpen(core: Core, hold: Hold, { ending, after, phase, claim }: OwnEnd): Promise<AppendOutcome> {
  const { sessionId, executionId } = hold
  let by = 0
  return ownerDecides(core, sessionId, async () => {
    for (;;) {
      const open = await patiently(() => readOpen(core.db, sessionId), core.stopping)
      const settled = eventsOf(open, { ...ending, received: hold.received() }, tries[by]!)
      try {
        const outcome = await core.eventLog.append({
          sessionId,
          events: [...settled, ...after],
          fence: hold.fence([phase]),
          // Inputs may still be admitted meanwhile, people may decide: the end is that of the rows that were read.
          expectedSeq: open.seq,
          claim,
          // Left undone it would have to be set aside: nobody else knows what the tools did.
          patience: core.stopping,
        })
        return outcome.kind === 'stale' ? again : outcome
      } catch (thrown) {
        if (!(thrown instanceof AppendRefusedError) || by === tries.length - 1) throw thrown
        const what = 'an end was refused; it is made with less'
        core.log.error({ err: thrown, sessionId, executionId, with: tries[by] }, what)
        by++
      }
    }
  })
}
