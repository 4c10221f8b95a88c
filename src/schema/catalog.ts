// What this server offers and how it checks itself.
import { asError } from '../errors.ts'
import { type InRoom, verifyIn } from '../verify.ts'
import { takeRoom } from './account.ts'
import { builder } from './builder.ts'
import { refusal } from './refusal.ts'

const Model = builder.objectRef<{ id: string; contextTokens: number | null }>('Model').implement({
  description: 'A model that sessions can use.',
  fields: (t) => ({
    id: t.exposeString('id', { description: 'Its name, as provider/model.' }),
    contextTokens: t.exposeInt('contextTokens', {
      nullable: true,
      description: 'Size of its context window; null if not known.',
    }),
  }),
})

interface ToolRow {
  name: string
  description: string
  jsonSchema: unknown
  needsApproval?: unknown
}

const ToolDefinition = builder.objectRef<ToolRow>('ToolDefinition').implement({
  description: 'A tool that models can call.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'Its name.' }),
    description: t.exposeString('description', { description: 'What the model is told about it.' }),
    inputSchema: t.field({
      type: 'JSON',
      description: 'JSON Schema of its input.',
      resolve: (tool) => tool.jsonSchema,
    }),
    needsApproval: t.boolean({
      description: 'Whether a person has to approve calls; true also if it depends on the input.',
      resolve: (tool) => tool.needsApproval !== undefined && tool.needsApproval !== false,
    }),
  }),
})

const Verification = builder
  .objectRef<{ consistent: boolean; events: number; differences: string[] }>('Verification')
  .implement({
    description: 'What a replay of the log of a session found.',
    fields: (t) => ({
      consistent: t.exposeBoolean('consistent', { description: 'Whether the tables hold exactly what the log gives.' }),
      events: t.exposeInt('events', { description: 'How many events were replayed.' }),
      differences: t.exposeStringList('differences', { description: 'What differs, one line each.' }),
    }),
  })

builder.queryFields((t) => ({
  models: t.field({
    type: [Model],
    description: 'The models that this server offers.',
    resolve: (_root, _args, { core }) => core.models.list(),
  }),
  tools: t.field({
    type: [ToolDefinition],
    description: 'The tools that models can call here.',
    resolve: (_root, _args, { core }) => [...core.tools.values()],
  }),
  verifySession: t.field({
    type: Verification,
    description: 'Replays the log of a session and compares it with the tables. NOT_FOUND if there is no such session.',
    args: { id: t.arg.id({ required: true, description: 'The session.' }) },
    resolve: async (_root, { id }, context) => {
      const { core, db, tenant, requestId } = context
      const inRoom: InRoom = async (bytes, read) => {
        const release = await takeRoom(context, bytes, 2000)
        return read().finally(release)
      }
      const known = id.includes('\0')
        ? null
        : await db.session.findFirst({ where: { id, tenant }, select: { id: true } })
      const verification = known && (await verifyIn(db, id, inRoom))
      if (!verification) throw refusal('NOT_FOUND', `there is no session ${JSON.stringify(id)}`)
      const { thrown } = verification
      if (thrown !== undefined)
        core.log.error({ err: asError(thrown), sessionId: id, requestId }, 'a log cannot be replayed')
      return verification
    },
  }),
}))
