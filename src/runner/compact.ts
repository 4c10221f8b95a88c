// compactSession (contract.graphql): a compaction request is an input of its own kind, armed, ordered as a steer (design section 5).

import { event } from '../events.ts'
import { pendingLimit, promptConflict } from './admit.ts'
import { type Core, wake } from './core.ts'
import { again, decideAgain } from './decide-again.ts'
import { invalidInput, type Outcome, sessionNotFound } from './outcomes.ts'
import { brokenIdRule } from './rules.ts'
import { findSession } from './sessions.ts'

type CompactOutcome = Outcome<
  'CompactSessionPayload' | 'PromptConflictError' | 'SessionNotFoundError' | 'InvalidInputError' | 'LimitExceededError'
>

/** Asks for a compaction, once per id (COMP-01 to COMP-03). */
export async function compactSession(
  core: Core,
  tenant: string,
  { sessionId, messageId }: { sessionId: string; messageId: string },
): Promise<CompactOutcome> {
  const sessionRule = brokenIdRule('ses_', sessionId)
  if (sessionRule !== null) return invalidInput('sessionId', sessionRule)
  const messageRule = brokenIdRule('msg_', messageId)
  if (messageRule !== null) return invalidInput('messageId', messageRule)
  return decideAgain(core, { tenant, sessionId }, async (): Promise<CompactOutcome | typeof again> => {
    const session = await findSession(core, tenant, sessionId)
    if (session === null) return sessionNotFound(sessionId)
    const stored = await core.db.input.findUnique({ where: { id: messageId } })
    if (stored !== null) {
      const isSame = stored.sessionId === sessionId && stored.kind === 'COMPACTION'
      return isSame ? { type: 'CompactSessionPayload', messageId } : promptConflict(sessionId, messageId, ['messageId'])
    }
    const limit = await pendingLimit(core, sessionId)
    if ('type' in limit) return limit
    const outcome = await core.eventLog.append({
      sessionId,
      events: [
        event('prompt.admitted', {
          messageId,
          inputKind: 'COMPACTION',
          text: '',
          attachments: [],
          delivery: 'STEER',
          requestExecution: true,
        }),
      ],
      ...(limit.near ? { expectedSeq: session.seq } : {}),
    })
    if (outcome.kind !== 'appended') return again
    wake(core, sessionId)
    return { type: 'CompactSessionPayload', messageId }
  })
}
