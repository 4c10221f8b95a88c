import { Delivery, InputKind } from '../enums.ts'
import { Attachment } from '../values.ts'
import { logged, means, SessionEvent } from './base.ts'

logged('prompt.admitted').implement({
  interfaces: [SessionEvent],
  description: 'An input became durable. The model does not see it yet.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.messageId }),
    inputKind: t.expose('inputKind', { type: InputKind, description: means.inputKind }),
    text: t.exposeString('text', { description: 'Its text.' }),
    attachments: t.expose('attachments', { type: [Attachment], description: means.attachments }),
    delivery: t.expose('delivery', { type: Delivery, description: 'When it is to join.' }),
    requestExecution: t.exposeBoolean('requestExecution', {
      description: 'Whether it is armed: the system itself must start work for it.',
    }),
  }),
})

logged('prompt.execution_requested').implement({
  interfaces: [SessionEvent],
  description: 'An input that was admitted without execution is armed now.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.messageId }),
  }),
})

logged('prompt.delivery_changed').implement({
  interfaces: [SessionEvent],
  description: 'A pending input joins at another time now.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.messageId }),
    delivery: t.expose('delivery', { type: Delivery, description: 'When it is to join now.' }),
  }),
})

logged('prompt.withdrawn').implement({
  interfaces: [SessionEvent],
  description: 'A pending input was taken back; it will not be promoted.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.messageId }),
  }),
})

logged('prompt.promoted').implement({
  interfaces: [SessionEvent],
  description: 'An input entered the history; its message exists.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.messageId }),
    inputKind: t.expose('inputKind', { type: InputKind, description: means.inputKind }),
    text: t.exposeString('text', { description: 'Its text.' }),
    attachments: t.expose('attachments', { type: [Attachment], description: means.attachments }),
    hidden: t.exposeBoolean('hidden', {
      description: 'Whether the message is bookkeeping only: not shown to the model, not meant for transcripts.',
    }),
  }),
})

logged('synthetic.appended').implement({
  interfaces: [SessionEvent],
  description: 'The system wrote a message of its own into the history.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.messageId }),
    text: t.exposeString('text', { description: 'Its text.' }),
    hidden: t.exposeBoolean('hidden', { description: 'Whether it is not shown to the model.' }),
  }),
})
