// One step, read downward (design section 6). The order of effects is load-bearing, so it all stands here:
//
//   prepare → [promotions, step.started, claim to UNKNOWN] → request → every event to the ledger, each call dispatched as it completes
//   → the stream's real end → tools settled → classified once → terminal and the claim's move, or a notice and another attempt

import { setTimeout as pause } from 'node:timers/promises'
import { backoffMs, databaseNow } from '../db.ts'
import { AppendRefusedError, asError } from '../errors.ts'
import type { ClaimMove } from '../event-log.ts'
import { event, type NewEvent, noUsage, type StepError, type StepErrorCode, type Usage } from '../events.ts'
import { newMessageId } from '../ids.ts'
import type { Asked } from './asked.ts'
import { compact, compactionsMax } from './compaction.ts'
import type { Core } from './core.ts'
import type { PendingInput, Work } from './eligible.ts'
import { endOpen } from './end-open.ts'
import type { Promoted } from './history.ts'
import { type Hold, HoldEnded, reading } from './hold.ts'
import { createLedger, type Ledger } from './ledger.ts'
import { attempt } from './models/attempt.ts'
import { ProviderFailure } from './models/failure.ts'
import { type Prepared, prepare, readPromoted } from './prepare.ts'
import { attemptsMax, retryDelayMs } from './retry.ts'
import { cancelInteractions, type OpenTool } from './settle-open.ts'
import { classify, type Settlement } from './settlement.ts'
import { inStepSpan, tracedRequest } from './spans.ts'
import { createStepTools, type StepTools } from './step-tools.ts'
import { requestWaitMs } from './waits.ts'

/** A retry that is due: which attempt, and the message to go on with (null: output was kept, a new message begins). */
export interface Retry {
  attempt: number
  messageId: string | null
  /** With the message: what its step sampled at its start, which further attempts keep (STEP-12). */
  prepared: Prepared | null
}

export type StepResult =
  /** The step has its terminal; the claim is SAFE, or CONTINUE if another step is owed. */
  | { kind: 'settled'; continues: boolean; failed: StepErrorCode | null }
  /** The notice is durable, the claim is CONTINUE; wait, then run again. */
  | { kind: 'retry'; retry: Retry; delayMs: number; failed: StepErrorCode }
  /** Preparation failed for good: step and execution ended in one append. */
  | { kind: 'finished'; failed?: StepErrorCode }
  /** Preparation failed for now: given back with a time. */
  | { kind: 'released' }
  /** Only people are left to act: the step stays open, the claim is given back (section 7). */
  | { kind: 'waiting' }
  /** Older history was summarised, or could not be, before the step: look again, and let it run. */
  | { kind: 'compacted' }
  /** The session moved before the step began: look again. */
  | { kind: 'stale' }
  /** The hold ended; `ignoring` are the calls whose tools still run in spite of their signal. */
  | { kind: 'stopped'; ignoring: ReadonlySet<string> }

/** How long a session rests whose next step could not be prepared for now. */
const preparationRestMs = 10_000

/** How often an outcome is decided again because a person decided in between. */
const decideAgainMax = 100

const stopped: StepResult = { kind: 'stopped', ignoring: new Set() }

/** Finds out why a fence failed and ends the hold: cancelled, or else lost. */
export async function fenceFailed(core: Core, hold: Hold, what: string): Promise<void> {
  core.metrics.refusedStaleWrites.inc({ what })
  // What cannot be read now says nothing: an interrupt taken for a loss would leave its cleanup undone.
  await reading(hold, () => core.leases.examine(hold)).catch(() => {})
  if (hold.ended === null) hold.end('lost')
}

const promotionOf = ({ id, kind, text, attachments, hidden }: Promoted): NewEvent =>
  event('prompt.promoted', { messageId: id, inputKind: kind, text, attachments, hidden })

export const promotionsOf = (promoted: readonly Promoted[]): NewEvent[] => promoted.map(promotionOf)

