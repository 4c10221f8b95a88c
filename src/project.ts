// project(event): what one fact changes in the tables. Pure: no reads, no clock, no ids, so that a replay gives the same rows
// (design section 2, idea 2). Live, `seq` and `at` are not known before the commit: the door passes placeholders (fold.ts) which
// the append function replaces; a replay passes the real ones.
//
// Three kinds of change reach a table:
//   insert   a complete row
//   update   one open row by its key. Open: Input PENDING, Message RUNNING, Part not complete, ToolCall not settled, Interaction OPEN,
//            Quarantine not resolved. Anything else refuses the whole append: one terminal each, by construction
//   each     all live rows of the session in one go (arm, disarm, settle)
// and the session's own row is set and added to.

import { type EventPayloads, type NewEvent, noUsage, type StepError, type Usage } from './events.ts'
import { recoveryIdOf } from './ids.ts'
import { tokenCount } from './tokens.ts'

export type Cell = unknown
export type Row = Record<string, Cell>
export type RowTable = 'Input' | 'Message' | 'Part' | 'ToolCall' | 'Interaction' | 'Recovery' | 'Quarantine'

export type Change =
  | { op: 'create'; row: Row }
  | { op: 'session'; set?: Row; add?: Partial<Record<SessionCounter, number>> }
  | { op: 'insert'; table: RowTable; row: Row }
  | { op: 'update'; table: RowTable; key: Row; set: Row }
  | { op: 'each'; table: 'Input' | 'Recovery' | 'Interaction'; where: Row; set: Row }

export type SessionCounter =
  | 'inputTokens'
  | 'outputTokens'
  | 'reasoningTokens'
  | 'cachedInputTokens'
  | 'recoveries'
  | 'compactions'

/** An event in its place: the sequence number and time are the log's on replay, placeholders while it is appended. */
export type PlacedEvent = NewEvent & { sessionId: string; seq: number; at: string }

/** Failures after which the rest would only fail again: they disarm what is pending (design section 5). */
export const disarmingCodes: ReadonlySet<string> = new Set(['PROVIDER_AUTH', 'PROVIDER_QUOTA'])

const armPending: Change = { op: 'each', table: 'Input', where: {}, set: { wakePending: true } }
const disarmPending: Change = { op: 'each', table: 'Input', where: {}, set: { wakePending: false } }

const errorOf = (error: StepError | null) => ({
  errorCode: error?.code ?? null,
  errorMessage: error?.message ?? null,
})

/** Bounded here as well: logs of earlier versions hold counts that no column can keep. */
const usageOf = ({ inputTokens, outputTokens, reasoningTokens, cachedInputTokens }: Usage) => ({
  inputTokens: tokenCount(inputTokens),
  outputTokens: tokenCount(outputTokens),
  reasoningTokens: tokenCount(reasoningTokens),
  cachedInputTokens: tokenCount(cachedInputTokens),
})

const settleStep = (messageId: string, at: string, set: Row): Change => ({
  op: 'update',
  table: 'Message',
  key: { id: messageId },
  set: { ...set, settledAt: at },
})

const message = (event: PlacedEvent, row: Row & { id: string; kind: string }): Change => ({
  op: 'insert',
  table: 'Message',
  row: {
    sessionId: event.sessionId,
    seq: event.seq,
    createdAt: event.at,
    text: null,
    attachments: [],
    hidden: false,
    model: null,
    executionId: null,
    status: null,
    streamed: false,
    attempt: 1,
    finish: null,
    ...errorOf(null),
    inputTokens: null,
    outputTokens: null,
    reasoningTokens: null,
    cachedInputTokens: null,
    settledAt: null,
    automatic: null,
    summary: null,
    tailSeq: null,
    ...row,
  },
})

const part = (
  event: PlacedEvent,
  kind: 'TEXT' | 'REASONING',
  payload: { messageId: string; index: number },
): Change => ({
  op: 'insert',
  table: 'Part',
  row: {
    sessionId: event.sessionId,
    messageId: payload.messageId,
    index: payload.index,
    kind,
    text: '',
    complete: false,
    state: null,
  },
})

