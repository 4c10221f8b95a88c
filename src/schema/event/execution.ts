import { ExecutionOutcome, QuarantineAction, QuarantineKind, RecoveryPhase } from '../enums.ts'
import { logged, means, SessionEvent } from './base.ts'

logged('execution.started').implement({
  interfaces: [SessionEvent],
  description:
    'A process holds the session and works on it. Every execution has exactly one end: ExecutionSettled or StepRecovered.',
  fields: (t) => ({
    executionId: t.exposeID('executionId', { description: means.executionId }),
  }),
})

logged('execution.settled').implement({
  interfaces: [SessionEvent],
  description: 'An execution ended and gave the session back.',
  fields: (t) => ({
    executionId: t.exposeID('executionId', { description: means.executionId }),
    outcome: t.expose('outcome', { type: ExecutionOutcome, description: 'How it ended.' }),
    retryAt: t.expose('retryAt', {
      type: 'DateTime',
      nullable: true,
      description: 'When its work goes on, if it was given back for a while.',
    }),
  }),
})

logged('interrupt.requested').implement({
  interfaces: [SessionEvent],
  description: 'A person asked to stop. What was armed up to here is disarmed.',
  fields: (t) => ({
    interruptedExecutionId: t.exposeID('interruptedExecutionId', {
      nullable: true,
      description: 'The execution that is being stopped; null if nothing was running.',
    }),
  }),
})

logged('step.recovered').implement({
  interfaces: [SessionEvent],
  description: 'An execution was cut off and is over; the continuation goes on where it was.',
  fields: (t) => ({
    executionId: t.exposeID('executionId', { description: means.executionId }),
    assistantMessageId: t.exposeID('assistantMessageId', {
      nullable: true,
      description: 'The message of the step that was open; null if none was.',
    }),
    continuationMessageId: t.exposeID('continuationMessageId', {
      description: 'The input with which the session goes on.',
    }),
    phase: t.expose('phase', { type: RecoveryPhase, description: 'How far the execution was.' }),
    handover: t.exposeBoolean('handover', {
      description: 'Whether its owner handed it over itself, on an orderly stop.',
    }),
  }),
})

logged('quarantine.opened').implement({
  interfaces: [SessionEvent],
  description: 'A row could not be trusted and was set aside.',
  fields: (t) => ({
    quarantineId: t.exposeID('quarantineId', { description: 'The entry.' }),
    executionId: t.exposeID('executionId', { description: means.executionId }),
    quarantineKind: t.expose('quarantineKind', { type: QuarantineKind, description: 'What was set aside.' }),
    reason: t.exposeString('reason', { description: 'Why.' }),
  }),
})

logged('quarantine.resolved').implement({
  interfaces: [SessionEvent],
  description: 'A person resolved what had been set aside.',
  fields: (t) => ({
    quarantineId: t.exposeID('quarantineId', { description: 'The entry.' }),
    action: t.expose('action', { type: QuarantineAction, description: 'What is done with it.' }),
  }),
})
