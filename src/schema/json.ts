// JSON as a scalar: whatever comes back is what was given, or it was refused. Of a document's own values the rules are checked here; of variables
// where their text is read (http/parameters.ts, http/connection.ts).

import { GraphQLError, GraphQLScalarType, Kind, type ValueNode } from 'graphql'
import { inexactText, isExact } from '../exact-numbers.ts'
import { builder } from './builder.ts'

const refused = (message: string, node: ValueNode) =>
  new GraphQLError(message, { nodes: node, extensions: { code: 'BAD_USER_INPUT' } })

type Path = (string | number)[]

function jsonOf(node: ValueNode, variables: Readonly<Record<string, unknown>> | null | undefined, path: Path): unknown {
  switch (node.kind) {
    case Kind.STRING:
    case Kind.BOOLEAN:
      return node.value
    case Kind.NULL:
      return null
    case Kind.INT:
    case Kind.FLOAT:
      if (!isExact(node.value)) throw refused(inexactText({ path, number: node.value }), node)
      return Number(node.value)
    case Kind.ENUM:
      throw refused(
        `${path.join('.')}: ${node.value} is an enum value, which JSON does not have; write "${node.value}"`,
        node,
      )
    case Kind.LIST:
      return node.values.map((value, index) => jsonOf(value, variables, [...path, index]))
    case Kind.OBJECT:
      return Object.fromEntries(
        node.fields.map(({ name, value }) => [name.value, jsonOf(value, variables, [...path, name.value])]),
      )
    // Checked when its own value came; of the document alone it is not known.
    case Kind.VARIABLE:
      return variables?.[node.name.value]
  }
}

builder.addScalarType(
  'JSON',
  new GraphQLScalarType<unknown, unknown>({
    name: 'JSON',
    description:
      'Any JSON value: object, list, text, number, boolean or null. It comes back as it was given; a number that a double cannot hold is refused.',
    specifiedByURL: 'http://www.ecma-international.org/publications/files/ECMA-ST/ECMA-404.pdf',
    serialize: (value) => value,
    parseValue: (value) => value,
    parseLiteral: (node, variables) => jsonOf(node, variables, ['JSON']),
  }),
)