/** Runs one step from a safe boundary, or one more attempt of it. */
export async function runStep(
  core: Core,
  hold: Hold,
  work: Work,
  promote: readonly PendingInput[],
  retry: Retry | null,
  mayCompact = true,
): Promise<StepResult> {
  const { sessionId, executionId } = hold
  const messageId = retry?.messageId ?? newMessageId()
  const isSameMessage = retry?.messageId != null

  // Everything is prepared before the claim moves to UNKNOWN: a death until then leaves nothing to wonder about.
  let promoted: Promoted[]
  let preparation: Awaited<ReturnType<typeof prepare>>
  try {
    promoted = await reading(hold, () => readPromoted(core, sessionId, isSameMessage ? [] : promote))
    preparation = retry?.prepared
      ? { ok: true, prepared: retry.prepared }
      : await reading(hold, () => prepare(core, sessionId, work, promoted))
  } catch (thrown) {
    if (hold.signal.aborted) return stopped
    core.log.warn({ err: asError(thrown), sessionId, executionId }, 'a step could not be prepared for now')
    return release(core, hold, work)
  }
  const started = isSameMessage
    ? []
    : [...promotionsOf(promoted), event('step.started', { messageId, model: work.model, executionId })]
  if (!preparation.ok) return failPreparation(core, hold, work, messageId, started, preparation.error)
  const { prepared } = preparation
  if (prepared.isTooLong && mayCompact && !isSameMessage) {
    // Before the promotion: what is pending stays pending while older history is summarised (COMP-07).
    if (prepared.compactions >= compactionsMax) {
      const message = `history was compacted ${compactionsMax} times in a row and is still too long for the model`
      return failPreparation(core, hold, work, messageId, started, { code: 'CONTEXT_OVERFLOW', message })
    }
    const options = { expectedSeq: work.seq, isForStep: true, moveTo: 'CONTINUE' as const }
    try {
      const compacted = await compact(core, hold, prepared.model, options)
      return compacted === 'stale' ? { kind: 'stale' } : { kind: 'compacted' }
    } catch (thrown) {
      // An interrupt has its cleanup ahead of it (COMP-22): only a failure of ours leaves the claim to recovery.
      if (thrown instanceof HoldEnded) return stopped
      throw thrown
    }
  }

  const begun = await core.eventLog.append({
    sessionId,
    events: started,
    fence: hold.fence(isSameMessage ? [hold.phase, 'UNKNOWN'] : [hold.phase]),
    claim: { kind: 'move', to: 'UNKNOWN', messageId },
    patience: hold.signal,
    ...(isSameMessage ? {} : { expectedSeq: work.seq }),
  })
  hold.begun()
  if (begun.kind === 'stale') return { kind: 'stale' }
  if (begun.kind !== 'appended') {
    await fenceFailed(core, hold, 'step')
    return stopped
  }
  hold.phase = 'UNKNOWN'
  const attemptNumber = retry?.attempt ?? 1
  const first = await attemptStep(
    core,
    hold,
    prepared,
    createLedger(messageId),
    attemptNumber,
    prepared.compactions < compactionsMax,
  )
  if (first.kind !== 'overflowed') return keeping(prepared, first)

  // The request was too long and nothing was output: compact once, within the step, and try once more (COMP-09 to COMP-12).
  const { failure } = first
  try {
    const compacted = await compact(core, hold, prepared.model, { isForStep: true })
    const again =
      compacted === 'completed' ? await reading(hold, () => prepare(core, sessionId, work, [], prepared)) : null
    if (again?.ok) {
      const second = await attemptStep(core, hold, again.prepared, createLedger(messageId), attemptNumber, false)
      if (second.kind !== 'overflowed') return keeping(again.prepared, second)
    }
    return await failStep(core, hold, messageId, { code: failure.code, message: failure.message })
  } catch (thrown) {
    if (thrown instanceof HoldEnded) return stopped
    throw thrown
  }
}

/** Ends a step that has nothing open any more. */
async function failStep(core: Core, hold: Hold, messageId: string, error: StepError): Promise<StepResult> {
  const failed = event('step.failed', { messageId, error, usage: noUsage, continues: false })
  await append(core, hold, [failed], { kind: 'move', to: 'SAFE' })
  return { kind: 'settled', continues: false, failed: error.code }
}

/** A further attempt under the same message asks what the first one did. */
const keeping = (prepared: Prepared, result: StepResult): StepResult =>
  result.kind === 'retry' && result.retry.messageId !== null
    ? { ...result, retry: { ...result.retry, prepared } }
    : result

/** A step that ends before its request. */
const failPreparation: typeof writeFailedPreparation = (core, hold, work, messageId, started, error) =>
  inStepSpan(hold, messageId, 1, async () => {
    const ended = await writeFailedPreparation(core, hold, work, messageId, started, error)
    return ended.kind === 'finished' ? { ...ended, failed: error.code } : ended
  })

