import { StreamEndCause } from '../enums.ts'
import { live, means, present, SessionEvent } from './base.ts'

live('TextDelta').implement({
  interfaces: [SessionEvent],
  description: 'More text of an open part. It is addressed, so applying it twice changes nothing.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    index: t.exposeInt('index', { description: means.index }),
    offset: t.exposeInt('offset', {
      description: 'Where the text goes, in UTF-16 code units from the start of the part.',
    }),
    text: t.exposeString('text', { description: 'The text from there on.' }),
  }),
})

live('ReasoningDelta').implement({
  interfaces: [SessionEvent],
  description: 'More reasoning of an open part. It is addressed, so applying it twice changes nothing.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    index: t.exposeInt('index', { description: means.index }),
    offset: t.exposeInt('offset', {
      description: 'Where the text goes, in UTF-16 code units from the start of the part.',
    }),
    text: t.exposeString('text', { description: 'The text from there on.' }),
  }),
})

live('ToolInputDelta').implement({
  interfaces: [SessionEvent],
  description: 'More of the input that the model is writing for a tool, as raw text.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    index: t.exposeInt('index', { description: means.index }),
    callId: t.exposeID('callId', { description: means.callId }),
    offset: t.exposeInt('offset', {
      description: 'Where the text goes, in UTF-16 code units from the start of the input.',
    }),
    text: t.exposeString('text', { description: 'The text from there on.' }),
  }),
})

live('ToolProgress').implement({
  interfaces: [SessionEvent],
  description: 'What a running tool says about its progress.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    callId: t.exposeID('callId', { description: means.callId }),
    progress: t.field({
      type: 'JSON',
      description: 'In the words of the tool.',
      resolve: (event) => present(event.progress),
    }),
  }),
})

live('LogSynced').implement({
  interfaces: [SessionEvent],
  description: 'Everything up to the watermark has been replayed; what follows is live.',
  fields: (t) => ({
    through: t.exposeInt('through', { description: 'The watermark: the last event of the log at this moment.' }),
  }),
})

live('StreamEnded').implement({
  interfaces: [SessionEvent],
  description: 'The last item of a stream that the server ends.',
  fields: (t) => ({
    cause: t.expose('cause', { type: StreamEndCause, description: 'Why it ends.' }),
    resumeAfter: t.exposeInt('resumeAfter', { description: 'Give this as `after` to go on without a gap.' }),
  }),
})