const endPart = (payload: EventPayloads['text.ended']): Change => ({
  op: 'update',
  table: 'Part',
  key: { messageId: payload.messageId, index: payload.index },
  set: { text: payload.text, complete: true, ...(payload.state === undefined ? {} : { state: payload.state }) },
})

const input = (event: PlacedEvent, row: Row & { id: string; kind: string; delivery: string }): Change => ({
  op: 'insert',
  table: 'Input',
  row: {
    sessionId: event.sessionId,
    attachments: [],
    requestedDelivery: row.delivery,
    state: 'PENDING',
    admittedSeq: event.seq,
    promotedSeq: null,
    createdAt: event.at,
    ...row,
  },
})

const settleRecovery = (continuationMessageId: string): Change => ({
  op: 'each',
  table: 'Recovery',
  where: { continuationMessageId },
  set: { wakePending: false },
})

const changeInput = (messageId: string, set: Row): Change => ({
  op: 'update',
  table: 'Input',
  key: { id: messageId },
  set,
})

const changeTool = (payload: { messageId: string; callId: string }, set: Row): Change => ({
  op: 'update',
  table: 'ToolCall',
  key: { messageId: payload.messageId, callId: payload.callId },
  set,
})

const disarmInteraction = (payload: { messageId: string; callId: string }): Change => ({
  op: 'each',
  table: 'Interaction',
  where: { messageId: payload.messageId, callId: payload.callId },
  set: { wakePending: false },
})

/** States of a decided interaction that leave something to do: run the tool, or tell the model. */
const decided: ReadonlySet<string> = new Set(['APPROVED', 'DECLINED', 'ANSWERED', 'EXPIRED'])