async function writeFailedPreparation(
  core: Core,
  hold: Hold,
  work: Work,
  messageId: string,
  started: NewEvent[],
  error: StepError,
): Promise<StepResult> {
  hold.closing = true
  const outcome = await core.eventLog.append({
    sessionId: hold.sessionId,
    events: [
      ...started,
      event('step.failed', { messageId, error, usage: noUsage, continues: false }),
      event('execution.settled', { executionId: hold.executionId, outcome: 'FAILED', retryAt: null }),
    ],
    fence: hold.fence([hold.phase]),
    expectedSeq: work.seq,
    claim: { kind: 'remove' },
  })
  if (outcome.kind === 'appended') return { kind: 'finished' }
  hold.closing = false
  if (outcome.kind === 'stale') return { kind: 'stale' }
  await fenceFailed(core, hold, 'step')
  return stopped
}

/** Gives the session back, nothing promoted; a scan wakes it when its time has come (design section 5). */
async function release(core: Core, hold: Hold, work: Work): Promise<StepResult> {
  const now = await reading(hold, () => databaseNow(core.db))
  const retryAt = new Date(now.getTime() + preparationRestMs).toISOString()
  hold.closing = true
  const outcome = await core.eventLog.append({
    sessionId: hold.sessionId,
    events: [event('execution.settled', { executionId: hold.executionId, outcome: 'RELEASED', retryAt })],
    fence: hold.fence([hold.phase]),
    expectedSeq: work.seq,
    claim: { kind: 'remove' },
  })
  if (outcome.kind === 'appended') return { kind: 'released' }
  hold.closing = false
  if (outcome.kind === 'stale') return { kind: 'stale' }
  await fenceFailed(core, hold, 'release')
  return stopped
}

type AttemptResult = StepResult | { kind: 'overflowed'; failure: ProviderFailure; failed: StepErrorCode }

/** One provider request and all that follows from it. */
const attemptStep: typeof runAttempt = (core, hold, prepared, ledger, attemptNumber, mayCompact) =>
  inStepSpan(hold, ledger.messageId, attemptNumber, () =>
    runAttempt(core, hold, prepared, ledger, attemptNumber, mayCompact),
  )

async function runAttempt(
  core: Core,
  hold: Hold,
  prepared: Prepared,
  ledger: Ledger,
  attemptNumber: number,
  mayCompact: boolean,
): Promise<AttemptResult> {
  const { sessionId, executionId } = hold
  const { messageId } = ledger
  let providerFailure: ProviderFailure | null = null
  let infraFailure: Error | null = null
  hold.received = ledger.received
  const write = (events: NewEvent[]) => append(core, hold, events).then(() => ledger.written(events))
  const tools = createStepTools(core, hold, {
    messageId,
    isLastStep: prepared.isLastStep,
    calls: prepared.calls,
    write,
    mark: ledger.mark,
  })

  // The request. Its events are written one after the other; tools run beside it from the moment their call is durable.
  const asked = core.waits.begin(hold, 'request', requestWaitMs(core.config))
  try {
    await core.leases.mustStart(hold)
    core.metrics.providerAttempts.inc()
    const stream = attempt({
      model: prepared.model,
      prompt: prepared.prompt,
      tools: prepared.tools,
      toolChoice: prepared.isLastStep ? 'none' : 'auto',
      signal: hold.signal,
      idleMs: core.config.idleMs,
      requestMs: core.config.requestMs,
      clock: core.clock,
    })
    for await (const from of tracedRequest(hold, messageId, prepared.model.id, stream)) {
      const move = ledger.take(from)
      if (move.kind === 'begin') {
        await write([move.event])
        core.live.begin({ sessionId, messageId, index: move.index, kind: move.part, callId: move.callId }, executionId)
        core.live.add(sessionId, messageId, move.index, move.text)
      } else if (move.kind === 'text') core.live.add(sessionId, messageId, move.index, move.text)
      else if (move.kind === 'end') {
        await core.live.end(sessionId, messageId, move.index)
        await write(move.events)
      } else if (move.kind === 'call') await tools.take(move.call, move.begins)
      else if (move.kind === 'result') await write([move.event])
    }
  } catch (thrown) {
    if (thrown instanceof ProviderFailure) providerFailure = thrown
    else if (!hold.signal.aborted && !(thrown instanceof HoldEnded)) infraFailure = asError(thrown)
  } finally {
    asked()
  }
  if (hold.signal.aborted) return { kind: 'stopped', ignoring: await tools.stop() }
  if (providerFailure?.code === 'CONTEXT_OVERFLOW' && !ledger.hasOutput() && mayCompact && infraFailure === null)
    return { kind: 'overflowed', failure: providerFailure, failed: providerFailure.code }

  try {
    // The stream has been read to its real end. What it left open ends now, with what was received.
    const closing = await closeStream(core, hold, ledger)
    if (providerFailure === null && infraFailure === null) {
      const { usage } = ledger
      closing.push(event('step.streamed', { messageId, finish: ledger.finish ?? 'other', usage }))
    }
    // What is refused is no longer believed: the step ends by its rows, once its tools have.
    if (tools.running() > 0 && closing.length > 0)
      await write(closing.splice(0)).catch((thrown) => {
        infraFailure = onlyRefused(thrown)
      })
    return await settleStep(
      core,
      hold,
      tools,
      (open) => {
        const refused: StepError | null =
          ledger.finish === 'content-filter'
            ? { code: 'PROVIDER_CONTENT', message: 'the provider stopped the answer for its content' }
            : null
        const settlement = classify({
          interrupted: false,
          providerFailure,
          heldOverflow: null,
          toolInfraFailure: infraFailure ?? tools.infraFailure(),
          stepError: tools.stepError() ?? refused,
          hasLocalCalls: ledger.hasLocalCalls(),
          isLastStep: prepared.isLastStep,
        })
        return {
          settlement,
          closing,
          finish: ledger.finish ?? 'other',
          usage: ledger.usage,
          open,
          unkept: tools.unkept(),
          ledger,
          attemptNumber,
        }
      },
      messageId,
    )
  } catch (thrown) {
    if (!(thrown instanceof HoldEnded)) return joined(hold, tools, thrown)
    return { kind: 'stopped', ignoring: await tools.stop() }
  }
}

