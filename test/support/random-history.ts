// Random histories of a session that the log accepts: which events can follow is tracked here, so that every append is valid, and what
// happens is chosen by numbers, so that fast-check can shrink them.

import { event, type NewEvent, type StepError } from '../../src/events.ts'
import { continuationIdOf, newExecutionId, newInteractionId, newMessageId, newQuarantineId } from '../../src/ids.ts'

type CallState = 'STREAMING' | 'CALLED' | 'AWAITING' | 'DECIDED' | 'RUNNING' | 'SETTLED'

interface Call {
  callId: string
  index: number
  state: CallState
  interaction: { id: string; edited: boolean } | null
}

interface Step {
  messageId: string
  open: Map<number, 'text' | 'reasoning'>
  calls: Call[]
  next: number
  streamed: boolean
}

export interface History {
  /** The events of one append for the choice, or null if it cannot happen now. `dice` varies them. */
  choose(op: Op, dice: number): NewEvent[] | null
  /** Told after each append: times come from the database. */
  appended(at: Date): void
}

export const ops = [
  'admit',
  'admitUnarmed',
  'requestExecution',
  'changeDelivery',
  'withdraw',
  'update',
  'archive',
  'startExecution',
  'promote',
  'synthetic',
  'startText',
  'startReasoning',
  'endPart',
  'streamInput',
  'call',
  'ask',
  'decide',
  'startTool',
  'succeed',
  'fail',
  'retry',
  'streamed',
  'endStep',
  'failStep',
  'interrupt',
  'recover',
  'quarantine',
  'resolveQuarantine',
  'park',
  'resume',
  'compact',
  'endCompaction',
  'failCompaction',
  'settleExecution',
  'requestCompaction',
] as const
export type Op = (typeof ops)[number]

const errorOf = (dice: number): StepError => ({
  code: (['PROVIDER_AUTH', 'PROVIDER_UNAVAILABLE', 'PROVIDER_QUOTA', 'OUTCOME_UNKNOWN'] as const)[dice % 4]!,
  message: `reason ${dice}`,
})
const usageOf = (dice: number) => ({
  inputTokens: dice % 97,
  outputTokens: dice % 89,
  reasoningTokens: dice % 7,
  cachedInputTokens: dice % 5,
})
const words = (dice: number) => `text ${dice} \u{1f600}`

