// Compaction: older history is replaced, for the model, by a summary and a recent tail; the transcript stays (design sections 1 and 6).
// Manual (an input of its own), automatic before a step, and once within a step whose request overflowed before any output.

import type { LanguageModelV4Prompt } from '@ai-sdk/provider'
import { AppendRefusedError, asError } from '../errors.ts'
import { type ExecutionPhase, event, type NewEvent, noUsage, type StepError, type Usage } from '../events.ts'
import { newMessageId } from '../ids.ts'
import type { Span } from '../tracing.ts'
import type { Core } from './core.ts'
import { messageTokens } from './estimate.ts'
import { type History, type HistoryMessage, readHistory } from './history.ts'
import { type Hold, HoldEnded, reading } from './hold.ts'
import { attempt } from './models/attempt.ts'
import { ProviderFailure } from './models/failure.ts'
import type { ResolvedModel } from './models/registry.ts'
import { inCompactionSpan, tracedRequest } from './spans.ts'
import { requestWaitMs } from './waits.ts'

/** This many automatic compactions without a clean step between, then the step fails instead (COMP-13). */
export const compactionsMax = 3
/** The recent tail may take this share of the model's context; a fixed size where that is not known. */
const tailShare = 0.25
const tailTokensDefault = 8000
/** Characters of one tool input or output in the text that is summarised. */
const quoteMax = 2000

export interface Plan {
  /** The messages to summarise, oldest first. */
  older: HistoryMessage[]
  /** Messages from this seq on stay. */
  tailSeq: number
}

/**
 * Splits history into what is summarised and the tail that stays. While a step is due (`isForStep`) the last message always stays, as
 * it is what the model has to answer or to go on from. Null: nothing to summarise.
 */
export function planCompaction(history: History, contextTokens: number | null, isForStep: boolean): Plan | null {
  const messages = history.messages.filter(({ kind, status }) => kind !== 'COMPACTION' && status !== 'RUNNING')
  if (messages.length === 0) return null
  const budget = contextTokens === null ? tailTokensDefault : Math.floor(contextTokens * tailShare)
  let from = messages.length
  for (let tokens = 0; from > 0; from--) {
    tokens += messageTokens(messages[from - 1]!)
    if (tokens > budget) break
  }
  const lastUser = messages.findLastIndex(({ kind }) => kind === 'USER')
  // Everything would fit into the tail: then only the last exchange stays, of a single one what came last, and nothing if it is over.
  if (from === 0) from = lastUser > 0 ? lastUser : isForStep ? messages.length - 1 : messages.length
  // What the model has to answer stays; a prompt that steps have answered since may go into the summary with the older of them.
  if (isForStep) from = Math.min(from, lastUser === messages.length - 1 ? lastUser : messages.length - 1)
  if (from === 0) return null
  const tail = messages[from]
  return { older: messages.slice(0, from), tailSeq: tail?.seq ?? messages.at(-1)!.seq + 1 }
}

const quote = (value: unknown) => {
  const text = typeof value === 'string' ? value : JSON.stringify(value ?? null)
  return text.length > quoteMax ? `${text.slice(0, quoteMax)} [...]` : text
}

function transcribe(message: HistoryMessage): string[] {
  if (message.kind === 'USER' || (message.kind === 'SYNTHETIC' && !message.hidden)) {
    const files = (message.attachments as { name: string }[]).map(({ name }) => ` [attachment: ${name}]`)
    return [`User: ${message.text ?? ''}${files.join('')}`]
  }
  if (message.kind !== 'ASSISTANT') return []
  const texts = message.parts
    .filter(({ kind, text }) => kind === 'TEXT' && text !== '')
    .map(({ text }) => `Assistant: ${text}`)
  const calls = message.toolCalls.map(
    ({ name, input, output, errorCode, errorMessage }) =>
      `Tool ${name} ${quote(input)} gave ${errorCode === null ? quote(output) : `${errorCode}: ${quote(errorMessage)}`}`,
  )
  return [...texts, ...calls]
}

const task = `Below is the transcript of a conversation between a user and an assistant. Write the summary that will stand in its place.
The assistant goes on from your summary alone, so keep what it needs, under these headings where there is something to say:
Goal; Constraints and preferences; Done so far, with results; Decisions and why; Open questions; Next steps; Names, paths, numbers and ids that matter.
Write facts only, no greeting and no comment on the task. Do not answer the conversation.`

/** The request for a summary. Lines are quoted, so that nothing in the transcript reads as addressed to the summariser. */
export function summaryPrompt(history: History, plan: Plan): LanguageModelV4Prompt {
  const before = history.summary === null ? [] : [`Summary of what came before: ${history.summary}`]
  const lines = [...before, ...plan.older.flatMap(transcribe)].flatMap((entry) => entry.split('\n'))
  return [
    { role: 'system', content: task },
    { role: 'user', content: [{ type: 'text', text: lines.map((line) => `> ${line}`).join('\n') }] },
  ]
}

interface Summary {
  text: string
  usage: Usage
}