/** Fails with what nobody expected, once the tools of the step have been told and waited for: then its claim can be settled (give-up.ts). */
async function joined(hold: Hold, tools: StepTools, thrown: unknown): Promise<never> {
  hold.end('failed')
  await tools.stop()
  throw thrown
}

/**
 * Takes up a step that was fully streamed and waits for people: carries out what has been decided, then waits again or ends the step
 * (section 7). Nothing is known of its provider request but what the log keeps.
 */
export const resumeStep = (core: Core, hold: Hold, messageId: string): Promise<StepResult> =>
  inStepSpan(hold, messageId, null, () => runResumed(core, hold, messageId))

async function runResumed(core: Core, hold: Hold, messageId: string): Promise<StepResult> {
  const { sessionId } = hold
  const step = await reading(hold, () => core.db.message.findUniqueOrThrow({ where: { id: messageId } }))
  const usage: Usage = {
    inputTokens: Number(step.inputTokens ?? 0),
    outputTokens: Number(step.outputTokens ?? 0),
    reasoningTokens: Number(step.reasoningTokens ?? 0),
    cachedInputTokens: Number(step.cachedInputTokens ?? 0),
  }
  const ledger = createLedger(messageId)
  const tools = createStepTools(core, hold, {
    messageId,
    isLastStep: false,
    calls: [],
    write: async (events, options) => {
      const claim: ClaimMove | undefined =
        options?.dispatches && hold.phase === 'READY' ? { kind: 'move', to: 'UNKNOWN', messageId } : undefined
      await append(core, hold, events, claim)
    },
    mark: () => {},
  })
  tools.resumeAsking()
  try {
    return await settleStep(
      core,
      hold,
      tools,
      (open) => {
        const cause = tools.infraFailure()
        const settlement: Settlement =
          cause === null ? { kind: 'Clean', continues: true } : { kind: 'ToolInfraFailed', cause }
        return {
          settlement,
          closing: [],
          finish: step.finish ?? 'other',
          usage,
          open,
          unkept: tools.unkept(),
          ledger,
          attemptNumber: attemptsMax,
        }
      },
      messageId,
    )
  } catch (thrown) {
    if (!(thrown instanceof HoldEnded)) return joined(hold, tools, thrown)
    core.log.debug({ sessionId, messageId }, 'a resumed step was stopped')
    return { kind: 'stopped', ignoring: await tools.stop() }
  }
}

