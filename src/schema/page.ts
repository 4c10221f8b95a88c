import { refusal } from './refusal.ts'

export const pageSizeDefault = 50
export const pageSizeMax = 200

/** The position of a row in a list: the values of its order by, as text or whole numbers. */
export type Position = readonly (string | number)[]

export interface PageArgs {
  first?: number | null
  last?: number | null
  after?: string | null
  before?: string | null
}

/** A page as SQL needs it. Rows are read from its end when `backward`; one more than `limit` tells whether there are others. */
export interface Page<P extends Position> {
  limit: number
  backward: boolean
  after: P | null
  before: P | null
}

/** How the cursors of one list are made and checked. `name` keeps a cursor of another list from being taken. */
export interface Cursors<P extends Position> {
  encode(position: P): string
  decode(cursor: string, argument: string): P
}

/** Opaque cursors for positions of these shapes: 'number' a whole number, 'time' an ISO time, 'text' any text that the database takes. */
export function cursors<P extends Position>(name: string, shape: readonly ('number' | 'time' | 'text')[]): Cursors<P> {
  const fits = {
    number: (value: unknown) => Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 31,
    time: (value: unknown) => typeof value === 'string' && isIsoTime(value),
    text: (value: unknown) => typeof value === 'string' && value.length <= 200 && !/[\0\p{Cs}]/u.test(value),
  }
  return {
    encode: (position) => Buffer.from(JSON.stringify([name, ...position])).toString('base64url'),
    decode(cursor, argument) {
      const [tag, ...position] = parse(cursor)
      if (tag !== name || position.length !== shape.length || !shape.every((kind, i) => fits[kind](position[i])))
        throw refusal(
          'BAD_USER_INPUT',
          `${argument} is not a cursor of this list; take one from edges.cursor or pageInfo`,
        )
      return position as unknown as P
    },
  }
}

function parse(cursor: string): unknown[] {
  try {
    const value: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'))
    return Array.isArray(value) ? value : []
  } catch {
    return []
  }
}

/** Of a year that the database and JavaScript write alike: neither has the other's year 0, nor a sign before it. */
function isIsoTime(text: string): boolean {
  if (!/^(?!0000)\d{4}-/.test(text)) return false
  const date = new Date(text)
  return !Number.isNaN(date.getTime()) && date.toISOString() === text
}

/** Checks paging arguments. Throws BAD_USER_INPUT that names the argument and the rule. */
export function pageOf<P extends Position>(args: PageArgs, cursors: Cursors<P>): Page<P> {
  const first = args.first ?? null
  const last = args.last ?? null
  if (first !== null && last !== null) throw refusal('BAD_USER_INPUT', 'first and last cannot be given together')
  const limit = size(first, 'first') ?? size(last, 'last') ?? pageSizeDefault
  return {
    limit,
    backward: last !== null,
    after: args.after == null ? null : cursors.decode(args.after, 'after'),
    before: args.before == null ? null : cursors.decode(args.before, 'before'),
  }
}

function size(value: number | null, argument: string): number | null {
  if (value !== null && (value < 0 || value > pageSizeMax))
    throw refusal('BAD_USER_INPUT', `${argument} must be between 0 and ${pageSizeMax}, not ${value}`)
  return value
}

/**
 * The connection of one page. `rows` come as they were read: from the page's end if it is backward, at most limit + 1. A cursor
 * stands for a row that was there when it was handed out, so something lies beyond it.
 */
export function connection<R, P extends Position>(
  page: Page<P>,
  rows: readonly R[],
  cursors: Cursors<P>,
  positionOf: (row: R) => NoInfer<P>,
) {
  const more = rows.length > page.limit
  const kept = rows.slice(0, page.limit)
  if (page.backward) kept.reverse()
  const edges = kept.map((node) => ({ cursor: cursors.encode(positionOf(node)), node }))
  return {
    edges,
    pageInfo: {
      hasNextPage: page.backward ? page.before !== null : more || page.before !== null,
      hasPreviousPage: page.backward ? more || page.after !== null : page.after !== null,
      startCursor: edges[0]?.cursor ?? null,
      endCursor: edges.at(-1)?.cursor ?? null,
    },
  }
}
