import type { InputState as StateShape } from '../events.ts'
import {
  type Claim as ClaimRow,
  type Input as InputRow,
  type Interaction as InteractionRow,
  type Message as MessageRow,
  Prisma,
  type Quarantine as QuarantineRow,
  type Recovery as RecoveryRow,
} from '../generated/prisma/client.ts'
import { answerItemsMax, batched, grouped } from './batched.ts'
import { builder } from './builder.ts'
import { columnsOf } from './columns.ts'
import { InputState, SessionStatus } from './enums.ts'
import { SessionEvent } from './event/base.ts'
import { eventsOf } from './event/of-session.ts'
import { SessionInput } from './input.ts'
import { Interaction } from './interaction.ts'
import { largeText } from './large.ts'
import { latest, latestMax } from './latest.ts'
import { Message } from './message.ts'
import { Node } from './node.ts'
import { connection, cursors, type Page, pageOf } from './page.ts'
import { Execution, QuarantineEntry, Recovery } from './recovery.ts'
import { statusFor } from './status.ts'
import { Usage } from './values.ts'

type MessagePosition = readonly [number]
const history = cursors<MessagePosition>('messages', ['number'])

/** One page of history of each session, each with one row more than asked for. The limit is the database's, per session. */
const messagesOf = batched<string, MessageRow[], Page<MessagePosition>>(async ({ db }, ids, page) => {
  const direction = page.backward ? Prisma.sql`DESC` : Prisma.sql`ASC`
  const rows = await db.$queryRaw<MessageRow[]>`
    SELECT m.* FROM unnest(${ids}::text[]) k(id) CROSS JOIN LATERAL (
      SELECT ${columnsOf('Message', 'm')} FROM "Message" m WHERE m."sessionId" = k.id
        AND ${page.after ? Prisma.sql`m.seq > ${page.after[0]}` : Prisma.sql`true`}
        AND ${page.before ? Prisma.sql`m.seq < ${page.before[0]}` : Prisma.sql`true`}
      ORDER BY m.seq ${direction} LIMIT ${page.limit + 1}) m
    ORDER BY m.seq ${direction} LIMIT ${answerItemsMax + 1}`
  return grouped(
    ids,
    rows,
    (id) => id,
    (row) => row.sessionId,
  )
})

/**
 * The tools that need no approval in a session any more, in the order in which a person said so first. Only as long as the tool is
 * still the one that the person saw.
 */
const approvedToolsOf = batched<string, string[]>(async ({ db, core }, ids) => {
  const rows = await db.$queryRaw<{ sessionId: string; toolName: string; definition: string | null }[]>`
    SELECT "sessionId", "toolName", definition FROM "Interaction"
    WHERE "sessionId" = ANY (${ids}) AND remember AND state = 'APPROVED'
    GROUP BY 1, 2, 3 ORDER BY min("settledAt")`
  const valid = rows.filter(({ toolName, definition }) => core.tools.get(toolName)?.definition === definition)
  return grouped(
    ids,
    valid,
    (id) => id,
    (row) => row.sessionId,
  ).map((group) => group.map((row) => row.toolName))
})

const inputsOf = latest<InputRow, { state: StateShape | null }>({
  table: 'Input',
  order: Prisma.sql`"admittedSeq"`,
  where: ({ state }) => (state === null ? Prisma.sql`true` : Prisma.sql`r.state = ${state}`),
  // limits.pendingInputs is what bounds these.
  bounded: ({ state }) => state === 'PENDING',
})
const interactionsOf = latest<InteractionRow, { open: boolean | null }>({
  table: 'Interaction',
  order: Prisma.sql`"createdAt"`,
  where: ({ open }) => (open === null ? Prisma.sql`true` : Prisma.sql`(r.state = 'OPEN') = ${open}`),
})
const recoveriesOf = latest<RecoveryRow, undefined>({
  table: 'Recovery',
  order: Prisma.sql`"createdAt"`,
  where: () => Prisma.sql`true`,
})
const quarantineOf = latest<QuarantineRow, undefined>({
  table: 'Quarantine',
  order: Prisma.sql`"quarantinedAt"`,
  where: () => Prisma.sql`true`,
})

