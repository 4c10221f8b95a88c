import { readdirSync, readFileSync } from 'node:fs'
import { type DocumentNode, isInterfaceType, Kind, parse, validate, visit } from 'graphql'
import { expect, it } from 'vitest'
import { schema } from '../src/schema/index.ts'
import * as documents from './generated/graphql.ts'

const dir = new URL('./operations/', import.meta.url)
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

it('API-16: the subscription of a client asks for every event and for all that it says', () => {
  const asked = new Map<string, string[]>()
  visit(stored, {
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
