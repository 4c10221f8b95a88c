// reduce(view, item): the view of a session after one more item of its stream (design section 10: "a client that applies them to the
// snapshot at seq n holds the same view as a reload"). Pure, imports nothing but types, changes nothing that it was given: for browsers
// and servers alike. Takes items as the server makes them (`typename`, `at` a Date) and as GraphQL delivers them (`__typename`, ISO text).

import type {
  AssistantView,
  CompactionView,
  ErrorView,
  InputView,
  InteractionView,
  MessageView,
  PartView,
  SessionView,
  TextView,
  ToolCallView,
  UsageView,
} from './view.ts'

/** Any item of a session's stream. Its fields are those of the GraphQL type that it names. */
export interface Item {
  typename?: string
  __typename?: string
  sessionId: string
  seq?: number | null
  at: Date | string
}

// biome-ignore lint/suspicious/noExplicitAny: the fields follow from the typename, which two different families of types spell differently
type Fields = any

const noUsage: UsageView = { inputTokens: 0, outputTokens: 0, reasoningTokens: 0, cachedInputTokens: 0 }

/** The view of a session of which nothing has been applied yet. */
export const emptyView = (sessionId: string): SessionView => ({
  id: sessionId,
  title: null,
  instructions: null,
  model: '',
  seq: 0,
  createdAt: '',
  updatedAt: '',
  archivedAt: null,
  parkedReason: null,
  usage: noUsage,
  approvedTools: [],
  messages: [],
  inputs: [],
  interactions: [],
  recoveries: [],
  quarantine: [],
  executionId: null,
})

/**
 * The view with the item applied. An event at or below `view.seq` and a delta that is there already change nothing, so a stream may
 * overlap what the view holds. Throws RangeError for an event that skips one: the view would be wrong from then on.
 */
export function reduce(view: SessionView, item: Item): SessionView {
  const fields: Fields = item
  const name = item.__typename ?? item.typename
  if (item.seq == null) return reduceLive(view, name, fields)
  if (item.seq <= view.seq) return view
  if (item.seq !== view.seq + 1)
    throw new RangeError(`event ${item.seq} cannot be applied to a view of seq ${view.seq}`)
  const at = iso(item.at)
  return { ...reduceLogged(view, name, fields, at), seq: item.seq, updatedAt: at }
}

// ---------------------------------------------------------------- changing a part of the view

const iso = (time: Date | string) => (typeof time === 'string' ? new Date(time) : time).toISOString()
const isoOrNull = (time: Date | string | null | undefined) => (time == null ? null : iso(time))

const changed = <T>(list: T[], matches: (entry: T) => boolean, change: (entry: T) => T): T[] =>
  list.map((entry) => (matches(entry) ? change(entry) : entry))

const withMessage = (view: SessionView, message: MessageView): SessionView => ({
  ...view,
  messages: [...view.messages, message],
})

function onStep(view: SessionView, messageId: string, change: (step: AssistantView) => AssistantView): SessionView {
  const matches = (message: MessageView) => message.id === messageId && message.type === 'AssistantMessage'
  return { ...view, messages: changed(view.messages, matches, (message) => change(message as AssistantView)) }
}

function onText(view: SessionView, { messageId, index }: Fields, change: (part: TextView) => TextView): SessionView {
  const matches = (part: PartView) => part.index === index && part.type !== 'ToolCall'
  return onStep(view, messageId, (step) => ({
    ...step,
    parts: changed(step.parts, matches, (part) => change(part as TextView)),
  }))
}

function onCall(
  view: SessionView,
  { messageId, callId }: Fields,
  change: (call: ToolCallView) => ToolCallView,
): SessionView {
  const matches = (part: PartView) => part.type === 'ToolCall' && part.callId === callId
  return onStep(view, messageId, (step) => ({
    ...step,
    parts: changed(step.parts, matches, (part) => change(part as ToolCallView)),
  }))
}

const withPart = (view: SessionView, messageId: string, part: PartView) =>
  onStep(view, messageId, ({ retry: _over, ...step }) => ({
    ...step,
    parts: [...step.parts, part].sort((a, b) => a.index - b.index),
  }))

const onInput = (view: SessionView, id: string, change: Partial<InputView>): SessionView => ({
  ...view,
  inputs: changed(
    view.inputs,
    (input) => input.id === id,
    (input) => ({ ...input, ...change }),
  ),
})

const pendingInputs = (
  view: SessionView,
  change: Partial<InputView>,
  matches = (_input: InputView) => true,
): SessionView => ({
  ...view,
  inputs: changed(
    view.inputs,
    (input) => input.state === 'PENDING' && matches(input),
    (input) => ({ ...input, ...change }),
  ),
})

