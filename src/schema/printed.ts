import { type GraphQLSchema, lexicographicSortSchema, printSchema } from 'graphql'

/** The schema as text, sorted: the same code always gives the same file. */
export const printed = (schema: GraphQLSchema): string => `${printSchema(lexicographicSortSchema(schema))}\n`
