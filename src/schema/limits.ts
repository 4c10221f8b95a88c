import {
  type DocumentNode,
  type FragmentDefinitionNode,
  GraphQLError,
  Kind,
  parse,
  type SelectionSetNode,
} from 'graphql'
import type { Plugin } from 'graphql-yoga'

/** What one document may cost. GraphiQL's introspection is 15 levels deep; a session with everything in it is 8. */
export const documentLimits = { depth: 20, aliases: 200, fields: 2000, tokens: 10_000 } as const

interface Size {
  depth: number
  aliases: number
  fields: number
}

const nothing: Size = { depth: 0, aliases: 0, fields: 0 }

/** Refuses documents beyond the limits before validation, whose own cost grows with the square of some of them. */
export function useDocumentLimits(): Plugin {
  return {
    onParse({ setParseFn }) {
      // Stops at the limit instead of reading on; text in a document is one token, however long.
      setParseFn((source, options) => {
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
    for (const what of ['depth', 'aliases', 'fields'] as const)
      if (size[what] > documentLimits[what])
        return `the document is too large: ${what} ${size[what]}, the limit is ${documentLimits[what]}`
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
  }
  return sum
}
