// Admission (design section 4): make a prompt durable, once, however often it is sent. Compared before anything is written; a conflict
// writes nothing and arms nothing; an honest retry gets the stored input. Admission never waits for a model.

import { isDeepStrictEqual } from 'node:util'
import { type Attachment, type Delivery, event } from '../events.ts'
import type { Input } from '../generated/prisma/client.ts'
import { checkAttachment } from './attachment.ts'
import { type Core, wake } from './core.ts'
import { again, decideAgain } from './decide-again.ts'
import { invalidInput, type Outcome, sessionNotFound } from './outcomes.ts'
import { brokenIdRule, brokenTextRule, tooLongRule, unstorableRule } from './rules.ts'
import { findSession } from './sessions.ts'

type Maybe<T> = T | null | undefined

export interface AdmitPromptInput {
  sessionId: string
  messageId: string
  text: string
  attachments?: Maybe<Attachment[]>
  delivery?: Maybe<Delivery>
  resume?: Maybe<boolean>
}

interface Request {
  text: string
  attachments: Attachment[]
  delivery: Delivery
}

const attachmentsMax = 50

type AdmitOutcome = Outcome<
  'PromptAdmission' | 'PromptConflictError' | 'SessionNotFoundError' | 'InvalidInputError' | 'LimitExceededError'
>

/** Refuses what no configuration could allow; else the bytes that its attachments have together. */
async function checkRequest({ sessionId, messageId }: AdmitPromptInput, request: Request) {
  const sessionRule = brokenIdRule('ses_', sessionId)
  if (sessionRule !== null) return invalidInput('sessionId', sessionRule)
  const messageRule = brokenIdRule('msg_', messageId)
  if (messageRule !== null) return invalidInput('messageId', messageRule)
  if (request.text.trim() === '' && request.attachments.length === 0)
    return invalidInput('text', 'must not be empty when there are no attachments')
  const textRule = unstorableRule(request.text)
  if (textRule !== null) return invalidInput('text', textRule)
  if (request.attachments.length > attachmentsMax)
    return invalidInput('attachments', `are ${request.attachments.length}, at most ${attachmentsMax} are taken`)
  let bytes = 0
  for (const [n, attachment] of request.attachments.entries()) {
    const stored = brokenTextRule(
      `${attachment.name}${attachment.mediaType}${attachment.url}`,
      Number.POSITIVE_INFINITY,
    )
    if (stored !== null) return invalidInput('attachments', `attachment ${n + 1} ${stored}`)
    const checked = await checkAttachment(attachment)
    if ('rule' in checked) return invalidInput('attachments', `attachment ${n + 1}: ${checked.rule}`)
    bytes += checked.bytes
  }
  return { type: 'fits', bytes } as const
}

/** Refuses what is larger than this configuration takes. Asked of what is new only: what is stored gets its answer (ADM-31). */
function checkSize({ config }: Core, text: string, bytes: number) {
  const { textBytes, attachmentBytes } = config.limits
  const textRule = tooLongRule(text, textBytes)
  if (textRule !== null) return invalidInput('text', textRule)
  if (bytes > attachmentBytes)
    return invalidInput('attachments', `have ${bytes} bytes together, at most ${attachmentBytes} are taken`)
  return null
}

/** What differs from the stored request; the delivery is the one asked for then, not the one it was moved to since. */
function differingFields(stored: Input, request: Request): string[] {
  const differing: string[] = []
  if (stored.text !== request.text) differing.push('text')
  if (!isDeepStrictEqual(stored.attachments, request.attachments)) differing.push('attachments')
  if (stored.requestedDelivery !== request.delivery) differing.push('delivery')
  return differing
}

export const promptConflict = (
  sessionId: string,
  messageId: string,
  fields: string[],
): Outcome<'PromptConflictError'> => ({
  type: 'PromptConflictError',
  message: `the id ${messageId} is taken: ${fields.join(', ')} differs`,
  sessionId,
  messageId,
  differingFields: fields,
})

/** So close to the limit an admission is stored only if nothing came in between; other processes admit one at a time each. */
const nearLimit = 64

/**
 * Refuses a further pending input beyond the limit. Read after the session: near the limit the append has to expect its seq, so that of two
 * admissions at once only one takes the last place.
 */
export async function pendingLimit(
  core: Core,
  sessionId: string,
): Promise<{ near: boolean } | Outcome<'LimitExceededError'>> {
  const { pendingInputs } = core.config.limits
  const pending = await core.db.input.count({ where: { sessionId, state: 'PENDING' }, take: pendingInputs })
  if (pending < pendingInputs) return { near: pending + nearLimit > pendingInputs }
  const message = `at most ${pendingInputs} inputs can wait in one session`
  return { type: 'LimitExceededError', message, limit: 'pendingInputs', retryAfterMs: null }
}

/** Admits a prompt; every line of design section 4 is a branch here. */
export async function admitPrompt(core: Core, tenant: string, input: AdmitPromptInput): Promise<AdmitOutcome> {
  const { sessionId, messageId } = input
  const resume = input.resume ?? true
  const request: Request = {
    text: input.text,
    attachments: (input.attachments ?? []).map(({ name, mediaType, url }) => ({ name, mediaType, url })),
    delivery: input.delivery ?? 'STEER',
  }
  const checked = await checkRequest(input, request)
  if (checked.type !== 'fits') return checked

  return decideAgain(core, { tenant, sessionId }, async (): Promise<AdmitOutcome | typeof again> => {
    const session = await findSession(core, tenant, sessionId)
    if (session === null) return sessionNotFound(sessionId)
    const stored = await core.db.input.findUnique({ where: { id: messageId } })
    if (stored !== null) {
      if (stored.sessionId !== sessionId || stored.kind !== 'PROMPT')
        return promptConflict(sessionId, messageId, ['messageId'])
      const differing = differingFields(stored, request)
      if (differing.length > 0) return promptConflict(sessionId, messageId, differing)
      const admission = (outcome: AdmissionOutcome, executionRequested = false) =>
        ({ type: 'PromptAdmission', outcome, messageId, executionRequested }) as const
      if (stored.state === 'PROMOTED') return admission('ALREADY_PROMOTED')
      if (stored.state === 'WITHDRAWN') return admission('ALREADY_WITHDRAWN')
      // Asked before means asked, also when an interrupt has disarmed it since: a late network retry must not restart stopped work.
      if (!resume || stored.executionRequested) return admission('ALREADY_ADMITTED')
      const asked = await core.eventLog.append({
        sessionId,
        events: [event('prompt.execution_requested', { messageId })],
        expectedSeq: session.seq,
      })
      if (asked.kind !== 'appended') return again
      wake(core, sessionId)
      return admission('ALREADY_ADMITTED', true)
    }

    const tooLarge = checkSize(core, request.text, checked.bytes)
    if (tooLarge !== null) return tooLarge
    const limit = await pendingLimit(core, sessionId)
    if ('type' in limit) return limit
    const outcome = await core.eventLog.append({
      sessionId,
      events: [event('prompt.admitted', { messageId, inputKind: 'PROMPT', ...request, requestExecution: resume })],
      ...(limit.near ? { expectedSeq: session.seq } : {}),
    })
    // The id was taken in between: by this very call sent twice, or by another. Compare with what is there now: every message under an id
    // that a client can make was an input first.
    if (outcome.kind !== 'appended') return again
    if (resume) wake(core, sessionId)
    return { type: 'PromptAdmission', outcome: 'ADMITTED', messageId, executionRequested: resume }
  })
}

type AdmissionOutcome = Extract<AdmitOutcome, { type: 'PromptAdmission' }>['outcome']
