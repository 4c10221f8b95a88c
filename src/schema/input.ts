import type {
  Attachment as AttachmentShape,
  Delivery as DeliveryShape,
  InputKind as KindShape,
  InputState as StateShape,
} from '../events.ts'
import { builder } from './builder.ts'
import { Delivery, InputKind, InputState } from './enums.ts'
import { largeJson, largeText } from './large.ts'
import { Node } from './node.ts'
import { sessionOf } from './session-of.ts'
import { Attachment } from './values.ts'

const textOf = largeText('Input', 'text')
const attachmentsOf = largeJson<AttachmentShape[]>('Input', 'attachments')

export const SessionInput = builder.prismaObject('Input', {
  name: 'SessionInput',
  interfaces: [Node],
  description:
    'Something that waits to enter the history, or has: a prompt, a continuation or a request for compaction.',
  fields: (t) => ({
    id: t.exposeID('id', { description: 'The id of the message that it becomes.' }),
    session: t.prismaField({
      type: 'Session',
      description: 'The session that it was admitted to.',
      resolve: (_query, row, _args, context) => sessionOf(context, row.sessionId, undefined),
    }),
    kind: t.field({ type: InputKind, description: 'What it is.', resolve: (row) => row.kind as KindShape }),
    text: t.string({
      description: 'Its text, as it was sent.',
      resolve: async (row, _args, context) => (await textOf(row, context)) ?? '',
    }),
    attachments: t.field({
      type: [Attachment],
      description: 'Its files, as they were sent.',
      resolve: (row, _args, context) => attachmentsOf(row, context),
    }),
    delivery: t.field({
      type: Delivery,
      description: 'When it joins, as that stands now; changeDelivery can move it while it is pending.',
      resolve: (row) => row.delivery as DeliveryShape,
    }),
    state: t.field({
      type: InputState,
      description: 'How far it has come.',
      resolve: (row) => row.state as StateShape,
    }),
    wakePending: t.exposeBoolean('wakePending', { description: 'Whether the system itself must start work for it.' }),
    admittedSeq: t.exposeInt('admittedSeq', { description: 'Where its admission stands in the log.' }),
    promotedSeq: t.exposeInt('promotedSeq', { nullable: true, description: 'Where its promotion stands in the log.' }),
    createdAt: t.expose('createdAt', { type: 'DateTime', description: 'When it was admitted.' }),
  }),
})