const settledRecoveries = (view: SessionView, continuation?: string): SessionView => ({
  ...view,
  recoveries: changed(
    view.recoveries,
    (recovery) => continuation === undefined || recovery.continuationMessageId === continuation,
    (recovery) => ({ ...recovery, wakePending: false }),
  ),
})

const usageOf = (usage: UsageView): UsageView => ({
  inputTokens: usage.inputTokens,
  outputTokens: usage.outputTokens,
  reasoningTokens: usage.reasoningTokens,
  cachedInputTokens: usage.cachedInputTokens,
})

const errorOf = (error: ErrorView): ErrorView => ({ code: error.code, message: error.message })

/** A sum that a number cannot keep exactly stays where exactness ends, as the server's does. */
const sum = (a: number, b: number) => Math.min(a + b, Number.MAX_SAFE_INTEGER)

const withUsage = (view: SessionView, usage: UsageView): SessionView => ({
  ...view,
  usage: {
    inputTokens: sum(view.usage.inputTokens, usage.inputTokens),
    outputTokens: sum(view.usage.outputTokens, usage.outputTokens),
    reasoningTokens: sum(view.usage.reasoningTokens, usage.reasoningTokens),
    cachedInputTokens: sum(view.usage.cachedInputTokens, usage.cachedInputTokens),
  },
})

const settledStep = (
  view: SessionView,
  event: Fields,
  settledAt: string,
  change: Partial<AssistantView>,
): SessionView =>
  withUsage(
    onStep(view, event.messageId, ({ retry: _over, ...step }) => ({
      ...step,
      ...change,
      usage: usageOf(event.usage),
      settledAt,
    })),
    event.usage,
  )

const settledCall = (view: SessionView, event: Fields, settledAt: string, change: Partial<ToolCallView>): SessionView =>
  onCall(view, event, ({ inputText: _text, progress: _progress, ...call }) => ({ ...call, ...change, settledAt }))

const settledCompaction = (view: SessionView, event: Fields, change: Partial<CompactionView>): SessionView =>
  withUsage(
    {
      ...view,
      messages: changed(
        view.messages,
        (message) => message.id === event.messageId,
        (message) => ({ ...(message as CompactionView), ...change }),
      ),
    },
    event.usage,
  )

// ---------------------------------------------------------------- live items

/** Puts a delta where it belongs. One that begins beyond the text waits for nothing: the text comes whole with the part's end. */
const written = (text: string, { offset, text: delta }: Fields) =>
  offset > text.length || offset + delta.length <= text.length ? text : text.slice(0, offset) + delta

function reduceLive(view: SessionView, name: string | undefined, item: Fields): SessionView {
  switch (name) {
    case 'TextDelta':
    case 'ReasoningDelta':
      return onText(view, item, (part) => (part.complete ? part : { ...part, text: written(part.text, item) }))
    case 'ToolInputDelta':
      return onCall(view, item, (call) =>
        call.status === 'STREAMING' ? { ...call, inputText: written(call.inputText ?? '', item) } : call,
      )
    case 'ToolProgress':
      return onCall(view, item, (call) => (call.settledAt === null ? { ...call, progress: item.progress } : call))
    default:
      return view
  }
}

// ---------------------------------------------------------------- events of the log

const disarmingCodes = new Set(['PROVIDER_AUTH', 'PROVIDER_QUOTA'])

function reduceLogged(view: SessionView, name: string | undefined, event: Fields, at: string): SessionView {
  switch (name) {
    case 'SessionCreated': {
      const { title, instructions, model } = event
      return { ...emptyView(view.id), title: title ?? null, instructions: instructions ?? null, model, createdAt: at }
    }
    case 'SessionUpdated': {
      const { title, instructions, model, archived } = event
      const archivedAt = archived ? (isoOrNull(event.archivedAt) ?? view.archivedAt ?? at) : null
      return { ...view, title: title ?? null, instructions: instructions ?? null, model, archivedAt }
    }
    case 'SessionParked':
      return { ...settledRecoveries(pendingInputs(view, { wakePending: false })), parkedReason: event.reason }
    case 'SessionResumeRequested':
      return { ...pendingInputs(view, { wakePending: true }), parkedReason: null }
    case 'ExecutionStarted':
      return { ...pendingInputs(view, { wakePending: true }), executionId: event.executionId }
    case 'ExecutionSettled':
      return { ...view, executionId: view.executionId === event.executionId ? null : view.executionId }
    case 'InterruptRequested': {
      const continuations = pendingInputs(
        view,
        { state: 'WITHDRAWN', wakePending: false },
        (input) => input.kind === 'CONTINUATION',
      )
      return settledRecoveries(pendingInputs(continuations, { wakePending: false }))
    }
    case 'QuarantineOpened': {
      const { quarantineId, executionId, quarantineKind, reason } = event
      const entry = { id: quarantineId, kind: quarantineKind, executionId, reason, quarantinedAt: at, resolvedAt: null }
      return { ...view, quarantine: [...view.quarantine, entry] }
    }
    case 'QuarantineResolved':
      return {
        ...view,
        quarantine: changed(
          view.quarantine,
          (entry) => entry.id === event.quarantineId,
          (entry) => ({ ...entry, resolvedAt: at }),
        ),
      }
    case 'StepRecovered':
      return recovered(view, event, at)
    default:
      return reducePrompt(view, name, event, at)
  }
}

