// The local tool calls of one step: refused, asked about, or dispatched as soon as their call is durable, beside each other (design
// section 6); decided ones taken up while the step is open, here or after a restart (section 7). What a call's fate is stands in the log
// before anything of it happens.

import { databaseNow } from '../db.ts'
import { AppendRefusedError, asError } from '../errors.ts'
import { event, type JsonValue, type NewEvent, type StepError } from '../events.ts'
import { findInexact, inexactText } from '../exact-numbers.ts'
import { newInteractionId } from '../ids.ts'
import { active } from '../tracing.ts'
import { type Asked, decidedError, readAsked } from './asked.ts'
import { checked } from './checked.ts'
import type { Core } from './core.ts'
import { type Hold, HoldEnded, reading } from './hold.ts'
import type { CallRequest } from './ledger.ts'
import { jsonLevelsMax, levelsOf, tooDeepRule } from './plain-json.ts'
import { startToolSpan } from './spans.ts'
import { failsAt, guardedFrom, repetition } from './tools/loop-guard.ts'
import { boundOutput } from './tools/output.ts'
import { errorText, runTool, type ToolOutcome } from './tools/run-tool.ts'
import { waitSlackMs } from './waits.ts'

/**
 * A write of this step under its fence; rejects with HoldEnded when the claim is not ours any more. `dispatches`: an effect follows, so
 * a resumed step's claim moves from READY to UNKNOWN in this very commit.
 */
export type StepWrite = (events: NewEvent[], options?: { dispatches?: boolean }) => Promise<void>

export interface StepTools {
  /** Takes a complete call: its fate is committed before it is dispatched (TOOL-02). */
  take(call: CallRequest, begins: NewEvent | null): Promise<void>
  /** Calls that run here now, and calls that wait for a person. */
  running(): number
  isAsking(): boolean
  /** Says that the step asks people, as a resumed one does from the start. */
  resumeAsking(): void
  /**
   * Waits until nothing runs and every decision so far is carried out. `open` are the interactions that nobody has decided as of `seq`:
   * what the caller then appends with expectedSeq is decided on all there is.
   */
  settled(): Promise<{ seq: number; open: Asked[] }>
  /** Waits for the tools to follow their signal, at most the grace; returns the calls whose tools did not. */
  stop(): Promise<ReadonlySet<string>>
  /** Keeping an outcome failed for good. */
  infraFailure(): Error | null
  /** The calls that it failed for: they ran, and no outcome of theirs is in the log. */
  unkept(): readonly string[]
  /** A rule of ours ends the step. */
  stepError(): StepError | null
}

export interface StepToolsOptions {
  messageId: string
  /** The last step before the limit: no tool is run. */
  isLastStep: boolean
  /** The activity's calls so far. */
  calls: readonly { name: string; input: JsonValue }[]
  write: StepWrite
  mark: (callId: string, state: 'called' | 'running' | 'settled') => void
}

