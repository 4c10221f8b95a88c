import { readdirSync, readFileSync } from 'node:fs'
import { type DocumentNode, isInterfaceType, Kind, parse, validate, visit } from 'graphql'
import { expect, it } from 'vitest'
import * as documents from '../src/client/generated/graphql.ts'
import { schema } from '../src/schema/index.ts'

const dir = new URL('../src/client/operations/', import.meta.url)
const stored = parse(
  readdirSync(dir)
    .map((file) => readFileSync(new URL(file, dir), 'utf8'))
    .join('\n'),
)

it('API-16: the operations of a client are valid, and each has a typed document', () => {
  expect(validate(schema, stored)).toEqual([])
  const names = stored.definitions.flatMap((node) =>
    node.kind === Kind.OPERATION_DEFINITION ? [node.name!.value] : [],
  )
  expect(names.length).toBeGreaterThan(15)
  const typed = documents as unknown as Record<string, DocumentNode | undefined>
  for (const name of names) {
    const document = typed[`${name}Document`]
    expect(document?.definitions[0], name).toMatchObject({ kind: Kind.OPERATION_DEFINITION, name: { value: name } })
    expect(validate(schema, document!)).toEqual([])
  }
})

it('API-16: there is an operation for every query, mutation and subscription', () => {
  const used = new Set(
    stored.definitions.flatMap((node) =>
      node.kind === Kind.OPERATION_DEFINITION
        ? node.selectionSet.selections.flatMap((one) => (one.kind === Kind.FIELD ? [one.name.value] : []))
        : [],
    ),
  )
  const roots = [schema.getQueryType(), schema.getMutationType(), schema.getSubscriptionType()]
  for (const root of roots) expect([...used]).toEqual(expect.arrayContaining(Object.keys(root!.getFields())))
})

it('API-16: the subscription of a client asks for every event and for all that it says', () => {
  const asked = new Map<string, string[]>()
  visit(stored, {
    // What carries items of the stream; a fragment of other types says less of them.
    FragmentDefinition: (node) => (node.name.value === 'SessionEventFields' ? undefined : false),
    OperationDefinition: () => false,
    InlineFragment(node) {
      const fields = node.selectionSet.selections.flatMap((one) => (one.kind === Kind.FIELD ? [one.name.value] : []))
      asked.set(node.typeCondition!.name.value, fields)
    },
  })
  const event = schema.getType('SessionEvent')
  if (!isInterfaceType(event)) throw new Error('SessionEvent is missing')
  const shared = Object.keys(event.getFields())
  for (const type of schema.getPossibleTypes(event)) {
    const own = Object.keys(type.getFields()).filter((name) => !shared.includes(name))
    expect(asked.get(type.name)?.sort() ?? [], type.name).toEqual(own.sort())
  }
})
