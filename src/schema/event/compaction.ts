import { StepError, Usage } from '../values.ts'
import { logged, means, SessionEvent } from './base.ts'

logged('compaction.started').implement({
  interfaces: [SessionEvent],
  description: 'A summary of older history is being written.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: 'The message of the compaction.' }),
    automatic: t.exposeBoolean('automatic', {
      description: 'Whether the system started it because the history grew too long.',
    }),
  }),
})

logged('compaction.ended').implement({
  interfaces: [SessionEvent],
  description: 'The summary stands for the older history from now on, in requests to the model.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: 'The message of the compaction.' }),
    summary: t.exposeString('summary', { description: 'The summary.' }),
    usage: t.expose('usage', { type: Usage, description: means.usage }),
  }),
})

logged('compaction.failed').implement({
  interfaces: [SessionEvent],
  description: 'There is no summary; the history stays as it was.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: 'The message of the compaction.' }),
    error: t.expose('error', { type: StepError, description: 'Why.' }),
    usage: t.expose('usage', { type: Usage, description: means.usage }),
  }),
})