export function createStepTools(core: Core, hold: Hold, options: StepToolsOptions): StepTools {
  const { sessionId } = hold
  const { messageId, write, mark } = options
  const calls = [...options.calls]
  const running = new Map<string, Promise<void>>()
  const spans = new Map<string, ReturnType<typeof startToolSpan>>()
  const within = active()
  let asks = false
  let infraFailure: Error | null = null
  const unkept: string[] = []
  let stepError: StepError | null = null

  const failCall = (callId: string, { code, message }: StepError) =>
    event('tool.failed', { messageId, callId, error: { code, message: errorText(message) } })

  async function dispatch(callId: string, name: string, input: unknown): Promise<void> {
    // The append before this was fenced; what is left is the time since then, judged by our own count (CLAIM-15).
    if (!(await core.leases.mayStart(hold))) return
    mark(callId, 'running')
    const tool = core.tools.get(name)!
    const span = startToolSpan(hold, { messageId, callId, name, within })
    spans.set(callId, span)
    const run = {
      tool,
      input,
      sessionId,
      messageId,
      callId,
      timeoutMs: tool.timeoutMs ?? core.config.toolTimeoutMs,
      signal: hold.signal,
      clock: core.clock,
      progress: (progress: JsonValue) => core.live.progress(sessionId, { messageId, callId, progress }),
      unshown: (reason: string) =>
        core.log.debug({ sessionId, callId, tool: name, reason }, 'progress of a tool was not shown'),
      late: (outcome: ToolOutcome) => {
        const fields = { sessionId, executionId: hold.executionId, callId, tool: name, outcome: outcome.kind }
        const err = outcome.kind === 'failed' ? outcome.thrown : undefined
        core.log.warn({ ...fields, err }, 'a tool ended after its deadline: what it gave is dropped')
      },
    }
    // Never rejects: a call that nobody sees fail would keep its step open for ever.
    const task = (async () => {
      try {
        const outcome = await hold.during(
          'tool',
          run.timeoutMs + waitSlackMs,
          span.within(() => runTool(run)),
        )
        span.endAs(outcome.kind === 'failed' ? outcome.error.code : null)
        if (hold.signal.aborted) return
        const { kind } = outcome
        if (kind === 'failed') {
          const fields = { sessionId, executionId: hold.executionId, callId, tool: name, code: outcome.error.code }
          core.log.warn({ ...fields, err: outcome.thrown }, 'a tool call failed')
        }
        await write([
          kind === 'succeeded'
            ? event('tool.succeeded', { messageId, callId, output: outcome.output })
            : failCall(callId, outcome.error),
        ])
        mark(callId, 'settled')
      } catch (thrown) {
        if (thrown instanceof HoldEnded) return
        infraFailure ??= asError(thrown)
        unkept.push(callId)
      }
    })()
    running.set(
      callId,
      task.finally(() => running.delete(callId)),
    )
  }

  /**
   * Must a person be asked first? `input` is what the tool would run with, so that the rule judges a default or a coerced value as well. A
   * rule that throws asks: the careful answer.
   */
  async function needsPerson(name: string, input: unknown): Promise<boolean> {
    const tool = core.tools.get(name)!
    const { needsApproval } = tool
    if (tool.asks === 'question') return true
    if (needsApproval === undefined || needsApproval === false) return false
    try {
      if (typeof needsApproval === 'function' && !needsApproval(input)) return false
    } catch (thrown) {
      core.log.warn({ err: asError(thrown), sessionId, tool: name }, 'needsApproval failed; the user is asked')
    }
    const where = { sessionId, toolName: name, remember: true, state: 'APPROVED', definition: tool.definition }
    const remembered = await reading(hold, () => core.db.interaction.count({ where }))
    return remembered === 0
  }

  async function requested(call: CallRequest, input: JsonValue): Promise<NewEvent> {
    const { callId, name } = call
    const tool = core.tools.get(name)!
    const isQuestion = tool.asks === 'question'
    const question = input as { question?: unknown; options?: unknown }
    const expiresMs = tool.approvalExpiresMs ?? core.config.approvalExpiresMs
    const expiresAt =
      expiresMs === undefined
        ? null
        : new Date((await reading(hold, () => databaseNow(core.db))).getTime() + expiresMs).toISOString()
    return event('interaction.requested', {
      interactionId: newInteractionId(),
      kind: isQuestion ? 'QUESTION' : 'APPROVAL',
      messageId,
      callId,
      name,
      toolInput: input,
      prompt: isQuestion ? String(question.question ?? '') : `Run the tool ${name}?`,
      options: isQuestion && Array.isArray(question.options) ? question.options.map(String) : [],
      expiresAt,
      definition: tool.definition,
    })
  }

  async function take(call: CallRequest, begins: NewEvent | null): Promise<void> {
    const { callId, index, name, providerExecuted, state } = call
    await core.live.end(sessionId, messageId, index)
    const before = begins === null ? [] : [begins]
    const parsed = parseInput(call.input, providerExecuted)
    const input = 'value' in parsed ? parsed.value : null
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
      mark(callId, 'settled')
    }
    if (providerExecuted) {
      await write([...before, called(input ?? {})])
      mark(callId, 'called')
      return
    }
    if ('rule' in parsed) {
      calls.push({ name, input: null })
      return refuse([], { code: 'TOOL_INPUT', message: `the arguments ${parsed.rule}` })
    }
    const count = repetition(calls, { name, input })
    calls.push({ name, input })
    if (count >= guardedFrom) {
      const times = `the same call was made ${count} times in a row`
      if (count >= failsAt) stepError = { code: 'LOOP_GUARD', message: `${name}: ${times}` }
      return refuse([called(input)], { code: 'LOOP_GUARD', message: `not run: ${times}; do something else` })
    }
    const tool = core.tools.get(name)
    if (tool === undefined) {
      const message = `there is no tool "${name}"; there are: ${[...core.tools.keys()].join(', ')}`
      return refuse([called(input)], { code: 'UNKNOWN_TOOL', message })
    }
    if (options.isLastStep) {
      const message = `not run: the activity has reached its limit of ${core.config.stepLimit} steps`
      return refuse([called(input)], { code: 'STEP_LIMIT', message })
    }
    const fits = checked(core, sessionId, tool, input)
    if (!fits.ok) return refuse([], { code: 'TOOL_INPUT', message: fits.rule })
    if (await needsPerson(name, fits.value)) {
      // Said before the commit: a decision may come before this process goes on.
      asks = true
      watch()
      await write([...before, called(input), await requested(call, input)])
      mark(callId, 'called')
      return
    }
    await write([...before, called(input), event('tool.started', { messageId, callId })])
    mark(callId, 'called')
    await dispatch(callId, name, fits.value)
  }

  /** Carries one decision out: tool.started right before dispatch, or the tool's end. That, not the decision, disarms it. */
  async function carryOut(asked: Asked): Promise<void> {
    const { callId, toolName } = asked
    if (asked.state === 'ANSWERED') {
      const output = boundOutput(asked.answer)
      const events = [
        event('tool.started', { messageId, callId }),
        event('tool.succeeded', { messageId, callId, output }),
      ]
      await write(events, { dispatches: true })
      return mark(callId, 'settled')
    }
    const end = async (error: StepError) => {
      await write([failCall(callId, error)])
      mark(callId, 'settled')
    }
    if (asked.state !== 'APPROVED') return end(decidedError(asked))
    const tool = core.tools.get(toolName)
    if (tool === undefined)
      return end({ code: 'UNKNOWN_TOOL', message: `the tool "${toolName}" is not there any more` })
    const input = asked.editedInput ?? asked.toolInput
    const fits = checked(core, sessionId, tool, input)
    if (!fits.ok) return end({ code: 'TOOL_INPUT', message: fits.rule })
    const edited = asked.editedInput === null ? {} : { toolInput: asked.editedInput }
    await write([event('tool.started', { messageId, callId, ...edited })], { dispatches: true })
    await dispatch(callId, toolName, fits.value)
  }

  // One look at a time: whoever looks next sees what the one before has carried out, so that a decision counts once.
  let looking: Promise<unknown> = Promise.resolve()
  function carryOutDecided(): Promise<{ seq: number; asked: Asked[]; carried: number }> {
    const look = looking.then(async () => {
      if (hold.signal.aborted) throw new HoldEnded(hold.ended ?? 'lost')
      const { seq, asked } = await reading(hold, () => readAsked(core.db, sessionId, messageId))
      const decided = asked.filter(({ state }) => state !== 'OPEN')
      for (const one of decided) {
        await carryOut(one).catch((thrown) => {
          // Refused for good, it would be refused again: the step ends without it.
          if (!(thrown instanceof AppendRefusedError)) throw thrown
          infraFailure ??= thrown
        })
      }
      return { seq, asked, carried: decided.length }
    })
    looking = look.catch(() => {})
    return look
  }

  let stopWatching = () => {}
  let isWatching = false
  /** While the stream is open: what is decided meanwhile is carried out at once (ASK-19). */
  function watch() {
    if (isWatching) return
    isWatching = true
    let isDue = false
    stopWatching = core.doorbell.listen(sessionId, () => {
      if (isDue) return
      isDue = true
      void looking.then(() => {
        isDue = false
        // What fails here is decided still, and is looked at again when the stream has ended.
        if (isWatching) carryOutDecided().catch(() => {})
      })
    })
    hold.signal.addEventListener('abort', unwatch, { once: true })
  }
  function unwatch() {
    isWatching = false
    stopWatching()
  }

  async function settled(): Promise<{ seq: number; open: Asked[] }> {
    unwatch()
    let rung = true
    let wake = () => {}
    const stopListening = core.doorbell.listen(sessionId, () => {
      rung = true
      wake()
    })
    hold.signal.addEventListener('abort', wakeUp)
    function wakeUp() {
      wake()
    }
    try {
      for (;;) {
        if (hold.signal.aborted) throw new HoldEnded(hold.ended ?? 'lost')
        rung = false
        const looks = asks && infraFailure === null
        const { seq, asked, carried } = looks ? await carryOutDecided() : { seq: 0, asked: [], carried: 0 }
        if (running.size === 0 && carried === 0) return { seq, open: asked }
        if (rung || carried > 0) continue
        const ended = Promise.allSettled(running.values())
        await new Promise<void>((resolve) => {
          wake = resolve
          void ended.then(() => resolve())
          if (rung || hold.signal.aborted) resolve()
        })
      }
    } finally {
      stopListening()
      hold.signal.removeEventListener('abort', wakeUp)
    }
  }

  async function stop(): Promise<ReadonlySet<string>> {
    unwatch()
    await looking
    if (running.size > 0) {
      let cancel = () => {}
      const grace = new Promise<void>((resolve) => {
        cancel = core.clock.setTimeout(resolve, core.config.interruptGraceMs)
      })
      const stopped = core.waits.begin(hold, 'stop', core.config.interruptGraceMs + waitSlackMs)
      await Promise.race([Promise.all(running.values()), grace])
      stopped()
      cancel()
    }
    // What ignores its signal may never end.
    for (const span of spans.values()) span.endAs(null)
    return new Set(running.keys())
  }

  return {
    take,
    running: () => running.size,
    isAsking: () => asks,
    resumeAsking() {
      asks = true
    },
    settled,
    stop,
    infraFailure: () => infraFailure,
    unkept: () => unkept,
    stepError: () => stepError,
  }
}

/** The arguments as a JSON object, or the rule that they break: whatever is anything else was malformed. */
function parseInput(text: string, hasRun: boolean): { value: JsonValue } | { rule: string } {
  if (levelsOf(text) > jsonLevelsMax) return { rule: tooDeepRule }
  const rule = 'must be a JSON object'
  try {
    const value = JSON.parse(text) as JsonValue
    // Another number would be shown for approval, and run, than the model has written. What has run already is told as well as it can be.
    const inexact = hasRun ? null : findInexact(text)
    if (inexact !== null) return { rule: `break a rule at ${inexactText(inexact)}` }
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? { value } : { rule }
  } catch {
    return { rule }
  }
}
