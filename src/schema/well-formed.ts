import {
  type GraphQLArgument,
  GraphQLID,
  type GraphQLInputType,
  type GraphQLSchema,
  isInputObjectType,
  isListType,
  isNonNullType,
  isObjectType,
} from 'graphql'
import { isIllFormed } from '../runner/rules.ts'
import { refusal } from './refusal.ts'

/**
 * Refuses arguments with half of a surrogate pair before a resolver gets them: no database takes such a text, so a look-up by it would fail as if the
 * database were at fault. Of a mutation the ids only: what else it is given has rules of its own, whose breach its result names.
 */
export function refuseIllFormed(schema: GraphQLSchema): GraphQLSchema {
  for (const type of Object.values(schema.getTypeMap())) {
    if (!isObjectType(type) || type.name.startsWith('__')) continue
    const idsOnly = type === schema.getMutationType()
    for (const field of Object.values(type.getFields())) {
      const { resolve, subscribe, args } = field
      if (args.length === 0) continue
      // A subscription's arguments are looked at when it starts, not with each of its items.
      if (subscribe) field.subscribe = checked(subscribe, args, idsOnly)
      else if (resolve) field.resolve = checked(resolve, args, idsOnly)
    }
  }
  return schema
}

type Resolver = (root: unknown, args: Record<string, unknown>, ...rest: never[]) => unknown

function checked<R>(resolver: R, types: readonly GraphQLArgument[], idsOnly: boolean): R {
  return ((root, args, ...rest) => {
    for (const { name, type } of types) check(args[name], type, name, idsOnly)
    return (resolver as Resolver)(root, args, ...rest)
  }) as Resolver as R
}

function check(value: unknown, type: GraphQLInputType, path: string, idsOnly: boolean): void {
  if (value === null || value === undefined) return
  if (isNonNullType(type)) check(value, type.ofType, path, idsOnly)
  else if (isListType(type)) for (const one of value as unknown[]) check(one, type.ofType, path, idsOnly)
  else if (isInputObjectType(type))
    for (const field of Object.values(type.getFields()))
      check((value as Record<string, unknown>)[field.name], field.type, `${path}.${field.name}`, idsOnly)
  else if (typeof value === 'string' && (!idsOnly || type === GraphQLID) && isIllFormed(value))
    throw refusal('BAD_USER_INPUT', `${path} must be well-formed Unicode: it has half of a surrogate pair`)
}