export function randomHistory(prefix: string): History {
  let ids = 0
  const inputId = () => `msg_${prefix}-${++ids}`
  let pending: { id: string; kind: 'PROMPT' | 'CONTINUATION' | 'COMPACTION'; text: string; hidden: boolean }[] = []
  let step: Step | null = null
  let execution: string | null = null
  let compaction: string | null = null
  let quarantine: string | null = null
  let archivedAt: string | null = null
  let archiving = false

  /** Ends what a step has open, as its owner or recovery does before its terminal. */
  function closing(of: Step, dice: number): NewEvent[] {
    const events: NewEvent[] = []
    const { messageId } = of
    for (const [index, kind] of of.open)
      events.push(event(`${kind}.ended`, { messageId, index, text: words(dice + index) }))
    for (const call of of.calls) {
      if (call.state === 'SETTLED') continue
      if (call.state === 'AWAITING')
        events.push(
          event('interaction.settled', {
            interactionId: call.interaction!.id,
            state: 'CANCELLED',
            answer: null,
            feedback: null,
            editedInput: null,
            remember: false,
          }),
        )
      events.push(
        event('tool.failed', { messageId, callId: call.callId, error: { code: 'ABORTED', message: 'stopped' } }),
      )
    }
    return events
  }

  const callIn = (...states: CallState[]) => step?.calls.find((call) => states.includes(call.state))
  const admitted = (kind: 'PROMPT' | 'COMPACTION', dice: number, requestExecution: boolean): NewEvent[] => {
    const messageId = inputId()
    const text = kind === 'PROMPT' ? words(dice) : ''
    pending.push({ id: messageId, kind, text, hidden: false })
    if (kind === 'PROMPT') archivedAt = null
    const attachments = dice % 3 === 0 ? [{ name: 'a', mediaType: 'text/plain', url: 'data:,a' }] : []
    const delivery = dice % 2 ? ('STEER' as const) : ('QUEUE' as const)
    return [event('prompt.admitted', { messageId, inputKind: kind, text, attachments, delivery, requestExecution })]
  }

  const choices: Record<Op, (dice: number) => NewEvent[] | null> = {
    admit: (dice) => admitted('PROMPT', dice, true),
    admitUnarmed: (dice) => admitted('PROMPT', dice, false),
    requestCompaction: (dice) => admitted('COMPACTION', dice, true),
    requestExecution: (dice) => {
      const input = pending[dice % (pending.length || 1)]
      return input ? [event('prompt.execution_requested', { messageId: input.id })] : null
    },
    changeDelivery: (dice) => {
      const input = pending[dice % (pending.length || 1)]
      return input
        ? [event('prompt.delivery_changed', { messageId: input.id, delivery: dice % 2 ? 'STEER' : 'QUEUE' })]
        : null
    },
    withdraw: (dice) => {
      const input = pending[dice % (pending.length || 1)]
      if (!input || input.kind === 'CONTINUATION') return null
      pending = pending.filter((other) => other !== input)
      return [event('prompt.withdrawn', { messageId: input.id })]
    },
    update: (dice) => [
      event('session.updated', {
        title: words(dice),
        instructions: dice % 2 ? 'be brief' : null,
        model: `demo/m${dice % 3}`,
        archived: archivedAt !== null,
        ...(archivedAt === null ? {} : { archivedAt }),
      }),
    ],
    archive: (dice) => {
      if (archivedAt !== null) {
        archivedAt = null
        return [event('session.updated', { title: words(dice), instructions: null, model: 'demo/m', archived: false })]
      }
      archiving = true
      return [event('session.updated', { title: words(dice), instructions: null, model: 'demo/m', archived: true })]
    },
    startExecution: () => {
      if (execution !== null || quarantine !== null) return null
      execution = newExecutionId()
      return [event('execution.started', { executionId: execution })]
    },
    promote: (dice) => {
      if (execution === null || step !== null || compaction !== null || pending.length === 0) return null
      const taken = pending.splice(0, 1 + (dice % 2)).filter((input) => input.kind !== 'COMPACTION')
      if (taken.length === 0) return null
      const messageId = newMessageId()
      step = { messageId, open: new Map(), calls: [], next: 0, streamed: false }
      return [
        ...taken.map((input) =>
          event('prompt.promoted', {
            messageId: input.id,
            inputKind: input.kind,
            text: input.text,
            attachments: [],
            hidden: input.hidden,
          }),
        ),
        event('step.started', { messageId, model: 'demo/echo', executionId: execution }),
      ]
    },
    synthetic: (dice) => [
      event('synthetic.appended', { messageId: newMessageId(), text: words(dice), hidden: dice % 2 === 0 }),
    ],
    startText: () => startPart('text'),
    startReasoning: () => startPart('reasoning'),
    endPart: (dice) => {
      const first = step?.open.entries().next()
      if (!step || first === undefined || first.done) return null
      const [index, kind] = first.value
      step.open.delete(index)
      const state = dice % 2 ? { state: { signature: 's' } } : {}
      return [event(`${kind}.ended`, { messageId: step.messageId, index, text: words(dice), ...state })]
    },
    streamInput: (dice) => {
      if (!step || step.streamed) return null
      const call: Call = { callId: `call_${++ids}`, index: step.next++, state: 'STREAMING', interaction: null }
      step.calls.push(call)
      const { callId, index } = call
      return [event('tool.input_started', { messageId: step.messageId, index, callId, name: `tool${dice % 3}` })]
    },
    call: (dice) => {
      const call = callIn('STREAMING')
      if (!step || !call) return null
      call.state = 'CALLED'
      const { callId, index } = call
      return [event('tool.called', { messageId: step.messageId, index, callId, name: 'tool', toolInput: { dice } })]
    },
    ask: (dice) => {
      const call = callIn('CALLED')
      if (!step || !call) return null
      call.state = 'AWAITING'
      call.interaction = { id: newInteractionId(), edited: false }
      return [
        event('interaction.requested', {
          interactionId: call.interaction.id,
          kind: dice % 2 ? 'APPROVAL' : 'QUESTION',
          messageId: step.messageId,
          callId: call.callId,
          name: `tool${dice % 3}`,
          toolInput: { dice },
          prompt: words(dice),
          options: dice % 2 ? ['yes', 'no'] : [],
          expiresAt: dice % 3 ? null : '2030-01-01T00:00:00.000Z',
        }),
      ]
    },
    decide: (dice) => {
      const call = callIn('AWAITING')
      if (!call) return null
      const state = (['APPROVED', 'DECLINED', 'ANSWERED', 'DISMISSED', 'EXPIRED'] as const)[dice % 5]!
      call.state = 'DECIDED'
      call.interaction!.edited = state === 'APPROVED' && dice % 2 === 0
      return [
        event('interaction.settled', {
          interactionId: call.interaction!.id,
          state,
          answer: state === 'ANSWERED' ? { said: dice } : null,
          feedback: state === 'DECLINED' ? words(dice) : null,
          editedInput: call.interaction!.edited ? { edited: 'by hand' } : null,
          remember: state === 'APPROVED' && dice % 3 === 0,
        }),
      ]
    },
    startTool: () => {
      const call = callIn('CALLED', 'DECIDED')
      if (!step || !call) return null
      call.state = 'RUNNING'
      const edited = call.interaction?.edited ? { toolInput: { edited: 'by hand' } } : {}
      return [event('tool.started', { messageId: step.messageId, callId: call.callId, ...edited })]
    },
    succeed: (dice) => {
      const call = callIn('RUNNING')
      if (!step || !call) return null
      call.state = 'SETTLED'
      return [
        event('tool.succeeded', {
          messageId: step.messageId,
          callId: call.callId,
          // Never null: a tool that gives nothing has an empty text as its output.
          output: dice % 2 ? words(dice) : { dice, list: [null, words(dice)] },
        }),
      ]
    },
    fail: (dice) => {
      const call = callIn('RUNNING', 'DECIDED', 'STREAMING')
      if (!step || !call) return null
      call.state = 'SETTLED'
      const error = { code: 'TOOL_ERROR' as const, message: `no ${dice}` }
      return [event('tool.failed', { messageId: step.messageId, callId: call.callId, error })]
    },
    retry: (dice) => {
      if (!step || step.next > 0) return null
      const retry = { attempt: 2 + (dice % 3), retryAt: '2030-01-01T00:00:00.000Z', error: errorOf(1) }
      return [event('step.retry_scheduled', { messageId: step.messageId, ...retry })]
    },
    streamed: (dice) => {
      if (!step || step.streamed || step.open.size > 0) return null
      step.streamed = true
      // Early logs do not tell them.
      const told = dice % 4 ? { finish: 'tool-calls', usage: usageOf(dice) } : {}
      return [event('step.streamed', { messageId: step.messageId, ...told })]
    },
    endStep: (dice) => {
      if (!step || step.open.size > 0 || callIn('STREAMING', 'CALLED', 'AWAITING', 'DECIDED', 'RUNNING')) return null
      const ended = { messageId: step.messageId, finish: 'stop', usage: usageOf(dice), continues: dice % 2 === 0 }
      step = null
      return [event('step.ended', ended)]
    },
    failStep: (dice) => {
      if (!step) return null
      const events = closing(step, dice)
      const failed = {
        messageId: step.messageId,
        error: errorOf(dice),
        usage: usageOf(dice),
        continues: dice % 3 === 0,
      }
      step = null
      return [...events, event('step.failed', failed)]
    },
    interrupt: (dice) => {
      const events: NewEvent[] = [event('interrupt.requested', { interruptedExecutionId: execution })]
      pending = pending.filter((input) => input.kind !== 'CONTINUATION')
      if (step) {
        const error = { code: 'ABORTED' as const, message: 'interrupted' }
        events.push(
          ...closing(step, dice),
          event('step.interrupted', { messageId: step.messageId, error, usage: usageOf(dice) }),
        )
      }
      if (compaction) events.push(...choices.failCompaction(dice)!)
      if (execution)
        events.push(event('execution.settled', { executionId: execution, outcome: 'INTERRUPTED', retryAt: null }))
      step = execution = null
      return events
    },
    recover: (dice) => {
      if (execution === null) return null
      const events: NewEvent[] = []
      if (step) events.push(...choices.failStep(1)!)
      if (compaction) events.push(...choices.failCompaction(dice)!)
      const phase = (['READY', 'UNKNOWN', 'CONTINUE'] as const)[dice % 3]!
      const continuationMessageId = continuationIdOf(execution)
      pending.push({ id: continuationMessageId, kind: 'CONTINUATION', text: 'continue', hidden: phase !== 'UNKNOWN' })
      const cut = {
        executionId: execution,
        assistantMessageId: null,
        continuationMessageId,
        phase,
        handover: dice % 2 === 0,
      }
      execution = null
      return [...events, event('step.recovered', cut)]
    },
    quarantine: (dice) => {
      if (execution === null || quarantine !== null) return null
      quarantine = newQuarantineId()
      const quarantineKind = dice % 2 ? ('EXECUTION' as const) : ('RECOVERY' as const)
      return [
        event('quarantine.opened', {
          quarantineId: quarantine,
          executionId: execution,
          quarantineKind,
          reason: words(dice),
        }),
      ]
    },
    resolveQuarantine: (dice) => {
      if (quarantine === null) return null
      const quarantineId = quarantine
      quarantine = null
      return [event('quarantine.resolved', { quarantineId, action: dice % 2 ? 'RETRY' : 'DISCARD' })]
    },
    park: (dice) => [event('session.parked', { reason: words(dice) })],
    resume: () => [event('session.resume_requested', {})],
    compact: (dice) => {
      if (execution === null || step !== null || compaction !== null) return null
      const requested = pending.findIndex((input) => input.kind === 'COMPACTION')
      if (requested >= 0) {
        const [input] = pending.splice(requested, 1)
        compaction = input!.id
        const promoted = {
          messageId: compaction,
          inputKind: 'COMPACTION' as const,
          text: '',
          attachments: [],
          hidden: false,
        }
        return [
          event('prompt.promoted', promoted),
          event('compaction.started', { messageId: compaction, automatic: false }),
        ]
      }
      if (dice % 2) return null
      compaction = newMessageId()
      return [event('compaction.started', { messageId: compaction, automatic: true })]
    },
    endCompaction: (dice) => {
      if (compaction === null) return null
      const messageId = compaction
      compaction = null
      return [event('compaction.ended', { messageId, summary: words(dice), usage: usageOf(dice), tailSeq: 1 })]
    },
    failCompaction: (dice) => {
      if (compaction === null) return null
      const messageId = compaction
      compaction = null
      return [event('compaction.failed', { messageId, error: errorOf(dice), usage: usageOf(dice) })]
    },
    settleExecution: (dice) => {
      if (execution === null || step !== null || compaction !== null) return null
      const outcome = (['SUCCEEDED', 'RELEASED', 'CLEARED'] as const)[dice % 3]!
      const settled = {
        executionId: execution,
        outcome,
        retryAt: outcome === 'RELEASED' ? '2030-01-01T00:00:00.000Z' : null,
      }
      execution = null
      return [event('execution.settled', settled)]
    },
  }

  function startPart(kind: 'text' | 'reasoning'): NewEvent[] | null {
    if (!step || step.streamed || step.open.size > 1) return null
    const index = step.next++
    step.open.set(index, kind)
    return [event(`${kind}.started`, { messageId: step.messageId, index })]
  }

  return {
    choose: (op, dice) => choices[op](dice),
    appended(at) {
      if (archiving) archivedAt = at.toISOString()
      archiving = false
    },
  }
}

/** A history in which every event type comes up. */
export const tour: Op[] = [
  'admit',
  'admitUnarmed',
  'requestExecution',
  'changeDelivery',
  'withdraw',
  'admit',
  'archive',
  'update',
  'archive',
  'startExecution',
  'promote',
  'retry',
  'startReasoning',
  'endPart',
  'startText',
  'endPart',
  'streamInput',
  'call',
  'startTool',
  'succeed',
  'streamInput',
  'call',
  'ask',
  'decide',
  'startTool',
  'fail',
  'streamInput',
  'fail',
  'streamed',
  'endStep',
  'synthetic',
  'requestCompaction',
  'compact',
  'endCompaction',
  'requestCompaction',
  'compact',
  'failCompaction',
  'settleExecution',
  'admit',
  'startExecution',
  'promote',
  'startText',
  'streamInput',
  'call',
  'ask',
  'interrupt',
  'admit',
  'startExecution',
  'promote',
  'failStep',
  'quarantine',
  'resolveQuarantine',
  'recover',
  'park',
  'resume',
  'startExecution',
  'promote',
  'startText',
  'recover',
  'interrupt',
  'admit',
  'startExecution',
  'promote',
  'endStep',
  'settleExecution',
]