function recovered(view: SessionView, event: Fields, at: string): SessionView {
  const { executionId, assistantMessageId, continuationMessageId, phase } = event
  const continuation: InputView = {
    id: continuationMessageId,
    kind: 'CONTINUATION',
    text: 'continue',
    attachments: [],
    delivery: 'QUEUE',
    state: 'PENDING',
    wakePending: true,
    admittedSeq: event.seq,
    promotedSeq: null,
    createdAt: at,
  }
  const recovery = {
    executionId,
    phase,
    assistantMessageId: assistantMessageId ?? null,
    continuationMessageId,
    wakePending: true,
    createdAt: at,
  }
  return {
    ...view,
    inputs: [...view.inputs, continuation],
    recoveries: [...view.recoveries, recovery],
    executionId: view.executionId === executionId ? null : view.executionId,
  }
}

function reducePrompt(view: SessionView, name: string | undefined, event: Fields, at: string): SessionView {
  switch (name) {
    case 'PromptAdmitted': {
      const { messageId, inputKind, text, attachments, delivery, requestExecution, seq } = event
      const input: InputView = {
        id: messageId,
        kind: inputKind,
        text,
        attachments,
        delivery,
        state: 'PENDING',
        wakePending: requestExecution,
        admittedSeq: seq,
        promotedSeq: null,
        createdAt: at,
      }
      const admitted = { ...view, inputs: [...view.inputs, input] }
      // A person acted: a prompt takes its session out of the archive, and if armed out of the parking lot.
      if (inputKind !== 'PROMPT') return admitted
      return { ...admitted, archivedAt: null, parkedReason: requestExecution ? null : view.parkedReason }
    }
    case 'PromptExecutionRequested':
      return onInput(view, event.messageId, { wakePending: true })
    case 'PromptDeliveryChanged':
      return onInput(view, event.messageId, { delivery: event.delivery })
    case 'PromptWithdrawn':
      return settledRecoveries(
        onInput(view, event.messageId, { state: 'WITHDRAWN', wakePending: false }),
        event.messageId,
      )
    case 'PromptPromoted': {
      const { messageId: id, inputKind, text, attachments, hidden, seq } = event
      const promoted = onInput(view, id, { state: 'PROMOTED', promotedSeq: seq, wakePending: false })
      if (inputKind === 'COMPACTION') return promoted
      if (inputKind === 'PROMPT')
        return withMessage(promoted, { type: 'UserMessage', id, seq, createdAt: at, text, attachments })
      return withMessage(settledRecoveries(promoted, id), {
        type: 'SyntheticMessage',
        id,
        seq,
        createdAt: at,
        text,
        hidden,
      })
    }
    case 'SyntheticAppended': {
      const { messageId: id, text, hidden, seq } = event
      return withMessage(view, { type: 'SyntheticMessage', id, seq, createdAt: at, text, hidden })
    }
    case 'CompactionStarted': {
      const started = { id: event.messageId, seq: event.seq, createdAt: at, summary: null, error: null }
      return withMessage(view, { type: 'CompactionMessage', compactionStatus: 'RUNNING', ...started })
    }
    case 'CompactionEnded':
      return settledCompaction(view, event, { compactionStatus: 'COMPLETED', summary: event.summary })
    case 'CompactionFailed':
      return settledCompaction(view, event, { compactionStatus: 'FAILED', error: errorOf(event.error) })
    default:
      return reduceStep(view, name, event, at)
  }
}

