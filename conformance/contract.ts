import { readFileSync } from 'node:fs'
import { buildSchema, type GraphQLObjectType, getNamedType, isAbstractType, isLeafType, isObjectType } from 'graphql'

/** What clients can rely on: a server's schema has to have at least this. */
export const contract = buildSchema(readFileSync(new URL('contract.graphql', import.meta.url), 'utf8'))

/** Members of a union or implementations of an interface, by name. */
export function membersOf(abstract: string): readonly GraphQLObjectType[] {
  const type = contract.getType(abstract)
  if (!isAbstractType(type)) throw new Error(`${abstract} is neither a union nor an interface`)
  return contract.getPossibleTypes(type)
}

/**
 * A selection of every field of every member, without an alias. Objects below are selected down to `depth` levels, where only fields
 * without arguments count; what lies deeper is left out.
 */
export const everyMember = (abstract: string, depth = 1): string =>
  `{ __typename ${membersOf(abstract)
    .map((type) => `... on ${type.name} ${everyField(type, depth)}`)
    .join(' ')} }`

function everyField(type: GraphQLObjectType, depth: number): string {
  const fields = Object.values(type.getFields()).flatMap((field) => {
    const inner = getNamedType(field.type)
    if (isLeafType(inner)) return [field.name]
    if (depth === 0 || field.args.length > 0 || !isObjectType(inner)) return []
    return [`${field.name} ${everyField(inner, depth - 1)}`]
  })
  return `{ __typename ${fields.join(' ')} }`
}

/** Everything that a session event has, for streams and for `Session.events` alike. */
export const eventFields = everyMember('SessionEvent')
