// resumeSession: a person asks the session to go on (contract.graphql). The intent is durable before the answer.

import { event } from '../events.ts'
import { type Core, wake } from './core.ts'
import { again, decideAgain } from './decide-again.ts'
import { isOwed, readWork, type Work } from './eligible.ts'
import { type Outcome, sessionChanged, sessionNotFound } from './outcomes.ts'
import { findSession } from './sessions.ts'

/** Would session.resume_requested change anything: something to arm, a park or a rest to end? */
const hasEffect = (work: Work) =>
  work.pending.some(({ armed }) => !armed) || work.parked || (work.backingOff && isOwed(work))

type Resumed = Outcome<
  'ResumeSessionPayload' | 'SessionNotFoundError' | 'SessionQuarantinedError' | 'SessionChangedError'
>

/** Arms what is pending, unparks, and starts what is owed; with nothing owed nothing is written and no request follows. */
export function resumeSession(
  core: Core,
  tenant: string,
  { sessionId, ifSeq }: { sessionId: string; ifSeq?: number | null | undefined },
): Promise<Resumed> {
  return decideAgain(core, { tenant, sessionId }, async (): Promise<Resumed | typeof again> => {
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
      if (outcome.kind !== 'appended') return again
    }
    wake(core, sessionId)
    return { type: 'ResumeSessionPayload', sessionId }
  })
}
