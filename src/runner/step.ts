// One step, read downward (design section 6). The order of effects is load-bearing, so it all stands here:
//
//   prepare → [promotions, step.started, claim to UNKNOWN] → request → every event to the ledger, each call dispatched as it completes
//   → the stream's real end → tools settled → classified once → terminal and the claim's move, or a notice and another attempt

import { asError } from '../errors.ts'
import { event, type JsonValue, type NewEvent, noUsage, type StepError } from '../events.ts'
import type { ClaimMove } from '../event-log.ts'
import { databaseNow } from '../db.ts'
import { newMessageId } from '../ids.ts'
import type { Core } from './core.ts'
import type { PendingInput, Work } from './eligible.ts'
import type { Promoted } from './history.ts'
import { type Hold, HoldEnded } from './hold.ts'
import { type CallRequest, createLedger, type Ledger } from './ledger.ts'
import { attempt } from './models/attempt.ts'
import { ProviderFailure } from './models/failure.ts'
import { type Prepared, prepare, readPromoted } from './prepare.ts'
import { attemptsMax, retryDelayMs } from './retry.ts'
import { classify, type Settlement } from './settlement.ts'
import { failsAt, guardedFrom, repetition } from './tools/loop-guard.ts'
import { runTool } from './tools/run-tool.ts'

/** A retry that is due: which attempt, and the message to go on with (null: output was kept, a new message begins). */
export interface Retry {
  attempt: number
  messageId: string | null
}

export type StepResult =
  /** The step has its terminal; the claim is SAFE, or CONTINUE if another step is owed. */
  | { kind: 'settled'; continues: boolean; failed: boolean }
  /** The notice is durable, the claim is CONTINUE; wait, then run again. */
  | { kind: 'retry'; retry: Retry; delayMs: number }
  /** Preparation failed for good: step and execution ended in one append. */
  | { kind: 'finished' }
  /** Preparation failed for now: given back with a time. */
  | { kind: 'released' }
  /** The session moved before the step began: look again. */
  | { kind: 'stale' }
  /** The hold ended; `ignoring` are the calls whose tools still run in spite of their signal. */
  | { kind: 'stopped'; ignoring: ReadonlySet<string> }

/** How long a session rests whose next step could not be prepared for now. */
export const preparationRestMs = 10_000

const stopped: StepResult = { kind: 'stopped', ignoring: new Set() }

/** Finds out why a fence failed and ends the hold: cancelled, or else lost. */
export async function fenceFailed(core: Core, hold: Hold, what: string): Promise<void> {
  core.metrics.refusedStaleWrites.inc({ what })
  await core.leases.examine(hold).catch(() => {})
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
): Promise<StepResult> {
  const { sessionId, executionId } = hold
  const messageId = retry?.messageId ?? newMessageId()
  const isSameMessage = retry?.messageId != null

  // Everything is prepared before the claim moves to UNKNOWN: a death until then leaves nothing to wonder about.
  let promoted: Promoted[]
  let preparation: Awaited<ReturnType<typeof prepare>>
  try {
    promoted = await readPromoted(core, sessionId, isSameMessage ? [] : promote)
    preparation = await prepare(core, sessionId, work, promoted)
  } catch (thrown) {
    if (hold.signal.aborted) return stopped
    core.log.warn({ err: asError(thrown), sessionId, executionId }, 'a step could not be prepared for now')
    return release(core, hold, work)
  }
  const started = isSameMessage
    ? []
    : [...promotionsOf(promoted), event('step.started', { messageId, model: work.model, executionId })]
  if (!preparation.ok) return failPreparation(core, hold, work, messageId, started, preparation.error)

  const begun = await core.eventLog.append({
    sessionId,
    events: started,
    fence: hold.fence(isSameMessage ? [hold.phase, 'UNKNOWN'] : [hold.phase]),
    claim: { kind: 'move', to: 'UNKNOWN', messageId },
    ...(isSameMessage ? {} : { expectedSeq: work.seq }),
  })
  if (begun.kind === 'stale') return { kind: 'stale' }
  if (begun.kind !== 'appended') {
    await fenceFailed(core, hold, 'step')
    return stopped
  }
  hold.phase = 'UNKNOWN'
  return attemptStep(core, hold, preparation.prepared, createLedger(messageId), retry?.attempt ?? 1)
}

