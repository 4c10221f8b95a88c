import type { EnumRef } from '@pothos/core'
import { builder } from './builder.ts'

type Types = typeof builder.$inferSchemaTypes

/** An enum from its values and what each means. */
function enumOf<Value extends string>(
  name: string,
  description: string,
  values: Record<Value, string>,
): EnumRef<Types, Value> {
  const described = Object.fromEntries(
    Object.entries<string>(values).map(([value, meaning]) => [value, { description: meaning }]),
  )
  return builder.enumType(name, { description, values: described }) as unknown as EnumRef<Types, Value>
}

export const SessionStatus = enumOf(
  'SessionStatus',
  'What a session is doing. When several could apply, the first of this order does: QUARANTINED, PARKED, RUNNING, WAITING, RECOVERING, IDLE.',
  {
    IDLE: 'Nothing is to be done.',
    RUNNING: 'A process holds the session and works on it, or work has been owed for less than one recovery scan.',
    WAITING: 'Approvals or questions are open; a person is needed, no process is.',
    RECOVERING: 'Work is owed and nobody holds the session; recovery will pick it up.',
    PARKED: 'Recovery has given up resuming by itself. resumeSession or a new prompt goes on.',
    QUARANTINED: 'A durable row could not be trusted. resolveQuarantine goes on.',
  },
)

export const Delivery = enumOf('Delivery', 'When a prompt joins the conversation.', {
  STEER: 'At the next safe boundary: before the next request to the model, also in the middle of an activity.',
  QUEUE: 'When the session would otherwise go idle; one at a time.',
})

export const InputState = enumOf('InputState', 'How far an input has come.', {
  PENDING: 'Admitted and durable; not in the history yet.',
  PROMOTED: 'Its message is in the history.',
  WITHDRAWN: 'Taken back before it was promoted; it never will be.',
})

export const InputKind = enumOf('InputKind', 'What an input is.', {
  PROMPT: 'Text of a person.',
  CONTINUATION: 'Written by recovery so that an execution that was cut off goes on.',
  COMPACTION: 'A request to replace older history by a summary.',
})

export const CompactionStatus = enumOf('CompactionStatus', 'How far a compaction has come.', {
  RUNNING: 'The summary is being written.',
  COMPLETED: 'The summary now stands for the older history in requests to the model.',
  FAILED: 'There is no summary; the history stays as it was.',
})

export const StepStatus = enumOf('StepStatus', 'How far a step has come.', {
  RUNNING: 'Not settled: streaming, running tools, retrying, or waiting for a person.',
  ENDED: 'The model finished and all tools are settled.',
  FAILED: 'It ended with an error; text and tools up to there are kept.',
  INTERRUPTED: 'A person stopped it; text and tools up to there are kept.',
})

export const ToolStatus = enumOf('ToolStatus', 'How far a tool call has come.', {
  STREAMING: 'The model is still writing its input.',
  AWAITING_APPROVAL: 'It has not started: an interaction is open or has just been decided.',
  RUNNING: 'It has started and has no result yet.',
  COMPLETED: 'It returned its output.',
  FAILED: 'It has no output; the error says why, and whether it may have run.',
})

export const InteractionKind = enumOf('InteractionKind', 'What a person is asked for.', {
  APPROVAL: 'May this tool run? Answer with decideApproval.',
  QUESTION: 'A question of the model. Answer with answerQuestion or dismissQuestion.',
})

export const InteractionState = enumOf(
  'InteractionState',
  'How an interaction stands. Every state but OPEN is final.',
  {
    OPEN: 'Waiting for a person.',
    APPROVED: 'The tool may run.',
    DECLINED: 'The tool must not run.',
    ANSWERED: 'The question has its answer.',
    DISMISSED: 'The question was set aside, which ended the activity.',
    EXPIRED: 'Nobody decided in time; taken as declined, and the model goes on.',
    CANCELLED: 'An interrupt or a failure ended the step it belongs to.',
  },
)

export const ExecutionPhase = enumOf('ExecutionPhase', 'How far an execution is, as recovery has to know it.', {
  READY: 'Claimed; nothing promoted or dispatched yet.',
  UNKNOWN: 'Something outside may be happening: a model request or a tool.',
  SAFE: 'The step is settled and nothing else is owed.',
  CONTINUE: 'Between two requests: another step or a retry is owed.',
  CANCELLING: 'An interrupt was accepted; the owner is cleaning up.',
  CANCELLED: 'The cleanup is durable.',
})

export const RecoveryPhase = enumOf('RecoveryPhase', 'The phase in which an execution was cut off.', {
  READY: 'Before anything was asked of the model.',
  UNKNOWN: 'While something outside may have been happening; its outcome is not known.',
  CONTINUE: 'Between two requests.',
})

export const ExecutionOutcome = enumOf('ExecutionOutcome', 'How an execution ended.', {
  SUCCEEDED: 'Everything that was owed is done.',
  FAILED: 'A step failed for good.',
  INTERRUPTED: 'A person stopped it.',
  WAITING: 'A person has to decide first; the step stays open.',
  CLEARED: 'Recovery found nothing left to do.',
  RELEASED: 'Given back; work goes on later, in another execution.',
})

export const QuarantineKind = enumOf('QuarantineKind', 'What was set aside.', {
  EXECUTION: 'The execution of a session; nothing of the session runs until this is resolved.',
  RECOVERY: 'One recovery of a session; its other work goes on.',
})

export const QuarantineAction = enumOf('QuarantineAction', 'What to do with a row that was set aside.', {
  RETRY: 'Decide again, with the outcome taken as unknown.',
  DISCARD: 'Settle what is open and continue nothing.',
})

export const ApprovalDecision = enumOf('ApprovalDecision', 'What a person says to a tool call.', {
  APPROVE: 'Run it.',
  DECLINE_AND_STOP: 'Do not run it, and end the activity.',
  DECLINE_AND_CONTINUE: 'Do not run it; tell the model, with the feedback, and go on.',
})

export const AdmissionOutcome = enumOf('AdmissionOutcome', 'What admitPrompt found.', {
  ADMITTED: 'The prompt is new and now durable.',
  ALREADY_ADMITTED: 'The same prompt was stored before and is pending.',
  ALREADY_PROMOTED: 'The same prompt was stored before and is in the history.',
  ALREADY_WITHDRAWN: 'The same prompt was stored and withdrawn; nothing is armed.',
})

export const StreamEndCause = enumOf('StreamEndCause', 'Why the server ended a stream.', {
  SLOW_CONSUMER: 'The reader took nothing for longer than the stall limit.',
  UNAUTHENTICATED: 'The token expired or was revoked.',
  SERVER_SHUTDOWN: 'This process stops; another one, or this one when it is back, goes on.',
})
