import { builder } from './builder.ts'
import { selectOf } from './columns.ts'
import type { Context } from './context.ts'

/** A row that has an id of its own. Its prefix tells the type; under msg_ it is a message, or its input before that. */
export interface NodeRow {
  id: string
}

const messageTypes: Record<string, string> = {
  USER: 'UserMessage',
  SYNTHETIC: 'SyntheticMessage',
  COMPACTION: 'CompactionMessage',
  ASSISTANT: 'AssistantMessage',
}

/** The GraphQL type of a message row. */
export const messageTypeOf = (row: { kind: string }) => messageTypes[row.kind]

function typeOf(row: NodeRow & { kind?: string; admittedSeq?: number }): string | undefined {
  if (row.id.startsWith('ses_')) return 'Session'
  if (row.id.startsWith('req_')) return 'Interaction'
  if (row.id.startsWith('rec_')) return 'Recovery'
  if (row.id.startsWith('qua_')) return 'QuarantineEntry'
  return row.admittedSeq === undefined ? messageTypeOf(row as { kind: string }) : 'SessionInput'
}

export const Node = builder.interfaceRef<NodeRow>('Node').implement({
  description: 'Whatever has an id of its own and can be read again by it.',
  resolveType: (row) => typeOf(row),
  fields: (t) => ({ id: t.exposeID('id', { description: 'The id, opaque, with a prefix that tells the type.' }) }),
})

builder.queryField('node', (t) =>
  t.field({
    type: Node,
    nullable: true,
    description:
      'Any node by its id; null if there is none. A msg_ id gives its message, or its input until that is promoted.',
    args: {
      id: t.arg.id({ required: true, description: 'An id that this server handed out, or one that a client made.' }),
    },
    resolve: (_root, { id }, context) => load(id, context),
  }),
)

async function load(id: string, { db, tenant }: Context): Promise<NodeRow | null> {
  // The database takes no NUL in text, and no id has one.
  if (id.includes('\0')) return null
  const where = { id, session: { tenant } }
  switch (id.slice(0, 4)) {
    case 'ses_':
      return db.session.findFirst({ select: selectOf('Session'), where: { id, tenant } })
    case 'msg_':
      return (
        (await db.message.findFirst({ select: selectOf('Message'), where })) ??
        (await db.input.findFirst({ select: selectOf('Input'), where }))
      )
    case 'req_':
      return db.interaction.findFirst({ select: selectOf('Interaction'), where })
    case 'rec_':
      return db.recovery.findFirst({ select: selectOf('Recovery'), where })
    case 'qua_':
      return db.quarantine.findFirst({ select: selectOf('Quarantine'), where })
    default:
      return null
  }
}