/** Asks the model for the summary: one request, no tools. Throws ProviderFailure, or the hold's end. */
async function summarise(
  core: Core,
  hold: Hold,
  messageId: string,
  model: ResolvedModel,
  prompt: LanguageModelV4Prompt,
): Promise<Summary> {
  await core.leases.mustStart(hold)
  core.metrics.providerAttempts.inc()
  let text = ''
  let usage = noUsage
  const { signal } = hold
  const { idleMs, requestMs } = core.config
  const stream = attempt({ model, prompt, tools: [], toolChoice: 'none', signal, idleMs, requestMs, clock: core.clock })
  const asked = core.waits.begin(hold, 'request', requestWaitMs(core.config))
  try {
    for await (const from of tracedRequest(hold, messageId, model.id, stream)) {
      if (from.type === 'text-delta') text += from.text
      if (from.type === 'finish') usage = from.usage
    }
  } finally {
    asked()
  }
  return { text: text.trim(), usage }
}

export type Compacted = 'completed' | 'failed' | 'stale'

/** Every write of a compaction, under the fence of the phase it runs in. */
async function write(
  core: Core,
  hold: Hold,
  events: NewEvent[],
  { expectedSeq, moveTo }: { expectedSeq?: number; moveTo?: ExecutionPhase } = {},
): Promise<boolean> {
  const outcome = await core.eventLog.append({
    sessionId: hold.sessionId,
    events,
    patience: hold.signal,
    fence: hold.fence([hold.phase]),
    ...(expectedSeq === undefined ? {} : { expectedSeq }),
    ...(moveTo === undefined ? {} : { claim: { kind: 'move', to: moveTo } }),
  })
  if (outcome.kind === 'appended') {
    if (moveTo !== undefined) hold.phase = moveTo
    return true
  }
  if (outcome.kind === 'stale') return false
  core.metrics.refusedStaleWrites.inc({ what: 'compaction' })
  // As where a step's fence fails (step.ts).
  await reading(hold, () => core.leases.examine(hold)).catch(() => {})
  if (hold.ended === null) hold.end('lost')
  throw new HoldEnded(hold.ended ?? 'lost')
}

export interface CompactOptions {
  /** The input of a manual compaction, promoted with its start. */
  request?: { id: string }
  /** What a boundary was decided on. */
  expectedSeq?: number
  /** A step is due: its last user message stays. */
  isForStep: boolean
  /** The claim's phase from the start of the compaction on: what is owed if this process dies in it. Left out within a step. */
  moveTo?: ExecutionPhase
}

/** Runs one compaction. A failure is a fact of the session, not of the drain: history stays as it was. Throws HoldEnded. */
export function compact(
  core: Core,
  hold: Hold,
  model: ResolvedModel | undefined,
  options: CompactOptions,
): Promise<Compacted> {
  const { request } = options
  const messageId = request?.id ?? newMessageId()
  return inCompactionSpan(hold, messageId, request === undefined, (span) =>
    runCompaction(core, hold, model, messageId, options, span),
  )
}

async function runCompaction(
  core: Core,
  hold: Hold,
  model: ResolvedModel | undefined,
  messageId: string,
  { request, expectedSeq, isForStep, moveTo }: CompactOptions,
  span: Span,
): Promise<Compacted> {
  const { sessionId } = hold
  const history = await reading(hold, () => readHistory(core.db, sessionId))
  const plan = planCompaction(history, model?.contextTokens ?? null, isForStep)
  const failed = (error: StepError, usage = noUsage) => event('compaction.failed', { messageId, error, usage })
  const started: NewEvent[] = [event('compaction.started', { messageId, automatic: request === undefined })]
  if (request !== undefined) {
    const payload = { messageId, inputKind: 'COMPACTION' as const, text: '', attachments: [], hidden: false }
    started.unshift(event('prompt.promoted', payload))
  }
  const begin = { ...(expectedSeq === undefined ? {} : { expectedSeq }), ...(moveTo === undefined ? {} : { moveTo }) }
  if (model === undefined || plan === null) {
    const error: StepError =
      model === undefined
        ? { code: 'UNKNOWN_MODEL', message: 'the model of the session is not configured here' }
        : { code: 'ABORTED', message: 'there is nothing to compact' }
    if (!(await write(core, hold, [...started, failed(error)], begin))) return 'stale'
    span.fail(error.code)
    return 'failed'
  }
  if (!(await write(core, hold, started, begin))) return 'stale'
  hold.begun()
  let end: NewEvent
  let problem: StepError | null = null
  let told = noUsage
  try {
    const { text, usage } = await summarise(core, hold, messageId, model, summaryPrompt(history, plan))
    told = usage
    if (text === '') problem = { code: 'PROVIDER_INVALID', message: 'the model gave no summary' }
    end =
      problem !== null
        ? failed(problem, usage)
        : event('compaction.ended', { messageId, summary: text, usage, tailSeq: plan.tailSeq })
  } catch (thrown) {
    if (hold.signal.aborted) throw new HoldEnded(hold.ended ?? 'lost')
    if (!(thrown instanceof ProviderFailure)) throw asError(thrown)
    problem = { code: thrown.code, message: thrown.message }
    end = failed(problem)
  }
  try {
    await write(core, hold, [end])
  } catch (thrown) {
    if (!(thrown instanceof AppendRefusedError)) throw thrown
    core.log.error({ err: thrown, sessionId, executionId: hold.executionId }, 'a summary could not be stored')
    problem = { code: 'OUTCOME_UNKNOWN', message: 'the summary could not be stored' }
    await write(core, hold, [failed(problem, told)])
  }
  if (problem === null) return 'completed'
  span.fail(problem.code)
  return 'failed'
}
