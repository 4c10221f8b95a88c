import { type DocumentNode, type FragmentDefinitionNode, getOperationAST, Kind, type SelectionSetNode } from 'graphql'

/** Mutations that make work or a session durable: what they ask for outlives them, and costs more than they do. */
export const admissions: ReadonlySet<string> = new Set([
  'admitPrompt',
  'compactSession',
  'createSession',
  'resumeSession',
])

/** How many admissions an operation asks for, each as often as it stands there. Validated, so without fragments that hold themselves. */
export function admissionsOf(document: DocumentNode, operationName: string | null | undefined): number {
  const operation = getOperationAST(document, operationName)
  if (operation?.operation !== 'mutation') return 0
  const fragments = new Map(
    document.definitions
      .filter((one): one is FragmentDefinitionNode => one.kind === Kind.FRAGMENT_DEFINITION)
      .map((one) => [one.name.value, one.selectionSet]),
  )
  const count = ({ selections }: SelectionSetNode): number =>
    selections.reduce((sum, selection) => {
      if (selection.kind === Kind.FIELD) return sum + (admissions.has(selection.name.value) ? 1 : 0)
      const inner =
        selection.kind === Kind.INLINE_FRAGMENT ? selection.selectionSet : fragments.get(selection.name.value)
      return sum + (inner === undefined ? 0 : count(inner))
    }, 0)
  return count(operation.selectionSet)
}
