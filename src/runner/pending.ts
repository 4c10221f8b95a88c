// Changes to an input that still waits: withdraw it, or move its delivery (scenarios PROMO-13 to -16, -22).

import { type Delivery, event, type NewEvent } from '../events.ts'
import type { Input } from '../generated/prisma/client.ts'
import type { Core } from './core.ts'
import { again, decideAgain } from './decide-again.ts'
import { invalidInput, type Outcome, sessionChanged, sessionNotFound } from './outcomes.ts'
import { brokenIdRule, isLookable } from './rules.ts'
import { findSession } from './sessions.ts'

type PromptChange = Outcome<
  'PromptChangePayload' | 'PromptNotPendingError' | 'SessionNotFoundError' | 'SessionChangedError' | 'InvalidInputError'
>

const notPending = (messageId: string): Outcome<'PromptNotPendingError'> => ({
  type: 'PromptNotPendingError',
  message: `${messageId} is not pending in this session`,
  messageId,
})

interface Change {
  sessionId: string
  messageId: string
  ifSeq?: number | null | undefined
}

/**
 * Appends what `decide` wants for the pending input; decides again when the session moved. `done` from it means: as it should be
 * already. A continuation is the system's own and is refused.
 */
async function changePending(
  core: Core,
  tenant: string,
  { sessionId, messageId, ifSeq }: Change,
  decide: (input: Input) => NewEvent | 'done' | Outcome<'PromptNotPendingError' | 'InvalidInputError'>,
): Promise<PromptChange> {
  const idRule = brokenIdRule('ses_', sessionId)
  if (idRule !== null) return invalidInput('sessionId', idRule)
  return decideAgain(core, { tenant, sessionId }, async (): Promise<PromptChange | typeof again> => {
    const session = await findSession(core, tenant, sessionId)
    if (session === null) return sessionNotFound(sessionId)
    if (ifSeq != null && ifSeq !== session.seq) return sessionChanged(sessionId, session.seq)
    const input = isLookable(messageId)
      ? await core.db.input.findUnique({ where: { sessionId_id: { sessionId, id: messageId } } })
      : null
    if (input === null || input.kind === 'CONTINUATION') return notPending(messageId)
    const decided = decide(input)
    if (decided === 'done') return { type: 'PromptChangePayload', messageId }
    if (!('payload' in decided)) return decided
    const outcome = await core.eventLog.append({ sessionId, events: [decided], expectedSeq: session.seq })
    return outcome.kind === 'appended' ? { type: 'PromptChangePayload', messageId } : again
  })
}

/** Takes a pending input back: it is never promoted. Repeated, it says the same. */
export const withdrawPrompt = (core: Core, tenant: string, input: { sessionId: string; messageId: string }) =>
  changePending(core, tenant, input, ({ id, state }) => {
    if (state === 'WITHDRAWN') return 'done'
    return state === 'PENDING' ? event('prompt.withdrawn', { messageId: id }) : notPending(id)
  })

/** Moves a pending prompt between STEER and QUEUE. */
export const changeDelivery = (core: Core, tenant: string, input: Change & { delivery: Delivery }) =>
  changePending(core, tenant, input, ({ id, state, kind, delivery }) => {
    if (state !== 'PENDING') return notPending(id)
    if (kind === 'COMPACTION')
      return invalidInput('messageId', 'is a compaction request, which has no delivery to change')
    if (delivery === input.delivery) return 'done'
    return event('prompt.delivery_changed', { messageId: id, delivery: input.delivery })
  })
