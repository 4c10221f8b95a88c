// compactSession (contract.graphql): a compaction request is an input of its own kind, armed, ordered as a steer (design section 5).

import { event } from '../events.ts'
import { pendingLimit, promptConflict } from './admit.ts'
import { type Core, wake } from './core.ts'
import { decideAgainMax, invalidInput, type Outcome, sessionNotFound } from './outcomes.ts'
import { brokenIdRule } from './rules.ts'
import { findSession } from './sessions.ts'

/** Asks for a compaction, once per id (COMP-01 to COMP-03). */
export async function compactSession(
  core: Core,
  tenant: string,
  { sessionId, messageId }: { sessionId: string; messageId: string },
): Promise<
  Outcome<
    | 'CompactSessionPayload'
    | 'PromptConflictError'
    | 'SessionNotFoundError'
    | 'InvalidInputError'
    | 'LimitExceededError'
  >
> {
  const sessionRule = brokenIdRule('ses_', sessionId)
  if (sessionRule !== null) return invalidInput('sessionId', sessionRule)
  const messageRule = brokenIdRule('msg_', messageId)
  if (messageRule !== null) return invalidInput('messageId', messageRule)
  for (let look = 0; look < decideAgainMax; look++) {
    if ((await findSession(core, tenant, sessionId)) === null) return sessionNotFound(sessionId)
    const stored = await core.db.input.findUnique({ where: { id: messageId } })
    if (stored !== null) {
      const isSame = stored.sessionId === sessionId && stored.kind === 'COMPACTION'
      return isSame ? { type: 'CompactSessionPayload', messageId } : promptConflict(sessionId, messageId, ['messageId'])
    }
    const limit = await pendingLimit(core, sessionId)
    if (limit !== null) return limit
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
    })
    if (outcome.kind !== 'appended') continue
    wake(core, sessionId)
    return { type: 'CompactSessionPayload', messageId }
  }
  throw new Error(`the compaction request ${messageId} found the session moved ${decideAgainMax} times`)
}
