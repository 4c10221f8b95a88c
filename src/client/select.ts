// What screens ask of a view.

import type {
  AssistantView,
  InputView,
  InteractionView,
  MessageView,
  PartView,
  SessionView,
  ToolCallView,
} from './view.ts'

/** The transcript: everything but what is bookkeeping only. */
export const transcript = (view: SessionView): MessageView[] =>
  view.messages.filter((message) => message.type !== 'SyntheticMessage' || !message.hidden)

/** What is admitted and not yet in the transcript, in the order of admission. Continuations, which the system makes, are left out. */
export const pendingInputs = (view: SessionView): InputView[] =>
  view.inputs.filter((input) => input.state === 'PENDING' && input.kind !== 'CONTINUATION')

/** Approvals and questions that wait for a person, oldest first. */
export const openInteractions = (view: SessionView): InteractionView[] =>
  view.interactions.filter((interaction) => interaction.state === 'OPEN')

/** The last approval or question about a tool call. Call ids may repeat from message to message. */
export const interactionOf = (view: SessionView, messageId: string, callId: string): InteractionView | null =>
  view.interactions.findLast((one) => one.messageId === messageId && one.callId === callId) ?? null

/** The tool call that an approval or a question holds up; null if its message is not in the view. */
export function callOf(view: SessionView, interaction: InteractionView): ToolCallView | null {
  const message = view.messages.find((one) => one.id === interaction.messageId)
  if (message?.type !== 'AssistantMessage') return null
  const isIt = (part: PartView): part is ToolCallView => part.type === 'ToolCall' && part.callId === interaction.callId
  return message.parts.find(isIt) ?? null
}

/** The step that runs, or waits for a person; null while there is none. */
export const openStep = (view: SessionView): AssistantView | null =>
  (view.messages.findLast((message) => message.type === 'AssistantMessage' && message.status === 'RUNNING') as
    | AssistantView
    | undefined) ?? null

/** The words of a message, without reasoning and tools. */
export function wordsOf(message: MessageView): string {
  if (message.type === 'CompactionMessage') return message.summary ?? ''
  if (message.type !== 'AssistantMessage') return message.text
  return message.parts.flatMap((part) => (part.type === 'TextPart' ? [part.text] : [])).join('\n\n')
}

/**
 * The status of the session as far as its log tells. What a log cannot tell is whether the process that works on it is alive, so
 * RECOVERING is shown as RUNNING; `status` of the query and of sessionActivity has it.
 */
export function statusOf(view: SessionView): 'IDLE' | 'RUNNING' | 'WAITING' | 'PARKED' | 'QUARANTINED' {
  if (view.quarantine.some((entry) => entry.kind === 'EXECUTION' && entry.resolvedAt === null)) return 'QUARANTINED'
  if (view.parkedReason !== null) return 'PARKED'
  if (view.executionId !== null) return 'RUNNING'
  if (openInteractions(view).length > 0) return 'WAITING'
  const isOwed = view.inputs.some((input) => input.state === 'PENDING' && input.wakePending) || openStep(view) !== null
  return isOwed ? 'RUNNING' : 'IDLE'
}