/** Every write within a step: refused as soon as the claim is not ours in the phase we believe in. */
async function append(
  core: Core,
  hold: Hold,
  events: NewEvent[],
  claim?: ClaimMove,
  expectedSeq?: number,
): Promise<'written' | 'stale'> {
  const isLast = claim?.kind === 'remove'
  if (isLast) hold.closing = true
  const outcome = await core.eventLog.append({
    sessionId: hold.sessionId,
    patience: hold.signal,
    events,
    fence: hold.fence([hold.phase]),
    ...(claim === undefined ? {} : { claim }),
    ...(expectedSeq === undefined ? {} : { expectedSeq }),
  })
  if (outcome.kind === 'appended') {
    if (claim?.kind === 'move') hold.phase = claim.to
    return 'written'
  }
  if (isLast) hold.closing = false
  if (outcome.kind === 'stale') return 'stale'
  await fenceFailed(core, hold, 'append')
  throw new HoldEnded(hold.ended ?? 'lost')
}

/** Ends parts and calls that the provider never closed. */
async function closeStream(core: Core, hold: Hold, ledger: Ledger): Promise<NewEvent[]> {
  const { sessionId } = hold
  const { messageId } = ledger
  const closing: NewEvent[] = []
  for (const { index, events } of ledger.openParts()) {
    await core.live.end(sessionId, messageId, index)
    closing.push(...events)
  }
  for (const { callId, index, state, providerExecuted } of ledger.openCalls()) {
    if (state !== 'streaming' && !providerExecuted) continue
    await core.live.end(sessionId, messageId, index)
    const error: StepError =
      state === 'streaming'
        ? { code: 'TOOL_INPUT', message: 'the arguments were never completed' }
        : { code: 'OUTCOME_UNKNOWN', message: 'the provider gave no result' }
    closing.push(event('tool.failed', { messageId, callId, error }))
    ledger.mark(callId, 'settled')
  }
  return closing
}

interface Settling {
  settlement: Settlement
  /** Events that still stand out, before the terminal. */
  closing: NewEvent[]
  finish: string
  usage: Usage
  /** Interactions that nobody has decided. */
  open: Asked[]
  /** Calls that ran and whose outcome could not be stored. */
  unkept: readonly string[]
  ledger: Ledger
  attemptNumber: number
}

/** What can be carried out: all that is to be written is there. */
type Carried = Omit<Settling, 'settlement'> & { settlement: Exclude<Settlement, { kind: 'ToolInfraFailed' }> }

/** A write that the database or the door refuses for good; anything else goes on its way. */
function onlyRefused(thrown: unknown): AppendRefusedError {
  if (thrown instanceof AppendRefusedError) return thrown
  throw thrown
}

/** Ends a step of which something could not be stored, by its rows: they may lack what the ledger has counted as there. */
async function failByRows(core: Core, hold: Hold, messageId: string, cause: Error): Promise<StepResult> {
  const { sessionId, executionId } = hold
  core.log.error({ err: cause, sessionId, executionId }, 'what a step did could not be stored')
  const error: StepError = { code: 'OUTCOME_UNKNOWN', message: 'what the step did could not be stored' }
  const ran: StepError = { code: 'OUTCOME_UNKNOWN', message: 'its outcome could not be stored' }
  const neverRan: StepError = { code: 'NOT_STARTED', message: 'its step failed before it was started' }
  const outcome = await endOpen(core, hold, {
    ending: {
      tool: ({ started }: OpenTool) => (started ? ran : neverRan),
      compaction: error,
      step: { failed: error, continues: false, messageId },
    },
    after: [],
    phase: hold.phase,
    claim: { kind: 'move', to: 'SAFE' },
  })
  if (outcome.kind === 'appended') {
    hold.phase = 'SAFE'
    return { kind: 'settled', continues: false, failed: error.code }
  }
  await fenceFailed(core, hold, 'append')
  throw new HoldEnded(hold.ended ?? 'lost')
}

