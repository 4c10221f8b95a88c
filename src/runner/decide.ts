// Decisions on approvals and questions (design section 7). The first decision wins; it commits with the interaction armed, so that
// any process can carry it out. One that stops the activity settles it in the same commit, or moves a live claim to CANCELLING.

import { isDeepStrictEqual } from 'node:util'
import { event, type InteractionState, type JsonValue, type NewEvent, type StepError } from '../events.ts'
import type { Interaction } from '../generated/prisma/client.ts'
import { decidedError } from './asked.ts'
import { checked } from './checked.ts'
import { type Core, wake } from './core.ts'
import { again, decideAgain } from './decide-again.ts'
import { readWork } from './eligible.ts'
import { invalidInput, type Outcome } from './outcomes.ts'
import { brokenTextRule, isLookable, storableJson } from './rules.ts'
import { readOpen, settleOpen } from './settle-open.ts'

type Maybe<T> = T | null | undefined
type Decision = Outcome<
  'InteractionPayload' | 'InteractionNotFoundError' | 'InteractionSettledError' | 'InvalidInputError'
>

/** What a person decided, complete. */
interface Settled {
  state: Exclude<InteractionState, 'OPEN'>
  answer: JsonValue
  feedback: string | null
  editedInput: JsonValue
  remember: boolean
  stops: boolean
}

const aborted: StepError = { code: 'ABORTED', message: 'the user ended the activity' }

const nothing = { answer: null, feedback: null, editedInput: null, remember: false, stops: false } as const

/** Is this the decision that stands? Then the call is a retry. */
const isSame = (row: Interaction, settled: Settled) =>
  row.state === settled.state &&
  row.stops === settled.stops &&
  row.remember === settled.remember &&
  row.feedback === settled.feedback &&
  isDeepStrictEqual(row.answer, settled.answer) &&
  isDeepStrictEqual(row.editedInput, settled.editedInput)

/** Ends the activity of a step that waits: nobody holds a claim, so all of it is settled here, in one commit. */
async function stopUnclaimed(core: Core, row: Interaction, decided: NewEvent, settled: Settled): Promise<NewEvent[]> {
  const open = await readOpen(core.db, row.sessionId)
  const others = { ...open, interactions: open.interactions.filter(({ id }) => id !== row.id) }
  return [
    event('interrupt.requested', { interruptedExecutionId: null }),
    decided,
    ...settleOpen(others, {
      tool: ({ messageId, callId }) =>
        callId === row.callId && messageId === row.messageId ? decidedError(settled) : aborted,
      compaction: aborted,
      step: { interrupted: aborted },
    }),
  ]
}

/** Appends the decision if the interaction is still open; looks again when the session moved. */
async function settle(
  core: Core,
  tenant: string,
  interactionId: string,
  decide: (row: Interaction) => Settled | Outcome<'InvalidInputError'>,
): Promise<Decision> {
  const found = isLookable(interactionId)
    ? await core.db.interaction.findFirst({
        where: { id: interactionId, session: { tenant } },
        select: { sessionId: true },
      })
    : null
  if (found === null) {
    const message = `there is no interaction ${interactionId}`
    return { type: 'InteractionNotFoundError', message, interactionId }
  }
  const { sessionId } = found
  return decideAgain(core, { tenant, sessionId }, async (): Promise<Decision | typeof again> => {
    const work = await readWork(core.db, sessionId)
    if (work === null) throw new Error(`session ${sessionId} is gone`)
    // Read after the seq that the append expects: whoever decides from here on makes that stale.
    const row = await core.db.interaction.findUniqueOrThrow({ where: { id: interactionId } })
    const settled = decide(row)
    if ('type' in settled) return settled
    if (row.state !== 'OPEN') {
      if (isSame(row, settled)) return { type: 'InteractionPayload', interactionId }
      const message = `the interaction is ${row.state} already; the first decision counts`
      return { type: 'InteractionSettledError', message, interactionId }
    }
    const { stops, ...payload } = settled
    const decided = event('interaction.settled', { interactionId, ...payload, ...(stops ? { stops } : {}) })
    if (!stops) {
      const outcome = await core.eventLog.append({ sessionId, events: [decided], expectedSeq: work.seq })
      if (outcome.kind !== 'appended') return again
      wake(core, sessionId)
      return { type: 'InteractionPayload', interactionId }
    }
    if (work.claim === null || work.claim.phase === 'CANCELLED') {
      const events = await stopUnclaimed(core, row, decided, settled)
      const outcome = await core.eventLog.append({ sessionId, events, expectedSeq: work.seq, unclaimed: true })
      if (outcome.kind !== 'appended') return again
      return { type: 'InteractionPayload', interactionId }
    }
    // Somebody runs the rest of the step: the same commit stops it, and its owner settles the declined tool with it (ASK-21).
    const { executionId, phase } = work.claim
    const isCancelling = phase === 'CANCELLING'
    const outcome = await core.eventLog.append({
      sessionId,
      events: isCancelling
        ? [decided]
        : [decided, event('interrupt.requested', { interruptedExecutionId: executionId })],
      fence: { executionId, owner: null, phases: [phase], live: false },
      expectedSeq: work.seq,
      ...(isCancelling ? {} : { claim: { kind: 'move', to: 'CANCELLING' } }),
    })
    if (outcome.kind !== 'appended') return again
    const hold = core.leases.heldBy(sessionId)
    if (hold?.executionId === executionId) hold.end('cancelled')
    return { type: 'InteractionPayload', interactionId }
  })
}

