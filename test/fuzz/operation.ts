// Operations in the shape of the schema: fields, arguments, fragments, aliases and directives drawn at random.
import {
  type GraphQLField,
  type GraphQLInputType,
  type GraphQLObjectType,
  type GraphQLOutputType,
  type GraphQLSchema,
  getNamedType,
  isAbstractType,
  isInterfaceType,
  isNonNullType,
  isObjectType,
} from 'graphql'
import type { Random } from '../support/random.ts'
import { anyJson, literal, valueFor, type World } from './values.ts'

export interface FuzzOperation {
  kind: 'query' | 'mutation' | 'subscription'
  query: string
  variables?: unknown
  operationName?: unknown
  extensions?: unknown
}

const depthMax = 5

interface Draft {
  random: Random
  world: World
  schema: GraphQLSchema
  declared: Map<string, { type: GraphQLInputType; value: unknown }>
  aliases: number
}

function argumentsOf(draft: Draft, field: GraphQLField<unknown, unknown>): string {
  const { random, world, declared } = draft
  const given = field.args.filter((one) => isNonNullType(one.type) || random.chance(0.35))
  const texts = given.map(({ name, type }) => {
    const value = valueFor(type, random, world, name)
    if (random.chance(0.4)) return `${name}:${literal(value, type)}`
    const variable = `v${declared.size}`
    declared.set(variable, { type, value })
    return `${name}:$${variable}`
  })
  if (random.chance(0.001)) texts.push('unknownArgument:1')
  return texts.length > 0 ? `(${texts.join(',')})` : ''
}

function directives({ random, declared }: Draft): string {
  if (!random.chance(0.02)) return ''
  const odd = random.chance(0.1)
  const what = odd ? random.of(['deprecated', 'unknown'] as const) : random.of(['skip', 'include'] as const)
  const value = odd
    ? random.of(['null', '"x"', declared.has('v0') ? '$v0' : '$none'] as const)
    : random.of(['true', 'false'] as const)
  return ` @${what}(if:${value})`
}

function fieldText(draft: Draft, name: string, field: GraphQLField<unknown, unknown>, depth: number): string | null {
  const inner = selection(draft, field.type, depth + 1)
  if (inner === null) return null
  const given = argumentsOf(draft, field)
  // Under its own name it may stand but once with arguments, or with an inner selection of its own.
  const isPlain = given === '' && inner === ''
  const alias = isPlain && !draft.random.chance(0.05) ? '' : `a${draft.aliases++}:`
  return `${alias}${name}${given}${directives(draft)}${inner}`
}

function fieldsOf(draft: Draft, type: { getFields(): Record<string, GraphQLField<unknown, unknown>> }, depth: number) {
  const { random } = draft
  const all = Object.entries(type.getFields())
  const texts = [random.chance(0.5) ? '__typename' : 'id'].filter(
    (name) => name === '__typename' || 'id' in type.getFields(),
  )
  for (let n = random.from(1, depth > 2 ? 3 : 6); n > 0; n--) {
    const [name, field] = random.of(all as [(typeof all)[0], ...typeof all])
    const text = fieldText(draft, name, field, depth)
    if (text !== null) texts.push(text)
  }
  if (random.chance(0.001)) texts.push('unknownField')
  return texts
}

/** What is selected of a value of this type: '' of a leaf, null if it lies too deep. */
function selection(draft: Draft, output: GraphQLOutputType, depth: number): string | null {
  const type = getNamedType(output)
  const { random, schema } = draft
  if (isObjectType(type)) {
    if (depth > depthMax) return null
    const texts = fieldsOf(draft, type, depth)
    return `{${texts.length > 0 ? texts.join(' ') : '__typename'}}`
  }
  if (!isAbstractType(type)) return ''
  if (depth > depthMax) return null
  const texts = ['__typename', ...(isInterfaceType(type) ? fieldsOf(draft, type, depth) : [])]
  const possible = schema.getPossibleTypes(type)
  for (let n = random.from(1, 4); n > 0; n--) {
    const one = random.of(possible as unknown as [GraphQLObjectType, ...GraphQLObjectType[]])
    texts.push(`... on ${one.name}{${['__typename', ...fieldsOf(draft, one, depth)].join(' ')}}`)
  }
  return `{${texts.join(' ')}}`
}

/** Damage to a document's text. */
function damaged(random: Random, text: string): string {
  const at = random.below(text.length)
  switch (random.below(5)) {
    case 0:
      return text.slice(0, at)
    case 1:
      return (
        text.slice(0, at) + random.of(['{', '}', '"', '\ud800', '\0', '#', '...', '$', '@'] as const) + text.slice(at)
      )
    case 2:
      return `${text} ${text}`
    case 3:
      return `${text} fragment F on Session { ...F } `
    default:
      return `fragment A on Query { ...B } fragment B on Query { ...A } query Q { ...A }`
  }
}

export function drawOperation(schema: GraphQLSchema, random: Random, world: World): FuzzOperation {
  const kind = random.chance(0.1) ? 'subscription' : random.chance(0.5) ? 'mutation' : 'query'
  const root = {
    query: schema.getQueryType(),
    mutation: schema.getMutationType(),
    subscription: schema.getSubscriptionType(),
  }[kind]!
  const draft: Draft = { random, world, schema, declared: new Map(), aliases: 0 }
  const all = Object.entries(root.getFields())
  const texts: string[] = []
  for (let n = kind === 'subscription' ? 1 : random.from(1, 3); n > 0; n--) {
    const [name, field] = random.of(all as [(typeof all)[0], ...typeof all])
    const text = fieldText(draft, name, field, 0)
    if (text !== null) texts.push(text)
  }
  const declared = [...draft.declared].map(
    ([name, { type }]) => `$${name}:${random.chance(0.01) ? 'Int' : String(type)}`,
  )
  const name = random.chance(0.3) ? ' Named' : ''
  const head = declared.length > 0 ? `${kind}${name}(${declared.join(',')})` : `${kind}${name}`
  let query = `${head}${directives(draft)}{${texts.join(' ')}}`
  if (random.chance(0.04)) query = damaged(random, query)
  const variables: Record<string, unknown> = Object.fromEntries(
    [...draft.declared].map(([key, { value }]) => [key, value]),
  )
  if (random.chance(0.03)) variables.unused = anyJson(random)
  return {
    kind,
    query,
    variables: random.chance(0.02) ? anyJson(random, 1) : variables,
    ...(random.chance(0.05) && { operationName: random.of<unknown>(['Named', 'Other', '', null, 1, {}]) }),
    ...(random.chance(0.03) && { extensions: anyJson(random, 2) }),
  }
}
