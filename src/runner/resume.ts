// resumeSession: a person asks the session to go on (contract.graphql). The intent is durable before the answer.

import { event } from '../events.ts'
import { type Core, wake } from './core.ts'
import { isOwed, readWork, type Work } from './eligible.ts'
import { decideAgainMax, type Outcome, sessionChanged, sessionNotFound } from './outcomes.ts'
import { findSession } from './sessions.ts'

/** Would session.resume_requested change anything: something to arm, a park or a rest to end? */
const hasEffect = (work: Work) =>
  work.pending.some(({ armed }) => !armed) || work.parked || (work.backingOff && isOwed(work))

/** Arms what is pending, unparks, and starts what is owed; with nothing owed nothing is written and no request follows. */
export async function resumeSession(
  core: Core,
  tenant: string,
  { sessionId, ifSeq }: { sessionId: string; ifSeq?: number | null | undefined },
): Promise<
  Outcome<'ResumeSessionPayload' | 'SessionNotFoundError' | 'SessionQuarantinedError' | 'SessionChangedError'>
> {
  for (let look = 0; look < decideAgainMax; look++) {
    if ((await findSession(core, tenant, sessionId)) === null) return sessionNotFound(sessionId)
    const work = await readWork(core.db, sessionId)
    if (work === null) return sessionNotFound(sessionId)
    if (work.quarantined) {
      const message = 'the session is quarantined: resolveQuarantine decides what becomes of it'
      return { type: 'SessionQuarantinedError', message, sessionId }
    }
    if (ifSeq != null && ifSeq !== work.seq) return sessionChanged(sessionId, work.seq)
    if (hasEffect(work)) {
      const outcome = await core.eventLog.append({
        sessionId,
        events: [event('session.resume_requested', {})],
        expectedSeq: work.seq,
      })
      if (outcome.kind !== 'appended') continue
    }
    wake(core, sessionId)
    return { type: 'ResumeSessionPayload', sessionId }
  }
  throw new Error(`${sessionId} moved ${decideAgainMax} times while it was resumed`)
}
