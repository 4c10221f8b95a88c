import type { Check } from '../check.ts'
import type { Anything } from '../http.ts'
import { expectEqual, expectThat } from '../outcome.ts'
import { named } from '../watching.ts'
import { admission, newMessageId, newSessionId, type World } from '../world.ts'

async function interrupt(world: World, sessionId: string, executionId?: string): Promise<Anything> {
  const { interruptSession } = await world.ask(
    `mutation ($input: InterruptSessionInput!) { interruptSession(input: $input) { __typename
      ... on InterruptSessionPayload { interrupted session { status } } ... on SessionNotFoundError { sessionId } ... on Error { message } } }`,
    { input: { sessionId, ...(executionId && { executionId }) } },
  )
  return interruptSession
}

const stopped = { __typename: 'InterruptSessionPayload', interrupted: true, session: { status: 'IDLE' } }
const slowly =
  '/slow 100 a long answer that nobody wants to hear to its very end, as it has many more words than it needs'

/** A session in the middle of an answer, and its execution. */
async function running(world: World, prompt = slowly): Promise<{ id: string; executionId: string; messageId: string }> {
  const id = await world.session()
  const { input } = await world.admit(id, prompt)
  const { executionId } = await world.logged(id, 'ExecutionStarted')
  await world.logged(id, 'TextStarted')
  return { id, executionId, messageId: input.id }
}

export const interruptChecks: Check[] = [
  {
    id: 'C-INT-01',
    title: 'an interrupt of an idle session writes nothing; of an unknown one it is SessionNotFoundError',
    async run(world) {
      const id = await world.session()
      expectEqual('idle', await interrupt(world, id), { ...stopped, interrupted: false })
      expectEqual('seq', await world.seq(id), 1)
      const nowhere = newSessionId()
      const { __typename, sessionId } = await interrupt(world, nowhere)
      expectEqual('unknown', [__typename, sessionId], ['SessionNotFoundError', nowhere])
    },
  },
  {
    id: 'C-INT-02',
    title: 'an interrupt in the middle of text answers once the cleanup is durable, and keeps the partial text',
    needs: ['echo'],
    async run(world) {
      const { id, executionId } = await running(world)
      const watching = await world.watch(id)
      await watching.items.until('three deltas', (all) => all.filter(named('TextDelta')).length >= 3)
      expectEqual('the answer', await interrupt(world, id), stopped)
      // At once: what the answer says is durable.
      const log = await world.log(id)
      expectEqual('InterruptRequested', log.find(named('InterruptRequested'))?.interruptedExecutionId, executionId)
      expectEqual(
        'terminals of the step',
        log
          .filter(({ __typename }) => /^Step(Ended|Failed|Interrupted)$/.test(__typename))
          .map((item) => [item.__typename, item.error?.code]),
        [['StepInterrupted', 'ABORTED']],
      )
      expectEqual('the end', [log.at(-1)!.__typename, log.at(-1)!.outcome], ['ExecutionSettled', 'INTERRUPTED'])
      const { session } = await world.ask(
        'query ($id: ID!) { session(id: $id) { messages(last: 1) { edges { node { ... on AssistantMessage { status parts { ... on TextPart { text } } } } } } } }',
        { id },
      )
      const { status, parts } = session.messages.edges[0].node
      expectEqual('the message', status, 'INTERRUPTED')
      expectThat('its text', parts[0]?.text.length > 0, 'the partial text', parts)
    },
  },
  {
    id: 'C-INT-03',
    title: 'two interrupts at once share one cleanup and both answer after it',
    needs: ['echo', 'wait'],
    async run(world) {
      const { id, executionId } = await running(world, '/tool wait {"ms":60000}')
      await world.logged(id, 'ToolStarted')
      const both = await Promise.all([interrupt(world, id, executionId), interrupt(world, id, executionId)])
      for (const each of both) expectEqual('an answer', each, stopped)
      const log = await world.log(id)
      expectEqual('StepInterrupted', log.filter(named('StepInterrupted')).length, 1)
      expectEqual(
        'the tool',
        log.filter(named('ToolFailed')).map(({ error }) => error.code),
        ['ABORTED'],
      )
    },
  },
  {
    id: 'C-INT-04',
    title: 'with an executionId only that execution is stopped, and a late repeat harms no newer work',
    needs: ['echo'],
    async run(world) {
      const { id, executionId } = await running(world)
      expectEqual('the first', await interrupt(world, id, executionId), stopped)
      const seq = await world.seq(id)
      expectEqual('the same again', await interrupt(world, id, executionId), stopped)
      expectEqual('seq', await world.seq(id), seq)
      await world.admit(id, '/slow 60 new work that goes on to its end')
      await world.logged(id, 'TextStarted', 2)
      const late = await interrupt(world, id, executionId)
      expectEqual('a late repeat', [late.__typename, late.interrupted], ['InterruptSessionPayload', true])
      expectEqual('the end of the newer work', (await world.rest(id, 2)).at(-1)!.outcome, 'SUCCEEDED')
      const ended = (await world.log(id)).filter(named('ExecutionStarted'))[1]!.executionId
      const another = await interrupt(world, id, ended)
      expectEqual('of an execution that ended by itself', another.interrupted, false)
    },
  },
  {
    id: 'C-INT-05',
    title: 'what is pending stays pending and disarmed; a late network retry does not start it, resumeSession does',
    needs: ['echo'],
    async run(world) {
      const { id } = await running(world)
      const input = { sessionId: id, messageId: newMessageId(), text: 'pending', delivery: 'QUEUE' }
      await world.ask(admission, { input })
      expectEqual('the answer', await interrupt(world, id), stopped)
      const read = 'query ($id: ID!) { node(id: $id) { ... on SessionInput { state wakePending } } }'
      expectEqual('the input', (await world.ask(read, { id: input.messageId })).node, {
        state: 'PENDING',
        wakePending: false,
      })
      const seq = await world.seq(id)
      const { outcome, executionRequested } = (await world.ask(admission, { input })).admitPrompt
      expectEqual(
        'the late retry',
        [outcome, executionRequested, await world.seq(id)],
        ['ALREADY_ADMITTED', false, seq],
      )
      const { resumeSession } = await world.ask(
        'mutation ($id: ID!) { resumeSession(input: { sessionId: $id }) { __typename } }',
        { id },
      )
      expectEqual('resumeSession', resumeSession.__typename, 'ResumeSessionPayload')
      expectEqual('the end', (await world.rest(id, 2)).at(-1)!.outcome, 'SUCCEEDED')
    },
  },
]