/** Who works on each of these sessions. */
const claimOf = batched<string, ClaimRow | null>(async ({ db }, ids) => {
  const rows = await db.claim.findMany({ where: { sessionId: { in: ids } } })
  const bySession = new Map(rows.map((row) => [row.sessionId, row]))
  return ids.map((id) => bySession.get(id) ?? null)
})

const instructionsOf = largeText('Session', 'instructions')

export const Session = builder.prismaObject('Session', {
  interfaces: [Node],
  description: 'A long-lived conversation with a model. Everything that happens in it is an event of its log.',
  fields: (t) => ({
    id: t.exposeID('id', { description: 'The id that the client made.' }),
    title: t.exposeString('title', { nullable: true, description: 'What it is called, for people.' }),
    instructions: t.string({
      nullable: true,
      description: 'What the model is told before the conversation.',
      resolve: (session, _args, context) => instructionsOf(session, context),
    }),
    model: t.exposeString('model', { description: 'The model of its next step, as provider/model.' }),
    status: t.field({
      type: SessionStatus,
      description: 'What it is doing.',
      resolve: (session, _args, context) => statusFor(context.shared ?? context, session.id, undefined),
    }),
    seq: t.exposeInt('seq', {
      description: 'The last event of its log, which is where a stream goes on after this snapshot.',
    }),
    createdAt: t.expose('createdAt', { type: 'DateTime', description: 'When it was created.' }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime', description: 'When the last event happened.' }),
    archivedAt: t.expose('archivedAt', {
      type: 'DateTime',
      nullable: true,
      description: 'When it was archived; null if it is not.',
    }),
    parkedReason: t.exposeString('parkedReason', {
      nullable: true,
      description: 'Why recovery stopped resuming it; null if it did not.',
    }),
    usage: t.field({ type: Usage, description: 'Tokens of all its requests so far.', resolve: (session) => session }),
    approvedTools: t.field({
      type: ['String'],
      description:
        'Tools that need no approval here any more, as a person said; one whose definition changed asks again.',
      resolve: (session, _args, context) => approvedToolsOf(context, session.id, undefined),
    }),
    messages: t.connection(
      {
        type: Message,
        description: 'Its history, oldest first.',
        resolve: async (session, args, context) => {
          const page = pageOf(args, history)
          return connection(page, await messagesOf(context, session.id, page), history, (row) => [row.seq] as const)
        },
      },
      { description: 'A page of history.' },
      { description: 'A message and where it stands in the history.' },
    ),
    inputs: t.field({
      type: [SessionInput],
      description: `What was admitted to it, in the order of admission: all that is pending if that is asked for, else the latest ${latestMax}. \`messages\` and \`events\` have the rest, by pages.`,
      args: { state: t.arg({ type: InputState, description: 'Only inputs in this state; all if omitted.' }) },
      resolve: (session, { state }, context) => inputsOf(context, session.id, { state: state ?? null }),
    }),
    events: t.field({
      type: [SessionEvent],
      description: 'Its log, oldest first. `sessionEvents` streams the same events and goes on live.',
      args: {
        after: t.arg.int({ defaultValue: 0, description: 'Only events behind this seq.' }),
        first: t.arg.int({ defaultValue: 100, description: 'How many at most, up to 1000.' }),
      },
      resolve: (session, { after, first }, context, info) => eventsOf(context, session.id, { after, first }, info),
    }),
    interactions: t.field({
      type: [Interaction],
      description: `Its approvals and questions, oldest first: the latest ${latestMax}. Open ones are the latest.`,
      args: {
        open: t.arg.boolean({
          defaultValue: true,
          description: 'true: those that wait for a person. false: those that are settled. null: both.',
        }),
      },
      resolve: (session, { open }, context) => interactionsOf(context, session.id, { open: open ?? null }),
    }),
    execution: t.field({
      type: Execution,
      nullable: true,
      description: 'Who works on it; null while nobody does.',
      resolve: (session, _args, context) => claimOf(context, session.id, undefined),
    }),
    recoveries: t.field({
      type: [Recovery],
      description: `The executions of it that were cut off, oldest first: the latest ${latestMax}.`,
      resolve: (session, _args, context) => recoveriesOf(context, session.id, undefined),
    }),
    quarantine: t.field({
      type: [QuarantineEntry],
      description: `What was set aside of it, resolved or not, oldest first: the latest ${latestMax}.`,
      resolve: (session, _args, context) => quarantineOf(context, session.id, undefined),
    }),
  }),
})
