import { readFileSync } from 'node:fs'
import {
  buildSchema,
  type GraphQLField,
  getNamedType,
  isEnumType,
  isInputObjectType,
  isInterfaceType,
  isLeafType,
  isObjectType,
  isUnionType,
  parse,
  validate,
} from 'graphql'
import { expect, it } from 'vitest'
import { schema } from '../src/schema/index.ts'
import { printed } from '../src/schema/printed.ts'

const types = Object.values(schema.getTypeMap()).filter((type) => !type.name.startsWith('__'))
const builtIn = new Set(['String', 'Int', 'Float', 'Boolean', 'ID'])

it('API-01: schema.graphql is what the code says (refresh it with scripts/print-schema.ts)', () => {
  const stored = readFileSync(new URL('../schema.graphql', import.meta.url), 'utf8')
  expect(printed(schema)).toBe(stored)
  buildSchema(stored)
})

it('API-03: every type, field, argument and enum value has a description', () => {
  const bare: string[] = []
  const note = (name: string, { description }: { description?: string | null }) => {
    if (!description?.trim()) bare.push(name)
  }
  for (const type of types.filter(({ name }) => !builtIn.has(name))) {
    note(type.name, type)
    if (isEnumType(type)) for (const value of type.getValues()) note(`${type.name}.${value.name}`, value)
    if (isObjectType(type) || isInterfaceType(type))
      for (const field of Object.values(type.getFields())) {
        note(`${type.name}.${field.name}`, field)
        for (const argument of field.args) note(`${type.name}.${field.name}(${argument.name})`, argument)
      }
    if (isInputObjectType(type))
      for (const field of Object.values(type.getFields())) note(`${type.name}.${field.name}`, field)
  }
  expect(bare).toEqual([])
})

it('API-02: all members of a union, of Message and of SessionEvent can be selected together without aliases', () => {
  const abstract = types.filter((type) => isUnionType(type) || (isInterfaceType(type) && type.name !== 'Node'))
  expect(abstract.length).toBeGreaterThanOrEqual(12)
  for (const type of abstract) {
    const members = schema.getPossibleTypes(type as never)
    const selections = members.map(({ name, getFields }) => {
      const fields = Object.values(
        getFields.call(schema.getType(name)) as Record<string, GraphQLField<unknown, unknown>>,
      )
      return `... on ${name} { ${fields.map(selection).join(' ')} }`
    })
    const document = parse(
      `query { ...All } fragment All on Query { node(id: "x") { __typename } } fragment Members on ${type.name} { ${selections.join('\n')} }`,
    )
    const problems = validate(schema, document).filter(({ message }) => !message.includes('never used'))
    expect(problems.map(({ message }) => message)).toEqual([])
  }
})

/** A field with everything that it needs to be selected. */
function selection(field: GraphQLField<unknown, unknown>): string {
  return isLeafType(getNamedType(field.type)) ? field.name : `${field.name} { __typename }`
}
