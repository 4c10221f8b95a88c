import { logged, means, SessionEvent } from './base.ts'

logged('text.started').implement({
  interfaces: [SessionEvent],
  description: 'The model began a part of text.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    index: t.exposeInt('index', { description: means.index }),
  }),
})

logged('text.ended').implement({
  interfaces: [SessionEvent],
  description: 'A part of text is complete, or all there will be of it.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    index: t.exposeInt('index', { description: means.index }),
    text: t.exposeString('text', { description: 'All of its text.' }),
  }),
})

logged('reasoning.started').implement({
  interfaces: [SessionEvent],
  description: 'The model began a part of reasoning.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    index: t.exposeInt('index', { description: means.index }),
  }),
})

logged('reasoning.ended').implement({
  interfaces: [SessionEvent],
  description: 'A part of reasoning is complete, or all there will be of it.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    index: t.exposeInt('index', { description: means.index }),
    text: t.exposeString('text', { description: 'All of its text.' }),
  }),
})
