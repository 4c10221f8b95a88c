// Logs of sessions as the runner would write them, for tests that only read.
import { event, type NewEvent, noUsage, type Usage } from '../../src/events.ts'

export const created = (title: string | null = null) =>
  event('session.created', { tenant: 'default', title, instructions: null, model: 'demo/echo' })

export const admitted = (messageId: string, text = 'Hello', requestExecution = false) =>
  event('prompt.admitted', {
    messageId,
    inputKind: 'PROMPT',
    text,
    attachments: [],
    delivery: 'STEER',
    requestExecution,
  })

export const promoted = (messageId: string, text = 'Hello') =>
  event('prompt.promoted', { messageId, inputKind: 'PROMPT', text, attachments: [], hidden: false })

/** A whole step that says `text`, from step.started to step.ended. */
export const step = (messageId: string, text: string, usage: Usage = noUsage): NewEvent[] => [
  event('step.started', { messageId, model: 'demo/echo', executionId: 'exe_.story' }),
  event('text.started', { messageId, index: 0 }),
  event('text.ended', { messageId, index: 0, text }),
  event('step.ended', { messageId, finish: 'stop', usage, continues: false }),
]

/** A step with one tool call that waits for an approval. */
export const asking = (messageId: string, interactionId: string): NewEvent[] => [
  event('step.started', { messageId, model: 'demo/echo', executionId: 'exe_.story' }),
  event('tool.input_started', { messageId, index: 0, callId: 'call_1', name: 'send' }),
  event('tool.called', { messageId, index: 0, callId: 'call_1', name: 'send', toolInput: { to: 'all', n: [1, null] } }),
  event('interaction.requested', {
    interactionId,
    kind: 'APPROVAL',
    messageId,
    callId: 'call_1',
    name: 'send',
    toolInput: { to: 'all', n: [1, null] },
    prompt: 'May send run?',
    options: [],
    expiresAt: null,
    definition: 'as shown',
  }),
]