async function failPreparation(
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
  const retryAt = new Date((await databaseNow(core.db)).getTime() + preparationRestMs).toISOString()
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

/** One provider request and all that follows from it. */
async function attemptStep(
  core: Core,
  hold: Hold,
  prepared: Prepared,
  ledger: Ledger,
  attemptNumber: number,
): Promise<StepResult> {
  const { sessionId, executionId } = hold
  const { messageId } = ledger
  const running = new Map<string, Promise<void>>()
  const calls = [...prepared.calls]
  let toolInfraFailure: Error | null = null
  let stepError: StepError | null = null
  let providerFailure: ProviderFailure | null = null

  /** Every write of the attempt: refused as soon as the claim is not ours in phase UNKNOWN. */
  async function write(events: NewEvent[], claim?: ClaimMove): Promise<void> {
    const fence = hold.fence(['UNKNOWN'])
    const outcome = await core.eventLog.append({ sessionId, events, fence, ...(claim ? { claim } : {}) })
    if (outcome.kind === 'appended') {
      if (claim?.kind === 'move') hold.phase = claim.to
      return
    }
    await fenceFailed(core, hold, 'append')
    throw new HoldEnded(hold.ended ?? 'lost')
  }

  const failCall = (callId: string, error: StepError) => event('tool.failed', { messageId, callId, error })

  function dispatch(call: CallRequest, input: unknown): void {
    // The append before this was fenced; what is left is the time since then, judged by our own count (CLAIM-15).
    if (hold.signal.aborted || !core.leases.isFresh(hold)) return
    const { callId, name } = call
    ledger.mark(callId, 'running')
    const tool = core.tools.get(name)!
    const task = runTool({
      tool,
      input,
      sessionId,
      messageId,
      callId,
      timeoutMs: tool.timeoutMs ?? core.config.toolTimeoutMs,
      signal: hold.signal,
      clock: core.clock,
      progress: (progress) => core.live.progress(sessionId, { messageId, callId, progress }),
    }).then(async (outcome) => {
      if (hold.signal.aborted) return
      try {
        const settled =
          outcome.kind === 'succeeded'
            ? event('tool.succeeded', { messageId, callId, output: outcome.output })
            : failCall(callId, outcome.error)
        await write([settled])
        ledger.mark(callId, 'settled')
      } catch (thrown) {
        if (!(thrown instanceof HoldEnded)) toolInfraFailure ??= asError(thrown)
      }
    })
    running.set(callId, task.finally(() => running.delete(callId)))
  }

  /** A complete call: its fate is committed before anything of it happens (TOOL-02). */
  async function takeCall(call: CallRequest, begins: NewEvent | null): Promise<void> {
    const { callId, index, name, providerExecuted, state } = call
    await core.live.end(sessionId, messageId, index)
    const before = begins === null ? [] : [begins]
    const input = parseInput(call.input)
    const called = (toolInput: JsonValue) =>
      event('tool.called', {
        messageId,
        index,
        callId,
        name,
        toolInput,
        ...(providerExecuted ? { providerExecuted } : {}),
        ...(state === undefined ? {} : { state }),
      })
    const refuse = async (events: NewEvent[], error: StepError) => {
      await write([...before, ...events, failCall(callId, error)])
      ledger.mark(callId, 'settled')
    }
    if (providerExecuted) {
      await write([...before, called(input ?? {})])
      ledger.mark(callId, 'called')
      return
    }
    if (input === null) {
      calls.push({ name, input: null })
      return refuse([], { code: 'TOOL_INPUT', message: 'the arguments are not a JSON object' })
    }
    const count = repetition(calls, { name, input })
    calls.push({ name, input })
    const tool = core.tools.get(name)
    if (tool === undefined) {
      const known = [...core.tools.keys()].join(', ')
      return refuse([called(input)], { code: 'UNKNOWN_TOOL', message: `there is no tool "${name}"; there are: ${known}` })
    }
    if (prepared.isLastStep) {
      const message = `not run: the activity has reached its limit of ${core.config.stepLimit} steps`
      return refuse([called(input)], { code: 'STEP_LIMIT', message })
    }
    const checked = tool.validate(input)
    if (!checked.ok) return refuse([], { code: 'TOOL_INPUT', message: `${checked.field}: ${checked.message}` })
    if (count >= guardedFrom) {
      const message = `not run: the same call was made ${count} times in a row; do something else`
      if (count >= failsAt) stepError = { code: 'LOOP_GUARD', message: `the model made the same call of ${name} ${count} times in a row` }
      return refuse([called(input)], { code: 'LOOP_GUARD', message })
    }
    await write([...before, called(input), event('tool.started', { messageId, callId })])
    ledger.mark(callId, 'called')
    dispatch(call, checked.value)
  }

  // The request. Its events are written one after the other; tools run beside it from the moment their call is durable.
  try {
    if (!core.leases.isFresh(hold)) throw new HoldEnded('lost')
    core.metrics.providerAttempts.inc()
    const stream = attempt({
      model: prepared.model,
      prompt: prepared.prompt,
      tools: prepared.tools,
      toolChoice: prepared.isLastStep ? 'none' : 'auto',
      signal: hold.signal,
      idleMs: core.config.idleMs,
      clock: core.clock,
    })
    for await (const from of stream) {
      const move = ledger.take(from)
      if (move.kind === 'begin') {
        await write([move.event])
        core.live.begin({ sessionId, messageId, index: move.index, kind: move.part, callId: move.callId }, executionId)
        core.live.add(sessionId, messageId, move.index, move.text)
      } else if (move.kind === 'text') core.live.add(sessionId, messageId, move.index, move.text)
      else if (move.kind === 'end') {
        await core.live.end(sessionId, messageId, move.index)
        await write(move.events)
      } else if (move.kind === 'call') await takeCall(move.call, move.begins)
      else if (move.kind === 'result') await write([move.event])
    }
  } catch (thrown) {
    if (thrown instanceof ProviderFailure) providerFailure = thrown
    else if (!hold.signal.aborted && !(thrown instanceof HoldEnded)) toolInfraFailure ??= asError(thrown)
  }
  if (hold.signal.aborted) return stopTools(core, running)

  // The stream has been read to its real end. What it left open ends now, with what was received.
  const closing: NewEvent[] = []
  for (const { index, events } of ledger.openParts()) {
    await core.live.end(sessionId, messageId, index)
    closing.push(...events)
  }
  for (const call of ledger.openCalls()) {
    if (call.state !== 'streaming' && !call.providerExecuted) continue
    await core.live.end(sessionId, messageId, call.index)
    const error: StepError =
      call.state === 'streaming'
        ? { code: 'TOOL_INPUT', message: 'the arguments were never completed' }
        : { code: 'OUTCOME_UNKNOWN', message: 'the provider gave no result' }
    closing.push(failCall(call.callId, error))
    ledger.mark(call.callId, 'settled')
  }
  const isStreamed = providerFailure === null && toolInfraFailure === null
  if (isStreamed) closing.push(event('step.streamed', { messageId }))
  try {
    if (running.size > 0 && closing.length > 0) await write(closing.splice(0))
  } catch (thrown) {
    if (!(thrown instanceof HoldEnded)) toolInfraFailure ??= asError(thrown)
  }
  await untilAborted(Promise.all(running.values()), hold.signal)
  if (hold.signal.aborted) return stopTools(core, running)

  if (ledger.finish === 'content-filter')
    stepError ??= { code: 'PROVIDER_CONTENT', message: 'the provider stopped the answer for its content' }
  const settlement = classify({
    interrupted: false,
    providerFailure,
    heldOverflow: null,
    toolInfraFailure,
    stepError,
    hasLocalCalls: ledger.hasLocalCalls(),
    isLastStep: prepared.isLastStep,
  })
  try {
    return await settle(core, hold, ledger, closing, settlement, attemptNumber, write)
  } catch (thrown) {
    if (thrown instanceof HoldEnded) return stopTools(core, running)
    throw thrown
  }
}

/** The flat list of effects that follows from the classification. */
async function settle(
  core: Core,
  hold: Hold,
  ledger: Ledger,
  closing: NewEvent[],
  settlement: Settlement,
  attemptNumber: number,
  write: (events: NewEvent[], claim?: ClaimMove) => Promise<void>,
): Promise<StepResult> {
  const { messageId, usage } = ledger
  const fail = async (error: StepError, more: NewEvent[] = []): Promise<StepResult> => {
    const failed = event('step.failed', { messageId, error, usage, continues: false })
    await write([...closing, ...more, failed], { kind: 'move', to: 'SAFE' })
    return { kind: 'settled', continues: false, failed: true }
  }
  switch (settlement.kind) {
    case 'Interrupted':
      throw new HoldEnded('cancelled')
    case 'Clean': {
      const { continues } = settlement
      const ended = event('step.ended', { messageId, finish: ledger.finish ?? 'other', usage, continues })
      await write([...closing, ended], { kind: 'move', to: continues ? 'CONTINUE' : 'SAFE' })
      return { kind: 'settled', continues, failed: false }
    }
    case 'StepFailed':
      return fail(settlement.error)
    case 'ToolInfraFailed': {
      core.log.error(
        { err: settlement.cause, sessionId: hold.sessionId, executionId: hold.executionId },
        'what a step did could not be stored',
      )
      // The tools ran; what came of them could not be kept. They are never run again.
      const error: StepError = { code: 'OUTCOME_UNKNOWN', message: 'its outcome could not be stored' }
      const lost = ledger.openCalls().map(({ callId }) => event('tool.failed', { messageId, callId, error }))
      return fail({ code: 'OUTCOME_UNKNOWN', message: 'what the step did could not be stored' }, lost)
    }
    case 'ProviderFailed': {
      const { failure } = settlement
      const error: StepError = { code: failure.code, message: failure.message }
      const next = attemptNumber + 1
      if (!failure.retryable || next > attemptsMax) return fail(error)
      const delayMs = retryDelayMs(next, failure.retryAfterMs)
      const retryAt = new Date((await databaseNow(core.db)).getTime() + delayMs).toISOString()
      const notice = event('step.retry_scheduled', { messageId, attempt: next, retryAt, error })
      const toContinue: ClaimMove = { kind: 'move', to: 'CONTINUE' }
      core.metrics.retries.inc()
      if (!ledger.hasOutput()) {
        await write([notice], toContinue)
        return { kind: 'retry', retry: { attempt: next, messageId }, delayMs }
      }
      // What was shown is kept: the message fails with its text, and a new one goes on from it (RETRY-07).
      const failed = event('step.failed', { messageId, error, usage, continues: true })
      const goOn = event('synthetic.appended', { messageId: newMessageId(), text: 'continue', hidden: false })
      await write([...closing, notice, failed, goOn], toContinue)
      return { kind: 'retry', retry: { attempt: next, messageId: null }, delayMs }
    }
  }
}

/** The tools have been told by their signal; they get the grace to finish, then they are left to themselves. */
async function stopTools(core: Core, running: ReadonlyMap<string, Promise<void>>): Promise<StepResult> {
  if (running.size > 0) {
    let cancel = () => {}
    const grace = new Promise<void>((resolve) => {
      cancel = core.clock.setTimeout(resolve, core.config.interruptGraceMs)
    })
    await Promise.race([Promise.all(running.values()), grace])
    cancel()
  }
  return { kind: 'stopped', ignoring: new Set(running.keys()) }
}

/** Waits for the work or the signal, whichever comes first. Leaves no listener behind. */
async function untilAborted(work: Promise<unknown>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  let stop = () => {}
  const aborted = new Promise<void>((resolve) => {
    stop = () => resolve()
    signal.addEventListener('abort', stop, { once: true })
  })
  await Promise.race([work, aborted])
  signal.removeEventListener('abort', stop)
}

/** The arguments as a JSON object, or null: what is anything else was malformed. */
function parseInput(text: string): JsonValue {
  try {
    const input = JSON.parse(text) as JsonValue
    return typeof input === 'object' && input !== null && !Array.isArray(input) ? input : null
  } catch {
    return null
  }
}