const wrongKind = (row: Interaction) =>
  invalidInput('interactionId', `names ${row.kind === 'APPROVAL' ? 'an approval' : 'a question'}`)

const feedbackBytesMax = 64 * 1024

/** APPROVE runs the tool (with editedInput instead, if given), the others tell the model or end the activity. */
export function decideApproval(
  core: Core,
  tenant: string,
  input: {
    interactionId: string
    decision: 'APPROVE' | 'DECLINE_AND_STOP' | 'DECLINE_AND_CONTINUE'
    feedback?: Maybe<string>
    editedInput?: unknown
    remember?: Maybe<boolean>
  },
): Promise<Decision> {
  const { decision } = input
  const feedback = input.feedback ?? null
  const edited = storableJson(input.editedInput, core.config.limits.textBytes)
  const remember = input.remember ?? false
  return settle(core, tenant, input.interactionId, (row) => {
    if (row.kind !== 'APPROVAL') return wrongKind(row)
    const rule = feedback === null ? null : brokenTextRule(feedback, feedbackBytesMax)
    if (rule !== null) return invalidInput('feedback', rule)
    const isApproval = decision === 'APPROVE'
    if (remember && !isApproval) return invalidInput('remember', 'goes with APPROVE only')
    if ('rule' in edited) return invalidInput('editedInput', edited.rule)
    const editedInput = edited.value
    if (editedInput !== null) {
      if (!isApproval) return invalidInput('editedInput', 'goes with APPROVE only')
      // A repeat of a decision that stands is answered from the row, whatever has become of the tool since.
      const tool = row.state === 'OPEN' ? core.tools.get(row.toolName) : null
      if (tool === undefined) return invalidInput('editedInput', `the tool "${row.toolName}" is not there any more`)
      const fits = tool && checked(core, row.sessionId, tool, editedInput)
      if (fits?.ok === false) return invalidInput('editedInput', fits.rule)
    }
    if (isApproval) return { ...nothing, state: 'APPROVED', feedback, editedInput, remember }
    return { ...nothing, state: 'DECLINED', feedback, stops: decision === 'DECLINE_AND_STOP' }
  })
}

/** The answer becomes the output of the tool that asked. */
export function answerQuestion(
  core: Core,
  tenant: string,
  { interactionId, answer }: { interactionId: string; answer: unknown },
): Promise<Decision> {
  const given = storableJson(answer, core.config.limits.textBytes)
  return settle(core, tenant, interactionId, (row) => {
    if (row.kind !== 'QUESTION') return wrongKind(row)
    if ('rule' in given) return invalidInput('answer', given.rule)
    if (given.value === null) return invalidInput('answer', 'must not be null')
    return { ...nothing, state: 'ANSWERED', answer: given.value }
  })
}

/** Ends the activity without an answer. */
export const dismissQuestion = (core: Core, tenant: string, { interactionId }: { interactionId: string }) =>
  settle(core, tenant, interactionId, (row) =>
    row.kind === 'QUESTION' ? { ...nothing, state: 'DISMISSED', stops: true } : wrongKind(row),
  )
