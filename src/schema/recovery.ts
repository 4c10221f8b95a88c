import type {
  ExecutionPhase as PhaseShape,
  QuarantineKind as QuarantineKindShape,
  RecoveryPhase as RecoveryPhaseShape,
} from '../events.ts'
import { Prisma } from '../generated/prisma/client.ts'
import { builder } from './builder.ts'
import { ExecutionPhase, QuarantineKind, RecoveryPhase } from './enums.ts'
import { Node } from './node.ts'
import { type Instant, rowsOverSessions } from './over-sessions.ts'
import { connection, cursors, pageOf } from './page.ts'
import { sessionOf } from './session-of.ts'

export const Execution = builder.prismaObject('Claim', {
  name: 'Execution',
  description: 'Who works on a session right now, or did when it was last heard of.',
  fields: (t) => ({
    id: t.exposeID('executionId', { description: 'The execution; interruptSession takes it as a precondition.' }),
    phase: t.field({ type: ExecutionPhase, description: 'How far it is.', resolve: (row) => row.phase as PhaseShape }),
    owner: t.exposeString('owner', { description: 'The process that holds it.' }),
    expiresAt: t.expose('expiresAt', {
      type: 'DateTime',
      description: 'Until when it holds it, if it does not renew.',
    }),
  }),
})

export const Recovery = builder.prismaObject('Recovery', {
  interfaces: [Node],
  description: 'An execution that was cut off, and the input with which the session goes on.',
  fields: (t) => ({
    id: t.exposeID('id', { description: 'Its id.' }),
    session: t.prismaField({
      type: 'Session',
      description: 'The session that was cut off.',
      resolve: (_query, row, _args, context) => sessionOf(context, row.sessionId, undefined),
    }),
    executionId: t.exposeID('executionId', { description: 'The execution that was cut off.' }),
    phase: t.field({
      type: RecoveryPhase,
      description: 'How far it was.',
      resolve: (row) => row.phase as RecoveryPhaseShape,
    }),
    assistantMessageId: t.exposeID('assistantMessageId', {
      nullable: true,
      description: 'The message of the step that was open; null if none was.',
    }),
    continuationMessageId: t.exposeID('continuationMessageId', { description: 'The input with which it goes on.' }),
    wakePending: t.exposeBoolean('wakePending', { description: 'Whether that input is still to be promoted.' }),
    error: t.exposeString('error', {
      nullable: true,
      description: 'What is wrong with this recovery, if anything is.',
    }),
    createdAt: t.expose('createdAt', { type: 'DateTime', description: 'When recovery decided.' }),
  }),
})

export const QuarantineEntry = builder.prismaObject('Quarantine', {
  name: 'QuarantineEntry',
  interfaces: [Node],
  description: 'A row that could not be trusted, set aside so that the others go on.',
  fields: (t) => ({
    id: t.exposeID('id', { description: 'Its id; resolveQuarantine takes it.' }),
    session: t.prismaField({
      type: 'Session',
      nullable: true,
      description: 'The session that it belongs to.',
      resolve: (_query, row, _args, context) => sessionOf(context, row.sessionId, undefined),
    }),
    kind: t.field({
      type: QuarantineKind,
      description: 'What was set aside.',
      resolve: (row) => row.kind as QuarantineKindShape,
    }),
    executionId: t.exposeID('executionId', { description: 'The execution that it is about.' }),
    reason: t.exposeString('reason', { description: 'Why it could not be trusted.' }),
    quarantinedAt: t.expose('quarantinedAt', { type: 'DateTime', description: 'When it was set aside.' }),
    resolvedAt: t.expose('resolvedAt', {
      type: 'DateTime',
      nullable: true,
      description: 'When a person resolved it; null while open.',
    }),
  }),
})

const setAside = cursors<Instant>('quarantine', ['time', 'text'])

builder.queryField('quarantine', (t) =>
  t.connection(
    {
      type: QuarantineEntry,
      description: 'What was set aside, over all sessions, oldest first; resolved entries stay listed.',
      args: {
        open: t.arg.boolean({ description: 'true: only those that nobody has resolved. false: only resolved ones.' }),
      },
      resolve: async (_root, args, context) => {
        const page = pageOf(args, setAside)
        const rows = await rowsOverSessions<Prisma.QuarantineGetPayload<object>>(context, page, {
          table: 'Quarantine',
          time: Prisma.sql`"quarantinedAt"`,
          where: args.open == null ? Prisma.sql`true` : Prisma.sql`(r."resolvedAt" IS NULL) = ${args.open}`,
        })
        return connection(page, rows, setAside, (row) => [row.quarantinedAt.toISOString(), row.id] as const)
      },
    },
    { description: 'A page of rows that were set aside.' },
    { description: 'An entry and where it stands in the list.' },
  ),
)
