// What is asked of the database for a session of another tenant, and what it gives, does not depend on the session: neither does the time that the refusal takes.
import { type GraphQLArgument, type GraphQLInputType, isEnumType, isInputObjectType, isNonNullType } from 'graphql'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { event } from '../src/events.ts'
import { schema } from '../src/schema/index.ts'
import { type Served, serveLog } from './support/served.ts'
import { statementsDuring } from './support/statements.ts'

const [a, b] = ['a'.repeat(24), 'b'.repeat(24)]
const ids = { large: 'ses_large0001', small: 'ses_small0001', unknown: 'ses_nowhere01' } as const

let served: Served
beforeAll(async () => {
  served = await serveLog({ env: { HOLDFAST_API_KEYS: `${a}:acme,${b}:beta`, HOLDFAST_POLL_MS: '100000' } })
  const created = (instructions: string | null) =>
    event('session.created', { tenant: 'acme', title: null, instructions, model: 'demo/echo' })
  await served.append(ids.small, created(null))
  await served.append(ids.large, created('x'.repeat(1_000_000)))
  const updated = { title: 'y'.repeat(500), instructions: 'z'.repeat(1_000_000), model: 'demo/echo', archived: false }
  for (let n = 0; n < 50; n++) await served.append(ids.large, event('session.updated', { ...updated, title: `${n}` }))
})
afterAll(() => served?.close())

/** Any value that this input takes; where an id of a session belongs, this one. */
function valueFor(name: string, type: GraphQLInputType, id: string): unknown {
  const inner = isNonNullType(type) ? type.ofType : type
  if (isInputObjectType(inner))
    return Object.fromEntries(
      Object.values(inner.getFields())
        .filter((field) => isNonNullType(field.type) || isSessionId(field.name, field.type))
        .map((field) => [field.name, valueFor(field.name, field.type, id)]),
    )
  if (isEnumType(inner)) return inner.getValues()[0]!.name
  if (isSessionId(name, type)) return id
  return { ID: 'msg_nowhere01', Int: 1, Boolean: true }[String(inner)] ?? 'text'
}
const isSessionId = (name: string, type: GraphQLInputType) =>
  /^!?ID!?$/.test(String(type)) && (name === 'sessionId' || name === 'id')
const takesSession = ({ name, type }: GraphQLArgument): boolean => {
  const inner = isNonNullType(type) ? type.ofType : type
  if (isInputObjectType(inner)) return 'sessionId' in inner.getFields()
  return isSessionId(name, type)
}

/** Every field of the three roots that takes the id of a session: one that is new is among them. */
const fields = [schema.getQueryType()!, schema.getMutationType()!, schema.getSubscriptionType()!].flatMap((root) =>
  Object.values(root.getFields())
    .filter((field) => field.args.some(takesSession))
    .map((field) => ({ root: root.name.toLowerCase(), field })),
)

it('PROMISE-258: fields that take the id of a session are found', () => {
  expect(fields.map(({ field }) => field.name).sort()).toEqual([
    'admitPrompt',
    'archiveSession',
    'changeDelivery',
    'compactSession',
    'createSession',
    'interruptSession',
    'node',
    'resumeSession',
    'session',
    'sessionEvents',
    'updateSession',
    'verifySession',
    'withdrawPrompt',
  ])
})

it.each(fields.map((one) => [one.field.name, one] as const))(
  'PROMISE-259: %s asks the same of the database for a small session of another tenant, a large one and none, and gets as little',
  async (_name, { root, field }) => {
    const asked = async (id: string) => {
      const declared = field.args.filter((arg) => isNonNullType(arg.type) || takesSession(arg))
      const query = `${root} (${declared.map(({ name, type }) => `$${name}: ${type}`)}) { ${field.name}(${declared.map(({ name }) => `${name}: $${name}`)}) { __typename } }`
      const variables = Object.fromEntries(declared.map(({ name, type }) => [name, valueFor(name, type, id)]))
      const returned: string[] = []
      let answer = ''
      const statements = await statementsDuring(
        new URL(served.database.url).pathname.slice(1),
        async () => {
          const response = await fetch(served.endpoint, {
            method: 'POST',
            headers: {
              'content-type': 'application/json',
              accept: 'application/json, text/event-stream',
              authorization: `Bearer ${b}`,
            },
            body: JSON.stringify({ query, variables }),
          })
          answer = (await response.text()).replaceAll(id, 'ID')
        },
        [],
        returned,
      )
      return { statements, bytes: returned.join('').replaceAll(id, 'ID').length, answer }
    }
    const [small, large] = [await asked(ids.small), await asked(ids.large)]
    expect(large.answer).toEqual(small.answer)
    expect(large.statements).toEqual(small.statements)
    // Ids of transactions and times may differ by a digit.
    expect(Math.abs(large.bytes - small.bytes)).toBeLessThan(20)
    expect(large.bytes).toBeLessThan(1000)
    // Whose it is cannot be told from it that there is one; only that an id is taken.
    if (field.name === 'createSession') return
    const unknown = await asked(ids.unknown)
    expect(unknown.answer).toEqual(small.answer)
    expect(unknown.statements).toEqual(small.statements)
  },
)
