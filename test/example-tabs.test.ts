import { type GraphQLError, getVariableValues, Kind, type OperationDefinitionNode, parse, validate } from 'graphql'
import { describe, expect, it } from 'vitest'
import { exampleTabs } from '../src/http/example-tabs.ts'
import { explorerPage } from '../src/http/pages.ts'
import { schema } from '../src/schema/index.ts'

const operationsOf = (query: string) =>
  parse(query).definitions.filter((node): node is OperationDefinitionNode => node.kind === Kind.OPERATION_DEFINITION)

describe('the tabs that GraphiQL opens with', () => {
  it('OPS-12: lead from the first session to what needs a person, each named by its first operation', () => {
    expect(exampleTabs.map(({ query }) => operationsOf(query)[0]!.name!.value)).toEqual([
      'Create',
      'Prompt',
      'Watch',
      'Read',
      'Inbox',
      'Answer',
      'Interrupt',
      'Recoveries',
    ])
    const names = exampleTabs.flatMap(({ query }) => operationsOf(query).map(({ name }) => name!.value))
    expect(new Set(names).size).toBe(names.length)
  })

  it.each(exampleTabs.map((tab) => [operationsOf(tab.query)[0]!.name!.value, tab] as const))(
    'OPS-12: %s is valid, and its variables suffice for each of its operations and are all used',
    (_, { query, variables }) => {
      expect(validate(schema, parse(query))).toEqual([])
      const given = JSON.parse(variables ?? '{}') as Record<string, unknown>
      const declared = new Set<string>()
      for (const { variableDefinitions = [] } of operationsOf(query)) {
        const { errors = [] as readonly GraphQLError[] } = getVariableValues(schema, variableDefinitions, given)
        expect(errors).toEqual([])
        for (const { variable } of variableDefinitions) declared.add(variable.name.value)
      }
      expect(Object.keys(given).filter((name) => !declared.has(name))).toEqual([])
    },
  )

  it('OPS-12: stand in the page, whose subscriptions go over WebSocket', () => {
    const options = /renderYogaGraphiQL\(\s*window.document.querySelector\('#root'\),\s*(\{.*\}),\s*\);/.exec(
      explorerPage(false),
    )
    expect(JSON.parse(options![1]!)).toMatchObject({ subscriptionsProtocol: 'WS', defaultTabs: exampleTabs })
  })
})
