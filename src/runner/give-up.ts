// The end of a drain that failed unexpectedly. Its claim must not wait for the lease, and must not be settled while anything of it is still
// under way: first the hold ends, which stops its request and its tools (step.ts waits for them), then its live text is dropped, then
// recovery's own path takes the claim. Until then it is renewed, so that nobody else takes it in the middle of that; what cannot be settled is
// renewed no more.

import { setTimeout as pause } from 'node:timers/promises'
import { backoffMs, isTransient, ownersPatienceMs } from '../db.ts'
import { asError, UnavailableError } from '../errors.ts'
import type { Core } from './core.ts'
import type { Hold } from './hold.ts'
import { databaseWaitMs } from './waits.ts'

/** Settles the claim of a drain that failed. Never throws; true if the session is to be looked at again. */
export async function giveUp(core: Core, hold: Hold): Promise<boolean> {
  const { sessionId, executionId } = hold
  hold.end('failed')
  // Taken over by somebody else: it is theirs to settle.
  if (hold.ended === 'lost') return false
  hold.closing = true
  try {
    // No chunk of it is written any more behind the end of its part.
    await core.live.drop(sessionId)
    return await hold.during('append', databaseWaitMs, settle(core, hold))
  } catch (thrown) {
    const what = 'the claim of a failed drain could not be settled: a scan does it when the lease has run out'
    core.log.error({ err: asError(thrown), sessionId, executionId }, what)
    return false
  }
}

/** Tried at least so often, also by a process that stops. */
const triesMin = 7

/** What the database cannot do now is tried again while the claim is held: left behind, it would be for a scan, or for a person. */
async function settle(core: Core, hold: Hold): Promise<boolean> {
  const since = performance.now()
  for (let tries = 1; hold.ended !== 'lost'; tries++) {
    try {
      // A try before may have been committed, its answer lost: then there may be more to do as well.
      return (await core.settleFailedDrain(hold)) || tries > 1
    } catch (thrown) {
      if (!(thrown instanceof UnavailableError) && !isTransient(thrown)) throw thrown
      const isSpent = core.stopping.aborted || performance.now() - since >= ownersPatienceMs
      if (tries >= triesMin && isSpent) throw thrown
      await pause(backoffMs(tries - 1))
    }
  }
  return false
}
