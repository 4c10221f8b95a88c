import type { ObjectParam } from '@pothos/core'
import { builder } from './builder.ts'

type Types = typeof builder.$inferSchemaTypes

/** A result union. Its members' names are the tags of the outcomes that a mutation's function answers with. */
export function resultOf<Member extends ObjectParam<Types>>(name: string, description: string, types: Member[]) {
  return builder.unionType(name, {
    description,
    types,
    resolveType: (outcome) => (outcome as { type: string }).type,
  })
}
