import {
  type DocumentNode,
  type FieldNode,
  type FragmentDefinitionNode,
  GraphQLError,
  Kind,
  parse,
  type SelectionSetNode,
} from 'graphql'
import type { Plugin } from 'graphql-yoga'
import { eventsMax } from './event/of-session.ts'
import { pageSizeDefault, pageSizeMax } from './page.ts'

/**
 * What one document may cost. GraphiQL's introspection is 15 levels deep; a session with everything in it is 8. `items`: the entries of its lists,
 * with pages as long as they may be and other lists as long as they usually are at most, lists within lists multiplied; a page of 200 sessions with everything in them
 * is 211 200. What lists really hold is counted as the answer grows (batched.ts).
 */
export const documentLimits = {
  depth: 20,
  aliases: 200,
  fields: 2000,
  items: 250_000,
  verifySession: 1,
  tokens: 10_000,
  /** A prompt of 4 MB may stand in it; attachments belong into variables. */
  characters: 4_500_000,
} as const

interface Size {
  depth: number
  aliases: number
  fields: number
  items: number
  /** Each replays a whole log in memory. */
  verifySession: number
}

const nothing: Size = { depth: 0, aliases: 0, fields: 0, items: 0, verifySession: 0 }

const advice: Partial<Record<keyof Size, string>> = {
  items:
    '; lists within lists multiply: ask for smaller pages with `first` or `last` as a number, or for fewer lists within lists',
  verifySession: '; ask one after the other',
}

/** Entries of the lists that are asked for by pages: where the document does not say, and where a variable says. */
const pages: Record<string, { unsaid: number; most: number }> = {
  sessions: { unsaid: pageSizeDefault, most: pageSizeMax },
  messages: { unsaid: pageSizeDefault, most: pageSizeMax },
  interactions: { unsaid: pageSizeDefault, most: pageSizeMax },
  quarantine: { unsaid: pageSizeDefault, most: pageSizeMax },
  events: { unsaid: 100, most: eventsMax },
}
/** And of those that come whole: a guess. */
const whole: Record<string, number> = { inputs: 100, interactions: 100, recoveries: 100, quarantine: 100, parts: 10 }

/** Refuses documents beyond the limits before validation, whose own cost grows with the square of some of them. */
export function useDocumentLimits(): Plugin {
  return {
    onParse({ setParseFn }) {
      // Stops at the limit instead of reading on; text in a document is one token, however long.
      setParseFn((source, options) => {
        const { length } = typeof source === 'string' ? source : source.body
        if (length > documentLimits.characters)
          throw tooLarge(
            `the document is too large: characters ${length}, the limit is ${documentLimits.characters}; put texts into variables`,
          )
        try {
          return parse(source, { ...options, maxTokens: documentLimits.tokens })
        } catch (thrown) {
          // Lists in lists within the tokens can still be more than the parser's recursion takes.
          throw thrown instanceof RangeError ? tooLarge('the document is too large: it is nested too deeply') : thrown
        }
      })
    },
    onValidate({ params, setResult }) {
      const problem = excessOf(params.documentAST)
      if (problem) setResult([tooLarge(problem)])
    },
  }
}

const tooLarge = (problem: string) =>
  new GraphQLError(problem, { extensions: { code: 'DOCUMENT_TOO_LARGE', http: { status: 400, spec: true } } })

/** Which limit a document exceeds, in words; undefined if none. */
export function excessOf(document: DocumentNode): string | undefined {
  const fragments = new Map<string, FragmentDefinitionNode>()
  for (const definition of document.definitions)
    if (definition.kind === Kind.FRAGMENT_DEFINITION) fragments.set(definition.name.value, definition)
  const known = new Map<string, Size>()
  for (const definition of document.definitions) {
    if (definition.kind !== Kind.OPERATION_DEFINITION) continue
    const size = sizeOf(definition.selectionSet, fragments, known)
    for (const what of Object.keys(nothing) as (keyof Size)[])
      if (size[what] > documentLimits[what])
        return `the document is too large: ${what} ${size[what]}, the limit is ${documentLimits[what]}${advice[what] ?? ''}`
  }
  return undefined
}

/** With fragments spread, each counted as often as it is spread but walked once. */
function sizeOf(set: SelectionSetNode, fragments: Map<string, FragmentDefinitionNode>, known: Map<string, Size>): Size {
  const sum = { ...nothing }
  for (const selection of set.selections) {
    let inner = nothing
    if (selection.kind === Kind.FRAGMENT_SPREAD) {
      const name = selection.name.value
      const size = known.get(name)
      if (size) inner = size
      else {
        // A ring of fragments comes back to here while it is being walked; validation refuses it afterwards.
        known.set(name, nothing)
        const fragment = fragments.get(name)
        if (fragment) inner = sizeOf(fragment.selectionSet, fragments, known)
        known.set(name, inner)
      }
    } else if (selection.selectionSet) inner = sizeOf(selection.selectionSet, fragments, known)
    const isField = selection.kind === Kind.FIELD
    sum.depth = Math.max(sum.depth, inner.depth + (isField ? 1 : 0))
    sum.aliases += inner.aliases + (isField && selection.alias ? 1 : 0)
    sum.fields += inner.fields + (isField ? 1 : 0)
    const entries = isField ? entriesOf(selection) : undefined
    sum.items += entries === undefined ? inner.items : entries * (1 + inner.items)
    sum.verifySession += inner.verifySession + (isField && selection.name.value === 'verifySession' ? 1 : 0)
  }
  return sum
}

/** How many entries this list may have; undefined if it is none. A field name means one thing everywhere but for the lists of an inbox, which have edges. */
function entriesOf({ name, selectionSet, arguments: given }: FieldNode): number | undefined {
  const page = pages[name.value]
  const isWhole = !selectionSet?.selections.some((inner) => inner.kind === Kind.FIELD && inner.name.value === 'edges')
  if (Object.hasOwn(whole, name.value) && isWhole) return whole[name.value]
  if (page === undefined || !Object.hasOwn(pages, name.value)) return undefined
  const said = (given ?? [])
    .filter((argument) => ['first', 'last'].includes(argument.name.value) && argument.value.kind !== Kind.NULL)
    .map(({ value }) => (value.kind === Kind.INT && Number(value.value) >= 0 ? Number(value.value) : page.most))
  return said.length === 0 ? page.unsaid : Math.min(Math.max(...said), page.most)
}