/** Waits for the tools, classifies once, and carries the outcome out; decides again when a decision came in between. */
async function settleStep(
  core: Core,
  hold: Hold,
  tools: StepTools,
  evidence: (open: Asked[]) => Settling,
  messageId: string,
): Promise<StepResult> {
  for (let look = 0; look < decideAgainMax; look++) {
    const { seq, open } = await tools.settled()
    const { settlement, ...rest } = evidence(open)
    if (settlement.kind === 'ToolInfraFailed') return failByRows(core, hold, messageId, settlement.cause)
    // Whatever else went wrong: what people are asked is looked at no more, so there is nothing to decide on but the rows.
    const unkept = tools.isAsking() ? tools.infraFailure() : null
    if (unkept !== null) return failByRows(core, hold, messageId, unkept)
    const expectedSeq = tools.isAsking() ? seq : undefined
    try {
      const result = await carryOut(core, hold, messageId, { settlement, ...rest }, expectedSeq)
      if (result.kind !== 'stale') return result
    } catch (thrown) {
      return failByRows(core, hold, messageId, onlyRefused(thrown))
    }
    // Callers that come without end rest now and then (turns.ts): one of these looks falls into that.
    await pause(backoffMs(look))
  }
  throw new Error(`the step ${messageId} could not be settled: the session moved ${decideAgainMax} times`)
}

/** The flat list of effects that follows from the classification. */
async function carryOut(
  core: Core,
  hold: Hold,
  messageId: string,
  { settlement, closing, finish, usage, open, unkept, ledger, attemptNumber }: Carried,
  expectedSeq: number | undefined,
): Promise<StepResult> {
  const write = (events: NewEvent[], claim: ClaimMove) =>
    append(core, hold, [...closing, ...events], claim, expectedSeq)
  // No step ends before its tools, whatever it fails with: what came of these is not known, and they are never run again (STEP-21).
  const notStored: StepError = { code: 'OUTCOME_UNKNOWN', message: 'its outcome could not be stored' }
  const lost = unkept.map((callId) => event('tool.failed', { messageId, callId, error: notStored }))
  // A step that fails leaves nobody to be asked and no tool that could still run.
  const notAsked: StepError = { code: 'NOT_STARTED', message: 'its step failed before anybody decided' }
  const unasked = [
    ...cancelInteractions(open),
    ...open.map(({ callId }) => event('tool.failed', { messageId, callId, error: notAsked })),
  ]
  const fail = async (error: StepError): Promise<StepResult> => {
    const failed = event('step.failed', { messageId, error, usage, continues: false })
    const written = await write([...lost, ...unasked, failed], { kind: 'move', to: 'SAFE' })
    return written === 'stale' ? { kind: 'stale' } : { kind: 'settled', continues: false, failed: error.code }
  }
  switch (settlement.kind) {
    case 'Interrupted':
      throw new HoldEnded('cancelled')
    case 'Clean': {
      if (open.length > 0) {
        const { executionId } = hold
        const settled = event('execution.settled', { executionId, outcome: 'WAITING', retryAt: null })
        return (await write([settled], { kind: 'remove' })) === 'stale' ? { kind: 'stale' } : { kind: 'waiting' }
      }
      const { continues } = settlement
      const ended = event('step.ended', { messageId, finish, usage, continues })
      const written = await write([ended], { kind: 'move', to: continues ? 'CONTINUE' : 'SAFE' })
      return written === 'stale' ? { kind: 'stale' } : { kind: 'settled', continues, failed: null }
    }
    case 'StepFailed':
      return fail(settlement.error)
    case 'ProviderFailed': {
      const { failure } = settlement
      const { sessionId, executionId } = hold
      core.log.warn({ err: failure, sessionId, executionId, attempt: attemptNumber }, 'a provider request failed')
      const error: StepError = { code: failure.code, message: failure.message }
      const next = attemptNumber + 1
      if (!failure.retryable || next > attemptsMax) return fail(error)
      const delayMs = retryDelayMs(next, failure.retryAfterMs)
      const now = await reading(hold, () => databaseNow(core.db))
      const retryAt = new Date(now.getTime() + delayMs).toISOString()
      const notice = event('step.retry_scheduled', { messageId, attempt: next, retryAt, error })
      const toContinue: ClaimMove = { kind: 'move', to: 'CONTINUE' }
      const hasOutput = ledger.hasOutput()
      // What was shown is kept: the message fails with its text, and a new one goes on from it (RETRY-07).
      const keepOutput = hasOutput
        ? [
            ...lost,
            ...unasked,
            event('step.failed', { messageId, error, usage, continues: true }),
            event('synthetic.appended', { messageId: newMessageId(), text: 'continue', hidden: false }),
          ]
        : []
      if ((await write([notice, ...keepOutput], toContinue)) === 'stale') return { kind: 'stale' }
      core.metrics.retries.inc()
      return {
        kind: 'retry',
        retry: { attempt: next, messageId: hasOutput ? null : messageId, prepared: null },
        delayMs,
        failed: failure.code,
      }
    }
  }
}
