import { InteractionKind, InteractionState } from '../enums.ts'
import { StepError } from '../values.ts'
import { logged, means, present, SessionEvent } from './base.ts'

logged('tool.input_started').implement({
  interfaces: [SessionEvent],
  description: 'The model began to write a tool call.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    index: t.exposeInt('index', { description: means.index }),
    callId: t.exposeID('callId', { description: means.callId }),
    name: t.exposeString('name', { description: 'The tool.' }),
  }),
})

logged('tool.called').implement({
  interfaces: [SessionEvent],
  description: 'A tool call is complete. Whether it starts is said by the next events.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    index: t.exposeInt('index', { description: means.index }),
    callId: t.exposeID('callId', { description: means.callId }),
    name: t.exposeString('name', { description: 'The tool.' }),
    toolInput: t.field({ type: 'JSON', description: means.toolInput, resolve: (event) => present(event.toolInput) }),
  }),
})

logged('interaction.requested').implement({
  interfaces: [SessionEvent],
  description: 'A person has to decide before the tool can start.',
  fields: (t) => ({
    interactionId: t.exposeID('interactionId', { description: 'The approval or question.' }),
    kind: t.expose('kind', { type: InteractionKind, description: 'What is asked for.' }),
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    callId: t.exposeID('callId', { description: means.callId }),
    name: t.exposeString('name', { description: 'The tool.' }),
    toolInput: t.field({ type: 'JSON', description: means.toolInput, resolve: (event) => present(event.toolInput) }),
    prompt: t.exposeString('prompt', { description: 'The question, for a person.' }),
    options: t.exposeStringList('options', { description: 'Answers to choose from; empty if any will do.' }),
    expiresAt: t.expose('expiresAt', {
      type: 'DateTime',
      nullable: true,
      description: 'When it counts as declined if nobody has decided.',
    }),
  }),
})

logged('interaction.settled').implement({
  interfaces: [SessionEvent],
  description: 'An approval or question was decided, ran out or was cancelled.',
  fields: (t) => ({
    interactionId: t.exposeID('interactionId', { description: 'The approval or question.' }),
    state: t.expose('state', { type: InteractionState, description: 'How it was settled.' }),
    answer: t.expose('answer', { type: 'JSON', nullable: true, description: 'The answer to a question.' }),
    feedback: t.exposeString('feedback', { nullable: true, description: 'What the model is told with the decision.' }),
    editedInput: t.expose('editedInput', {
      type: 'JSON',
      nullable: true,
      description: "The input that replaces the model's.",
    }),
    remember: t.exposeBoolean('remember', {
      description: 'Whether this tool needs no approval in this session from now on.',
    }),
  }),
})

logged('tool.started').implement({
  interfaces: [SessionEvent],
  description: 'The tool is being started, right after this.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    callId: t.exposeID('callId', { description: means.callId }),
  }),
})

logged('tool.succeeded').implement({
  interfaces: [SessionEvent],
  description: 'The tool returned.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    callId: t.exposeID('callId', { description: means.callId }),
    output: t.field({ type: 'JSON', description: 'What it returned.', resolve: (event) => present(event.output) }),
  }),
})

logged('tool.failed').implement({
  interfaces: [SessionEvent],
  description: 'The tool call has no result.',
  fields: (t) => ({
    messageId: t.exposeID('messageId', { description: means.stepMessageId }),
    callId: t.exposeID('callId', { description: means.callId }),
    error: t.expose('error', { type: StepError, description: 'Why, and whether the tool may have run.' }),
  }),
})
