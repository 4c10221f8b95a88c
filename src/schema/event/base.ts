import type { EventType, JsonValue } from '../../events.ts'
import { type LiveItem, type StreamItem, type Typename, typenameOf } from '../../stream-item.ts'
import { builder } from '../builder.ts'

/** What every item of a stream and every event of the log has. */
type Item = Pick<StreamItem, 'typename' | 'sessionId' | 'seq' | 'at'>

export const SessionEvent = builder.interfaceRef<Item>('SessionEvent').implement({
  description: 'Something that happened in a session, or that is happening right now.',
  resolveType: (item) => item.typename,
  fields: (t) => ({
    sessionId: t.exposeID('sessionId', { description: 'The session.' }),
    seq: t.exposeInt('seq', {
      nullable: true,
      description: 'Its place in the log: 1, 2, 3 … without gaps. Null: live only, not in the log.',
    }),
    at: t.expose('at', { type: 'DateTime', description: 'When it happened.' }),
  }),
})

/** The GraphQL type of one kind of event in the log. */
export const logged = <T extends EventType>(type: T) => builder.objectRef<Of<Typename<T>>>(typenameOf(type))

/** The GraphQL type of something that is shown live and not kept. */
export const live = <N extends LiveItem['typename']>(name: N) => builder.objectRef<Of<N>>(name)

type Of<N extends StreamItem['typename']> = Extract<StreamItem, { typename: N }>

/** A description that several events share: the same field means the same everywhere. */
export const means = {
  messageId: 'The message, or the input that becomes it.',
  stepMessageId: 'The assistant message of the step.',
  index: 'The part of the message.',
  callId: 'The tool call.',
  executionId: 'The execution.',
  usage: 'Tokens of this request.',
  error: 'What went wrong.',
  inputKind: 'What kind of input it is.',
  attachments: 'Its files.',
  toolInput: 'The input of the tool.',
  continues: 'Whether the session owes another step because of it.',
} as const

/** JSON that the schema promises: null would void the whole event for its reader, so it goes out as empty text. */
export const present = (value: JsonValue): JsonValue => value ?? ''