/** What the event changes, in order (design sections 3 to 9). */
export function project(event: PlacedEvent): Change[] {
  const { at } = event
  switch (event.type) {
    case 'session.created': {
      const { tenant, title, instructions, model } = event.payload
      return [
        {
          op: 'create',
          row: {
            id: event.sessionId,
            tenant,
            title,
            instructions,
            model,
            stepOwed: false,
            retryAt: null,
            recoveries: 0,
            compactions: 0,
            parkedReason: null,
            ...usageOf(noUsage),
            createdAt: at,
            archivedAt: null,
          },
        },
      ]
    }
    case 'session.updated': {
      const { title, instructions, model, archived, archivedAt } = event.payload
      return [{ op: 'session', set: { title, instructions, model, archivedAt: archived ? (archivedAt ?? at) : null } }]
    }
    case 'prompt.admitted': {
      const { messageId, inputKind, text, attachments, delivery, requestExecution } = event.payload
      const row = { id: messageId, kind: inputKind, text, attachments, delivery, wakePending: requestExecution }
      const changes: Change[] = [input(event, { ...row, executionRequested: requestExecution })]
      // A person acted: a prompt leaves the archive, and if armed it unparks and starts the recovery count again (section 4).
      if (inputKind === 'PROMPT') {
        const unpark = requestExecution ? { parkedReason: null, recoveries: 0 } : {}
        changes.push({ op: 'session', set: { archivedAt: null, ...unpark } })
      }
      return changes
    }
    case 'prompt.execution_requested':
      return [changeInput(event.payload.messageId, { wakePending: true, executionRequested: true })]
    case 'prompt.delivery_changed':
      return [changeInput(event.payload.messageId, { delivery: event.payload.delivery })]
    case 'prompt.withdrawn': {
      const { messageId } = event.payload
      // A continuation that is withdrawn takes its recovery with it.
      return [changeInput(messageId, { state: 'WITHDRAWN', wakePending: false }), settleRecovery(messageId)]
    }
    case 'interrupt.requested':
      return [
        {
          op: 'each',
          table: 'Input',
          where: { kind: 'CONTINUATION' },
          set: { state: 'WITHDRAWN', wakePending: false },
        },
        disarmPending,
        { op: 'each', table: 'Recovery', where: {}, set: { wakePending: false } },
        { op: 'each', table: 'Interaction', where: {}, set: { wakePending: false } },
        { op: 'session', set: { stepOwed: false, retryAt: null } },
      ]
    case 'execution.started':
      return [armPending, { op: 'session', set: { retryAt: null } }]
    case 'prompt.promoted': {
      const { messageId, inputKind, text, attachments, hidden } = event.payload
      const promoted = changeInput(messageId, { state: 'PROMOTED', promotedSeq: event.seq, wakePending: false })
      if (inputKind === 'COMPACTION') return [promoted]
      if (inputKind === 'PROMPT')
        return [
          promoted,
          message(event, { id: messageId, kind: 'USER', text, attachments }),
          { op: 'session', set: { stepOwed: true, recoveries: 0 } },
        ]
      // Only the continuation of an unknown outcome asks the model for something (section 9); the others are hidden.
      const asks: Change[] = hidden ? [] : [{ op: 'session', set: { stepOwed: true } }]
      return [
        promoted,
        message(event, { id: messageId, kind: 'SYNTHETIC', text, hidden }),
        settleRecovery(messageId),
        ...asks,
      ]
    }
    case 'step.started': {
      const { messageId, model, executionId } = event.payload
      return [message(event, { id: messageId, kind: 'ASSISTANT', model, executionId, status: 'RUNNING' })]
    }
    case 'step.retry_scheduled': {
      const { messageId, attempt } = event.payload
      return [{ op: 'update', table: 'Message', key: { id: messageId }, set: { attempt } }]
    }
    case 'text.started':
      return [part(event, 'TEXT', event.payload)]
    case 'reasoning.started':
      return [part(event, 'REASONING', event.payload)]
    case 'text.ended':
    case 'reasoning.ended':
      return [endPart(event.payload)]
    case 'tool.input_started': {
      const { messageId, index, callId, name, providerExecuted } = event.payload
      return [
        {
          op: 'insert',
          table: 'ToolCall',
          row: {
            sessionId: event.sessionId,
            messageId,
            callId,
            index,
            name,
            status: 'STREAMING',
            providerExecuted: providerExecuted ?? false,
            input: null,
            output: null,
            ...errorOf(null),
            state: null,
            startedAt: null,
            settledAt: null,
          },
        },
      ]
    }
    case 'tool.called': {
      const { toolInput, state } = event.payload
      return [
        changeTool(event.payload, { status: 'RUNNING', input: toolInput, ...(state === undefined ? {} : { state }) }),
      ]
    }
    case 'interaction.requested': {
      const { interactionId, kind, messageId, callId, name, toolInput, prompt, options, expiresAt } = event.payload
      const definition = event.payload.definition ?? null
      return [
        changeTool(event.payload, { status: 'AWAITING_APPROVAL' }),
        {
          op: 'insert',
          table: 'Interaction',
          row: {
            id: interactionId,
            sessionId: event.sessionId,
            messageId,
            callId,
            kind,
            state: 'OPEN',
            toolName: name,
            toolInput,
            prompt,
            options,
            answer: null,
            feedback: null,
            editedInput: null,
            remember: false,
            stops: false,
            definition,
            wakePending: false,
            expiresAt,
            createdAt: at,
            settledAt: null,
          },
        },
      ]
    }
    case 'interaction.settled': {
      const { interactionId, state, answer, feedback, editedInput, remember } = event.payload
      const stops = event.payload.stops ?? false
      const wakePending = decided.has(state) && !stops
      const set = { state, answer, feedback, editedInput, remember, stops, wakePending, settledAt: at }
      return [{ op: 'update', table: 'Interaction', key: { id: interactionId }, set }]
    }
    case 'tool.started': {
      const { toolInput } = event.payload
      const set = { status: 'RUNNING', startedAt: at, ...(toolInput === undefined ? {} : { input: toolInput }) }
      return [changeTool(event.payload, set), disarmInteraction(event.payload)]
    }
    case 'tool.succeeded':
      return [
        changeTool(event.payload, { status: 'COMPLETED', output: event.payload.output, settledAt: at }),
        disarmInteraction(event.payload),
      ]
    case 'tool.failed':
      return [
        changeTool(event.payload, { status: 'FAILED', ...errorOf(event.payload.error), settledAt: at }),
        disarmInteraction(event.payload),
      ]
    case 'step.streamed': {
      const { messageId, finish, usage } = event.payload
      const kept = usage === undefined ? {} : { finish: finish ?? null, ...usageOf(usage) }
      return [{ op: 'update', table: 'Message', key: { id: messageId }, set: { streamed: true, ...kept } }]
    }
    case 'step.ended': {
      const { messageId, finish, usage, continues } = event.payload
      return [
        settleStep(messageId, at, { status: 'ENDED', finish, ...usageOf(usage) }),
        { op: 'session', set: { stepOwed: continues, recoveries: 0, compactions: 0 }, add: usageOf(usage) },
      ]
    }
    case 'step.failed': {
      const { messageId, error, usage, continues } = event.payload
      const disarm = !continues && disarmingCodes.has(error.code) ? [disarmPending] : []
      return [
        settleStep(messageId, at, { status: 'FAILED', ...errorOf(error), ...usageOf(usage) }),
        { op: 'session', set: { stepOwed: continues }, add: usageOf(usage) },
        ...disarm,
      ]
    }
    case 'step.interrupted': {
      const { messageId, error, usage } = event.payload
      return [
        settleStep(messageId, at, { status: 'INTERRUPTED', ...errorOf(error), ...usageOf(usage) }),
        { op: 'session', set: { stepOwed: false }, add: usageOf(usage) },
      ]
    }
    case 'step.recovered': {
      const { executionId, assistantMessageId, continuationMessageId, phase, handover } = event.payload
      const changes: Change[] = [
        input(event, {
          id: continuationMessageId,
          kind: 'CONTINUATION',
          text: 'continue',
          delivery: 'QUEUE',
          wakePending: true,
          executionRequested: true,
        }),
        {
          op: 'insert',
          table: 'Recovery',
          row: {
            id: recoveryIdOf(executionId),
            sessionId: event.sessionId,
            executionId,
            phase,
            assistantMessageId,
            continuationMessageId,
            wakePending: true,
            error: null,
            createdAt: at,
          },
        },
      ]
      return handover ? changes : [...changes, { op: 'session', add: { recoveries: 1 } }]
    }
    case 'quarantine.opened': {
      const { quarantineId, executionId, quarantineKind, reason } = event.payload
      const row = { id: quarantineId, sessionId: event.sessionId, kind: quarantineKind, executionId, reason }
      return [
        {
          op: 'insert',
          table: 'Quarantine',
          row: { ...row, action: null, quarantinedAt: at, resolvedAt: null },
        },
      ]
    }
    case 'quarantine.resolved': {
      const { quarantineId, action } = event.payload
      return [{ op: 'update', table: 'Quarantine', key: { id: quarantineId }, set: { action, resolvedAt: at } }]
    }
    case 'session.parked':
      // Decided interactions keep their intent: a parked session is passed over by every scan, and a resume takes it up again.
      return [
        disarmPending,
        { op: 'each', table: 'Recovery', where: {}, set: { wakePending: false } },
        { op: 'session', set: { parkedReason: event.payload.reason } },
      ]
    case 'session.resume_requested':
      return [armPending, { op: 'session', set: { parkedReason: null, recoveries: 0, retryAt: null } }]
    case 'synthetic.appended': {
      const { messageId, text, hidden } = event.payload
      return [message(event, { id: messageId, kind: 'SYNTHETIC', text, hidden })]
    }
    case 'compaction.started': {
      const { messageId, automatic } = event.payload
      const started = message(event, { id: messageId, kind: 'COMPACTION', status: 'RUNNING', automatic })
      return automatic ? [started, { op: 'session', add: { compactions: 1 } }] : [started]
    }
    case 'compaction.ended': {
      const { messageId, summary, usage, tailSeq } = event.payload
      return [
        settleStep(messageId, at, { status: 'COMPLETED', summary, tailSeq: tailSeq ?? null, ...usageOf(usage) }),
        { op: 'session', add: usageOf(usage) },
      ]
    }
    case 'compaction.failed': {
      const { messageId, error, usage } = event.payload
      return [
        settleStep(messageId, at, { status: 'FAILED', ...errorOf(error), ...usageOf(usage) }),
        { op: 'session', add: usageOf(usage) },
      ]
    }
    case 'execution.settled':
      return [{ op: 'session', set: { retryAt: event.payload.retryAt } }]
  }
}
