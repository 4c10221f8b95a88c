import { noUsage } from '../../events.ts'
import { StepError, Usage } from '../values.ts'
import { logged, means, SessionEvent } from './base.ts'

logged('step.started').implement({
  interfaces: [SessionEvent],
  description: 'A step began; its assistant message exists. The request to the model follows.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    model: t.exposeString('model', { description: 'The model, as provider/model.' }),
  }),
})

logged('step.retry_scheduled').implement({
  interfaces: [SessionEvent],
  description:
    'A request failed and is made again: for the same message if it gave no output, else this one ends as failed and a new message follows.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    attempt: t.exposeInt('attempt', { description: 'The attempt that comes next; the first one was 1.' }),
    retryAt: t.expose('retryAt', { type: 'DateTime', nullable: true, description: 'When.' }),
    error: t.expose('error', { type: StepError, description: 'Why the last one failed.' }),
  }),
})

logged('step.streamed').implement({
  interfaces: [SessionEvent],
  description: 'The model has said everything; tools or a person may still hold the step open.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    // Not null, though early logs lack them: one selection may ask them of several events, which then have to have one type.
    finish: t.string({
      description: 'Why the model stopped, in the words of its provider. Empty: the log does not say.',
      resolve: ({ finish }) => finish ?? '',
    }),
    usage: t.field({
      type: Usage,
      description: 'Tokens of this request; what the end of the step tells is the same, not more.',
      resolve: ({ usage }) => usage ?? noUsage,
    }),
  }),
})

logged('step.ended').implement({
  interfaces: [SessionEvent],
  description: 'The step is settled.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    finish: t.exposeString('finish', { description: 'Why the model stopped, in the words of its provider.' }),
    usage: t.expose('usage', { type: Usage, description: means.usage }),
    continues: t.exposeBoolean('continues', { description: means.continues }),
  }),
})

logged('step.failed').implement({
  interfaces: [SessionEvent],
  description: 'The step ended with an error; text and tools up to there are kept.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    error: t.expose('error', { type: StepError, description: means.error }),
    usage: t.expose('usage', { type: Usage, description: means.usage }),
    continues: t.exposeBoolean('continues', { description: means.continues }),
  }),
})

logged('step.interrupted').implement({
  interfaces: [SessionEvent],
  description: 'A person stopped the step; text and tools up to there are kept.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    error: t.expose('error', { type: StepError, description: 'Why, in the shape of an error.' }),
    usage: t.expose('usage', { type: Usage, description: means.usage }),
  }),
})
