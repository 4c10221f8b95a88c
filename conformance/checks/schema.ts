import {
  buildClientSchema,
  findBreakingChanges,
  getIntrospectionQuery,
  isEnumType,
  isInputObjectType,
  isInterfaceType,
  isObjectType,
  isScalarType,
} from 'graphql'
import type { Check } from '../check.ts'
import { contract, everyMember } from '../contract.ts'
import { expectEqual } from '../outcome.ts'
import { newMessageId, newSessionId, type World } from '../world.ts'

const schemaOf = async ({ ask }: World) => buildClientSchema(await ask(getIntrospectionQuery()))

/** A value that fits each required argument of a mutation's input; the mutation is not run. */
const inputs: Record<string, string> = {
  createSession: `sessionId: "${newSessionId()}"`,
  updateSession: `sessionId: "${newSessionId()}"`,
  archiveSession: `sessionId: "${newSessionId()}"`,
  admitPrompt: `sessionId: "${newSessionId()}", messageId: "${newMessageId()}", text: "x"`,
  withdrawPrompt: `sessionId: "${newSessionId()}", messageId: "${newMessageId()}"`,
  changeDelivery: `sessionId: "${newSessionId()}", messageId: "${newMessageId()}", delivery: QUEUE`,
  resumeSession: `sessionId: "${newSessionId()}"`,
  interruptSession: `sessionId: "${newSessionId()}"`,
  compactSession: `sessionId: "${newSessionId()}", messageId: "${newMessageId()}"`,
  decideApproval: 'interactionId: "req_.none", decision: APPROVE',
  answerQuestion: 'interactionId: "req_.none", answer: 1',
  dismissQuestion: 'interactionId: "req_.none"',
  resolveQuarantine: 'id: "qua_.none", action: RETRY',
}

export const schemaChecks: Check[] = [
  {
    id: 'C-SCHEMA-01',
    title: 'the introspected schema is a superset of the contract',
    async run(world) {
      const breaks = findBreakingChanges(contract, await schemaOf(world)).map(({ description }) => description)
      expectEqual('what a client of the contract could not rely on', breaks, [])
    },
  },
  {
    id: 'C-SCHEMA-02',
    title: 'all members of each result union, of Message and of SessionEvent can be selected together without an alias',
    async run({ ask, session }) {
      for (const [name, field] of Object.entries(contract.getMutationType()!.getFields()))
        await ask(
          `mutation ($no: Boolean!) { __typename ${name}(input: { ${inputs[name]} }) @include(if: $no) ${everyMember(String(field.type).replace('!', ''))} }`,
          { no: false },
        )
      const id = await session()
      const { session: found } = await ask(
        `query ($id: ID!) { session(id: $id) { events ${everyMember('SessionEvent')} messages(first: 1) { edges { node ${everyMember('Message')} } } } }`,
        { id },
      )
      expectEqual('the first event', found.events[0].__typename, 'SessionCreated')
    },
  },
  {
    id: 'C-SCHEMA-03',
    title: 'each type, field, argument and enum value has a description',
    async run(world) {
      const without: string[] = []
      const note = (name: string, { description }: { description?: string | null }) => {
        if (!description) without.push(name)
      }
      for (const type of Object.values((await schemaOf(world)).getTypeMap())) {
        if (type.name.startsWith('__') || (isScalarType(type) && /^(String|Int|Float|Boolean|ID)$/.test(type.name)))
          continue
        note(type.name, type)
        if (isEnumType(type)) for (const value of type.getValues()) note(`${type.name}.${value.name}`, value)
        if (!isObjectType(type) && !isInterfaceType(type) && !isInputObjectType(type)) continue
        for (const field of Object.values(type.getFields())) {
          note(`${type.name}.${field.name}`, field)
          if ('args' in field)
            for (const argument of field.args) note(`${type.name}.${field.name}(${argument.name})`, argument)
        }
      }
      expectEqual('what has no description', without, [])
    },
  },
]
