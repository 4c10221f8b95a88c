import { GraphQLError, Kind, type SelectionSetNode, type ValidationRule } from 'graphql'
import type { Plugin } from 'graphql-yoga'

const conditions = new Set(['skip', 'include'])

/**
 * The field of a subscription must be there whatever the variables say (GraphQL, section 5.2.4.1 of the current draft): the executor does not expect that
 * there is none, and fails as if the server were at fault.
 */
export function useUnconditionalRoot(): Plugin {
  return { onValidate: ({ addValidationRule }) => addValidationRule(unconditionalRoot) }
}

const unconditionalRoot: ValidationRule = (context) => ({
  OperationDefinition({ operation, selectionSet }) {
    if (operation !== 'subscription') return
    const seen = new Set<string>()
    const look = ({ selections }: SelectionSetNode) => {
      for (const selection of selections) {
        const condition = selection.directives?.find(({ name }) => conditions.has(name.value))
        if (condition)
          context.reportError(
            new GraphQLError(`the field of a subscription must not have @${condition.name.value}`, {
              nodes: condition,
            }),
          )
        if (selection.kind === Kind.INLINE_FRAGMENT) look(selection.selectionSet)
        if (selection.kind !== Kind.FRAGMENT_SPREAD || seen.has(selection.name.value)) continue
        seen.add(selection.name.value)
        const fragment = context.getFragment(selection.name.value)
        if (fragment) look(fragment.selectionSet)
      }
    }
    look(selectionSet)
  },
})