function reduceStep(view: SessionView, name: string | undefined, event: Fields, at: string): SessionView {
  switch (name) {
    case 'StepStarted': {
      const open = { status: 'RUNNING' as const, finish: null, error: null, parts: [], usage: null, settledAt: null }
      const { messageId: id, model, seq } = event
      return withMessage(view, { type: 'AssistantMessage', id, seq, createdAt: at, model, ...open })
    }
    case 'StepRetryScheduled': {
      const { attempt, retryAt, error } = event
      return onStep(view, event.messageId, (step) => ({
        ...step,
        retry: { attempt, retryAt: isoOrNull(retryAt), error: errorOf(error) },
      }))
    }
    case 'StepStreamed': {
      const { finish, usage } = event
      // Early logs do not say, and an early server does not show it.
      return finish ? onStep(view, event.messageId, (step) => ({ ...step, finish, usage: usageOf(usage) })) : view
    }
    case 'StepEnded':
      return settledStep(view, event, at, { status: 'ENDED', finish: event.finish })
    case 'StepFailed': {
      const failed = settledStep(view, event, at, { status: 'FAILED', error: errorOf(event.error) })
      return !event.continues && disarmingCodes.has(event.error.code)
        ? pendingInputs(failed, { wakePending: false })
        : failed
    }
    case 'StepInterrupted':
      return settledStep(view, event, at, { status: 'INTERRUPTED', error: errorOf(event.error) })
    case 'TextStarted':
    case 'ReasoningStarted': {
      const type = name === 'TextStarted' ? 'TextPart' : 'ReasoningPart'
      return withPart(view, event.messageId, { type, index: event.index, text: '', complete: false })
    }
    case 'TextEnded':
    case 'ReasoningEnded':
      return onText(view, event, (part) => ({ ...part, text: event.text, complete: true }))
    default:
      return reduceTool(view, name, event, at)
  }
}

function reduceTool(view: SessionView, name: string | undefined, event: Fields, at: string): SessionView {
  switch (name) {
    case 'ToolInputStarted': {
      const { index, callId, name: tool } = event
      const open = { input: null, output: null, error: null, startedAt: null, settledAt: null }
      return withPart(view, event.messageId, {
        type: 'ToolCall',
        index,
        callId,
        name: tool,
        status: 'STREAMING',
        ...open,
      })
    }
    case 'ToolCalled':
      return onCall(view, event, ({ inputText: _text, ...call }) => ({
        ...call,
        status: 'RUNNING',
        input: event.toolInput,
      }))
    case 'InteractionRequested': {
      const { interactionId: id, kind, messageId, callId, name: toolName, toolInput, prompt, options } = event
      const interaction: InteractionView = {
        id,
        kind,
        state: 'OPEN',
        messageId,
        callId,
        toolName,
        toolInput,
        prompt,
        options,
        answer: null,
        feedback: null,
        editedInput: null,
        expiresAt: isoOrNull(event.expiresAt),
        createdAt: at,
      }
      const waiting = onCall(view, event, (call) => ({ ...call, status: 'AWAITING_APPROVAL' }))
      return { ...waiting, interactions: [...view.interactions, interaction] }
    }
    case 'InteractionSettled': {
      const { interactionId, state, answer = null, feedback = null, editedInput = null, remember } = event
      const settled = view.interactions.find((interaction) => interaction.id === interactionId)
      const approved =
        settled !== undefined && state === 'APPROVED' && remember && !view.approvedTools.includes(settled.toolName)
      return {
        ...view,
        interactions: changed(
          view.interactions,
          (interaction) => interaction === settled,
          (interaction) => ({ ...interaction, state, answer, feedback, editedInput }),
        ),
        approvedTools: approved ? [...view.approvedTools, settled.toolName] : view.approvedTools,
      }
    }
    case 'ToolStarted': {
      // What a person edited is what runs. GraphQL leaves it out of this event, as the decision has it.
      const edited = view.interactions.find(
        (interaction) =>
          interaction.messageId === event.messageId &&
          interaction.callId === event.callId &&
          interaction.state === 'APPROVED',
      )?.editedInput
      const input = event.toolInput ?? edited ?? undefined
      return onCall(view, event, (call) => ({
        ...call,
        status: 'RUNNING',
        startedAt: at,
        ...(input === undefined ? {} : { input }),
      }))
    }
    case 'ToolSucceeded':
      return settledCall(view, event, at, { status: 'COMPLETED', output: event.output })
    case 'ToolFailed':
      return settledCall(view, event, at, { status: 'FAILED', error: errorOf(event.error) })
    default:
      // Types of a newer server: they change nothing that this view shows.
      return view
  }
}
