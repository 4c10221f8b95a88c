import type { builder } from './builder.ts'
import { selectOf } from './columns.ts'
import { SessionInput } from './input.ts'
import { Interaction } from './interaction.ts'
import { Session } from './session.ts'

type Types = typeof builder.$inferSchemaTypes
type Fields<Row> = PothosSchemaTypes.ObjectFieldBuilder<Types, Row>

/** The session that an outcome names, read after the change. */
export function sessionField<Row extends { sessionId: string }>(t: Fields<Row>, description: string) {
  return t.prismaField({
    type: Session,
    description,
    resolve: (_query, row, _args, { db }) => {
      const where = { id: (row as { sessionId: string }).sessionId }
      return db.session.findUniqueOrThrow({ select: selectOf('Session'), where })
    },
  })
}

/** The input that an outcome names, read after the change. */
export function inputField<Row extends { messageId: string }>(t: Fields<Row>, description: string) {
  return t.prismaField({
    type: SessionInput,
    description,
    resolve: (_query, row, _args, { db }) => {
      const where = { id: (row as { messageId: string }).messageId }
      return db.input.findUniqueOrThrow({ select: selectOf('Input'), where })
    },
  })
}

/** The interaction that an outcome names, read after the change. */
export function interactionField<Row extends { interactionId: string }>(t: Fields<Row>, description: string) {
  return t.prismaField({
    type: Interaction,
    description,
    resolve: (_query, row, _args, { db }) => {
      const where = { id: (row as { interactionId: string }).interactionId }
      return db.interaction.findUniqueOrThrow({ select: selectOf('Interaction'), where })
    },
  })
}
