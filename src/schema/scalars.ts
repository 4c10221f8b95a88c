import { GraphQLError, GraphQLScalarType, Kind } from 'graphql'
import { builder } from './builder.ts'

// RFC 3339 with an offset; what goes out is always UTC with milliseconds.
const instant = /^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$/

function parseInstant(value: unknown): Date {
  const date = typeof value === 'string' && instant.test(value) ? new Date(value) : undefined
  if (!date || Number.isNaN(date.getTime()))
    throw new GraphQLError('DateTime takes an RFC 3339 date and time with an offset, like 2026-01-31T09:30:00.000Z', {
      extensions: { code: 'BAD_USER_INPUT' },
    })
  return date
}

function wholeNumber(value: unknown): number {
  const number = typeof value === 'bigint' ? Number(value) : value
  if (typeof number !== 'number' || !Number.isSafeInteger(number))
    throw new GraphQLError('SafeInt takes whole numbers between -(2^53 - 1) and 2^53 - 1', {
      extensions: { code: 'BAD_USER_INPUT' },
    })
  return number
}

builder.addScalarType(
  'DateTime',
  new GraphQLScalarType<Date, string>({
    name: 'DateTime',
    description: 'A point in time as RFC 3339 text, in UTC with milliseconds: 2026-01-31T09:30:00.000Z.',
    // Columns are dates; times inside an event's payload are text already.
    serialize: (value) => new Date(value as Date | string).toISOString(),
    parseValue: parseInstant,
    parseLiteral: (node) => parseInstant(node.kind === Kind.STRING ? node.value : undefined),
  }),
)

builder.addScalarType(
  'SafeInt',
  new GraphQLScalarType<number, number>({
    name: 'SafeInt',
    description: 'A whole number up to 2^53 - 1 as a JSON number: token counts outgrow the 32 bits of Int.',
    serialize: wholeNumber,
    parseValue: wholeNumber,
    parseLiteral: (node) => wholeNumber(node.kind === Kind.INT ? Number(node.value) : undefined),
  }),
)
