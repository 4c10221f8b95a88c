import type { InteractionKind as KindShape, InteractionState as StateShape } from '../events.ts'
import { Prisma } from '../generated/prisma/client.ts'
import { builder } from './builder.ts'
import { InteractionKind, InteractionState } from './enums.ts'
import { largeJson, largeText } from './large.ts'
import { Node } from './node.ts'
import { type Instant, rowsOverSessions } from './over-sessions.ts'
import { connection, cursors, pageOf } from './page.ts'
import { sessionOf } from './session-of.ts'

const toolInputOf = largeJson('Interaction', 'toolInput')
const promptOf = largeText('Interaction', 'prompt')
const optionsOf = largeJson<string[]>('Interaction', 'options')
const answerOf = largeJson('Interaction', 'answer')
const feedbackOf = largeText('Interaction', 'feedback')
const editedInputOf = largeJson('Interaction', 'editedInput')

export const Interaction = builder.prismaObject('Interaction', {
  interfaces: [Node],
  description:
    'An approval or a question that a person has to settle. It is durable: restarts and weeks do not change it.',
  fields: (t) => ({
    id: t.exposeID('id', { description: 'Its id.' }),
    session: t.prismaField({
      type: 'Session',
      description: 'The session that waits for it.',
      resolve: (_query, row, _args, context) => sessionOf(context, row.sessionId, undefined),
    }),
    kind: t.field({
      type: InteractionKind,
      description: 'What is asked for.',
      resolve: (row) => row.kind as KindShape,
    }),
    state: t.field({
      type: InteractionState,
      description: 'How it stands.',
      resolve: (row) => row.state as StateShape,
    }),
    messageId: t.exposeID('messageId', {
      description: 'The assistant message whose tool call it is; call ids repeat.',
    }),
    callId: t.exposeID('callId', { description: 'The tool call that it holds up.' }),
    toolName: t.exposeString('toolName', { description: 'The tool of that call.' }),
    toolInput: t.field({
      type: 'JSON',
      nullable: true,
      description: 'The input that the model gave the tool.',
      resolve: (row, _args, context) => toolInputOf(row, context),
    }),
    prompt: t.string({
      description: 'The question, for a person.',
      resolve: async (row, _args, context) => (await promptOf(row, context)) ?? '',
    }),
    options: t.field({
      type: ['String'],
      description: 'Answers to choose from; empty if any answer will do.',
      resolve: (row, _args, context) => optionsOf(row, context),
    }),
    answer: t.field({
      type: 'JSON',
      nullable: true,
      description: 'The answer to a question.',
      resolve: (row, _args, context) => answerOf(row, context),
    }),
    feedback: t.string({
      nullable: true,
      description: 'What the person told the model with the decision.',
      resolve: (row, _args, context) => feedbackOf(row, context),
    }),
    editedInput: t.field({
      type: 'JSON',
      nullable: true,
      description: "The input that the person put in place of the model's.",
      resolve: (row, _args, context) => editedInputOf(row, context),
    }),
    expiresAt: t.expose('expiresAt', {
      type: 'DateTime',
      nullable: true,
      description: 'When it counts as declined if nobody has decided; null if never.',
    }),
    createdAt: t.expose('createdAt', { type: 'DateTime', description: 'When it was asked.' }),
  }),
})

const inbox = cursors<Instant>('interactions', ['time', 'text'])

builder.queryField('interactions', (t) =>
  t.connection(
    {
      type: Interaction,
      description: 'Approvals and questions over all sessions, oldest first: an inbox.',
      args: {
        open: t.arg.boolean({
          defaultValue: true,
          description: 'true: those that wait for a person. false: those that are settled. null: both.',
        }),
      },
      resolve: async (_root, args, context) => {
        const page = pageOf(args, inbox)
        const rows = await rowsOverSessions<Prisma.InteractionGetPayload<object>>(context, page, {
          table: 'Interaction',
          time: Prisma.sql`"createdAt"`,
          where:
            args.open == null
              ? Prisma.sql`true`
              : args.open
                ? Prisma.sql`r.state = 'OPEN'`
                : Prisma.sql`r.state <> 'OPEN'`,
        })
        return connection(page, rows, inbox, (row) => [row.createdAt.toISOString(), row.id] as const)
      },
    },
    { description: 'A page of approvals and questions.' },
    { description: 'An interaction and where it stands in the list.' },
  ),
)
