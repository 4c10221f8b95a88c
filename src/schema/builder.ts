import SchemaBuilder from '@pothos/core'
import PrismaPlugin from '@pothos/plugin-prisma'
import RelayPlugin from '@pothos/plugin-relay'
import type { Db } from '../db.ts'
import type PrismaTypes from '../generated/pothos.ts'
import { getDatamodel } from '../generated/pothos.ts'
import type { Context } from './context.ts'

/** Collects the schema. The files beside this one add to it, one noun each; index.ts builds it. */
export const builder = new SchemaBuilder<{
  Context: Context
  PrismaTypes: PrismaTypes
  DefaultFieldNullability: false
  DefaultEdgesNullability: { list: false; items: false }
  DefaultNodeNullability: false
  Scalars: {
    ID: { Input: string; Output: string }
    DateTime: { Input: Date; Output: Date | string }
    SafeInt: { Input: number; Output: number | bigint }
    JSON: { Input: unknown; Output: unknown }
  }
}>({
  plugins: [RelayPlugin, PrismaPlugin],
  defaultFieldNullability: false,
  prisma: {
    // Inside a query's snapshot this is the transaction's client, which has all that the plugin calls.
    client: (context) => context.db as Db,
    dmmf: getDatamodel(),
  },
  relay: {
    cursorType: 'String',
    nodeQueryOptions: false,
    nodesQueryOptions: false,
    edgesFieldOptions: { nullable: { list: false, items: false }, description: 'The entries of this page, in order.' },
    nodeFieldOptions: { nullable: false, description: 'The entry itself.' },
    cursorFieldOptions: { description: 'Where this entry stands; give it as `after` or `before` to go on from here.' },
    pageInfoFieldOptions: { description: 'Where this page stands in the whole list.' },
    pageInfoTypeOptions: { description: 'Where a page stands in the whole list, and how to get the next one.' },
    hasNextPageFieldOptions: { description: 'Whether entries follow this page.' },
    hasPreviousPageFieldOptions: { description: 'Whether entries come before this page.' },
    startCursorFieldOptions: { description: 'Cursor of the first entry; null on an empty page.' },
    endCursorFieldOptions: { description: 'Cursor of the last entry; null on an empty page.' },
    firstArgOptions: {
      description: 'How many entries from the start of the list or after `after`: 0 to 200, 50 if nothing is said.',
    },
    lastArgOptions: {
      description: 'How many entries from the end of the list or before `before`: 0 to 200. Not together with `first`.',
    },
    afterArgOptions: { description: 'Cursor of the entry after which the page starts.' },
    beforeArgOptions: { description: 'Cursor of the entry before which the page ends.' },
  },
})

builder.queryType({
  description: 'Reads. One operation sees one state of the database, however many fields it selects.',
})
builder.mutationType({
  description:
    'Changes. Each can be repeated byte for byte after a lost answer and takes effect once; what a caller can act on is a member of its result union.',
})
builder.subscriptionType({ description: 'Streams, over WebSocket (graphql-transport-ws) or server-sent events.' })
