import { approvalTool, type Check } from '../check.ts'
import type { Anything } from '../http.ts'
import { expectEqual, expectThat } from '../outcome.ts'
import { named } from '../watching.ts'
import type { Item, World } from '../world.ts'

const decided = `{ __typename
  ... on InteractionPayload { interaction { id state answer feedback editedInput } }
  ... on InteractionSettledError { message interaction { id state answer } }
  ... on InteractionNotFoundError { message interactionId }
  ... on InvalidInputError { message field } }`
const answerQuestion = `mutation ($input: AnswerQuestionInput!) { result: answerQuestion(input: $input) ${decided} }`
const dismissQuestion = `mutation ($input: InteractionIdInput!) { result: dismissQuestion(input: $input) ${decided} }`
const decideApproval = `mutation ($input: DecideApprovalInput!) { result: decideApproval(input: $input) ${decided} }`
const openOnes = `query ($id: ID!, $open: Boolean) { session(id: $id) { status interactions(open: $open) { id kind state toolName toolInput prompt options answer } } }`

const question = '/tool ask_user {"question":"Which colour?","options":["red","blue"]}'

/** Prompts and waits until a person is asked and nothing else runs. */
async function asked(world: World, prompt: string): Promise<{ id: string; interaction: Anything; log: Item[] }> {
  const id = await world.session()
  const log = await world.run(id, prompt)
  expectEqual('the end of the execution', log.at(-1)!.outcome, 'WAITING')
  const { session } = await world.ask(openOnes, { id, open: true })
  expectEqual('the session', [session.status, session.interactions.length], ['WAITING', 1])
  return { id, interaction: session.interactions[0], log }
}

const types = (log: readonly Item[]) => log.map((item) => item.__typename)
const find = (log: readonly Item[], typename: string) => log.find(named(typename))!
const approval = `/tool ${approvalTool} {"value":1}`

export const peopleChecks: Check[] = [
  {
    id: 'C-ASK-01',
    title:
      'a question makes the session wait with nothing running; it stands in the session, in the inbox and in the log',
    needs: ['echo', 'ask_user'],
    async run(world) {
      const { id, interaction, log } = await asked(world, question)
      expectEqual(
        'the interaction',
        [interaction.kind, interaction.state, interaction.toolName, interaction.options],
        ['QUESTION', 'OPEN', 'ask_user', ['red', 'blue']],
      )
      expectEqual('InteractionRequested', find(log, 'InteractionRequested').interactionId, interaction.id)
      expectEqual('ToolStarted', types(log).includes('ToolStarted'), false)
      const { session, node } = await world.ask(
        'query ($id: ID!, $i: ID!) { session(id: $id) { execution { id } } node(id: $i) { id ... on Interaction { session { id } } } }',
        { id, i: interaction.id },
      )
      expectEqual('the claim', session.execution, null)
      expectEqual('node', node, { id: interaction.id, session: { id } })
      const inbox: string[] = []
      let after: string | null = null
      for (let page = 0; page < 1000; page++) {
        const { interactions }: Anything = await world.ask(
          'query ($after: String) { interactions(first: 50, after: $after) { edges { node { id } } pageInfo { hasNextPage endCursor } } }',
          { after },
        )
        inbox.push(...interactions.edges.map(({ node: { id: each } }: Anything) => each))
        if (!interactions.pageInfo.hasNextPage) break
        after = interactions.pageInfo.endCursor
      }
      expectEqual('times in the inbox', inbox.filter((each) => each === interaction.id).length, 1)
    },
  },
  {
    id: 'C-ASK-02',
    title: 'the answer becomes the output of the tool, the model goes on, and JSON comes back as sent',
    needs: ['echo', 'ask_user'],
    async run(world) {
      const { id, interaction } = await asked(world, question)
      const answer = { colour: 'red', shades: [1, 2.5, null, true], note: 'ünïcode ✓' }
      const { result } = await world.ask(answerQuestion, { input: { interactionId: interaction.id, answer } })
      expectEqual(
        'the answer to the mutation',
        [result.__typename, result.interaction?.state, result.interaction?.answer],
        ['InteractionPayload', 'ANSWERED', answer],
      )
      const log = await world.rest(id, 2)
      expectEqual(
        'InteractionSettled',
        [find(log, 'InteractionSettled').state, find(log, 'InteractionSettled').answer],
        ['ANSWERED', answer],
      )
      expectEqual('output of the tool', find(log, 'ToolSucceeded').output, answer)
      expectEqual(
        'the end',
        [types(log).filter((each) => each === 'StepEnded').length, log.at(-1)!.outcome],
        [2, 'SUCCEEDED'],
      )
    },
  },
  {
    id: 'C-ASK-03',
    title:
      'first decision wins: the same one again gets the same answer, another one InteractionSettledError; nothing is written',
    needs: ['echo', 'ask_user'],
    async run(world) {
      const { id, interaction } = await asked(world, question)
      const input = { interactionId: interaction.id, answer: 'blue' }
      const first = (await world.ask(answerQuestion, { input })).result
      const { seq } = (await world.rest(id, 2)).at(-1)!
      expectEqual('the same again', (await world.ask(answerQuestion, { input })).result, first)
      for (const [mutation, other] of [
        [answerQuestion, { ...input, answer: 'red' }],
        [dismissQuestion, { interactionId: interaction.id }],
      ] as const) {
        const { result } = await world.ask(mutation, { input: other })
        expectEqual(
          'another one',
          [result.__typename, result.interaction?.state, result.interaction?.answer],
          ['InteractionSettledError', 'ANSWERED', 'blue'],
        )
      }
      expectEqual('seq', await world.seq(id), seq)
    },
  },
  {
    id: 'C-ASK-04',
    title: 'of different decisions at once exactly one wins, and all learn which',
    needs: ['echo', 'ask_user'],
    async run(world) {
      const { id, interaction } = await asked(world, question)
      const answers = ['red', 'blue', 'green', 'grey']
      const results: Anything[] = (
        await Promise.all(
          answers.map((answer) => world.ask(answerQuestion, { input: { interactionId: interaction.id, answer } })),
        )
      ).map(({ result }) => result)
      expectEqual('winners', results.filter(({ __typename }) => __typename === 'InteractionPayload').length, 1)
      expectEqual('what they learn', new Set(results.map((result) => result.interaction.answer)).size, 1)
      expectEqual('InteractionSettled', (await world.rest(id, 2)).filter(named('InteractionSettled')).length, 1)
    },
  },
  {
    id: 'C-ASK-05',
    title: 'a dismissed question ends the activity: the tool is DECLINED, the step interrupted, no request follows',
    needs: ['echo', 'ask_user'],
    async run(world) {
      const { id, interaction } = await asked(world, question)
      const { result } = await world.ask(dismissQuestion, { input: { interactionId: interaction.id } })
      expectEqual('the answer', [result.__typename, result.interaction?.state], ['InteractionPayload', 'DISMISSED'])
      const log = await world.log(id)
      expectEqual('the last events', types(log).slice(-4).sort(), [
        'InteractionSettled',
        'InterruptRequested',
        'StepInterrupted',
        'ToolFailed',
      ])
      expectEqual('the tool', find(log, 'ToolFailed').error.code, 'DECLINED')
      expectEqual('the session', (await world.ask(openOnes, { id, open: true })).session, {
        status: 'IDLE',
        interactions: [],
      })
    },
  },
  {
    id: 'C-ASK-06',
    title:
      'an unknown interaction is InteractionNotFoundError in each of the three mutations; the wrong kind InvalidInputError',
    needs: ['echo', 'ask_user'],
    async run(world) {
      const interactionId = 'req_.conformance-nowhere'
      for (const [mutation, rest] of [
        [answerQuestion, { answer: 1 }],
        [dismissQuestion, {}],
        [decideApproval, { decision: 'APPROVE' }],
      ] as const) {
        const { result } = await world.ask(mutation, { input: { interactionId, ...rest } })
        expectEqual(
          'the answer',
          [result.__typename, result.interactionId],
          ['InteractionNotFoundError', interactionId],
        )
      }
      const { id, interaction } = await asked(world, question)
      const { result } = await world.ask(decideApproval, {
        input: { interactionId: interaction.id, decision: 'APPROVE' },
      })
      expectEqual('APPROVE of a question', result.__typename, 'InvalidInputError')
      expectEqual('still open', (await world.ask(openOnes, { id, open: true })).session.interactions.length, 1)
    },
  },
  {
    id: 'C-ASK-07',
    title: 'an interrupt cancels an open question; its tool is ABORTED without having run',
    needs: ['echo', 'ask_user'],
    async run(world) {
      const { id, interaction } = await asked(world, question)
      const { interruptSession } = await world.ask(
        'mutation ($id: ID!) { interruptSession(input: { sessionId: $id }) { ... on InterruptSessionPayload { interrupted session { status } } } }',
        { id },
      )
      expectEqual('the answer', interruptSession, { interrupted: true, session: { status: 'IDLE' } })
      const log = await world.log(id)
      expectEqual(
        'InteractionSettled',
        [find(log, 'InteractionSettled').interactionId, find(log, 'InteractionSettled').state],
        [interaction.id, 'CANCELLED'],
      )
      expectEqual(
        'the tool',
        [find(log, 'ToolFailed').error.code, types(log).includes('ToolStarted')],
        ['ABORTED', false],
      )
      const { session } = await world.ask(openOnes, { id, open: false })
      expectEqual(
        'the settled ones',
        session.interactions.map(({ state }: Anything) => state),
        ['CANCELLED'],
      )
    },
  },
  {
    id: 'C-ASK-08',
    title: 'an approved tool runs once, and not before',
    needs: ['echo', 'approval'],
    async run(world) {
      const { id, interaction, log: before } = await asked(world, approval)
      expectEqual('what is asked', [interaction.kind, interaction.toolInput], ['APPROVAL', { value: 1 }])
      expectEqual('ToolStarted before the decision', types(before).includes('ToolStarted'), false)
      const input = { interactionId: interaction.id, decision: 'APPROVE' }
      expectEqual('the state', (await world.ask(decideApproval, { input })).result.interaction?.state, 'APPROVED')
      await world.ask(decideApproval, { input })
      const log = await world.rest(id, 2)
      expectEqual(
        'starts and ends of the tool',
        types(log).filter((each) => /^Tool(Started|Succeeded|Failed)$/.test(each)),
        ['ToolStarted', 'ToolSucceeded'],
      )
    },
  },
  {
    id: 'C-ASK-09',
    title:
      'DECLINE_AND_CONTINUE gives the feedback to the model, DECLINE_AND_STOP ends the activity; the tool never runs',
    needs: ['echo', 'approval'],
    async run(world) {
      const go = await asked(world, approval)
      await world.ask(decideApproval, {
        input: { interactionId: go.interaction.id, decision: 'DECLINE_AND_CONTINUE', feedback: 'not on a Sunday' },
      })
      const log = await world.rest(go.id, 2)
      const { code, message } = find(log, 'ToolFailed').error
      expectThat(
        'the error of the tool',
        code === 'DECLINED' && message.includes('not on a Sunday'),
        'DECLINED with the feedback',
        { code, message },
      )
      expectEqual('steps', types(log).filter((each) => each === 'StepEnded').length, 2)
      const stop = await asked(world, approval)
      await world.ask(decideApproval, { input: { interactionId: stop.interaction.id, decision: 'DECLINE_AND_STOP' } })
      const stopped = await world.log(stop.id)
      expectEqual(
        'the step',
        [types(stopped).includes('StepInterrupted'), types(stopped).includes('StepEnded')],
        [true, false],
      )
      for (const each of [log, stopped]) expectEqual('ToolStarted', types(each).includes('ToolStarted'), false)
    },
  },
  {
    id: 'C-ASK-10',
    title:
      'edited input that does not fit the tool is InvalidInputError and leaves the question open; one that fits is what runs',
    needs: ['echo', 'approval'],
    async run(world) {
      const { id, interaction } = await asked(world, approval)
      const input = { interactionId: interaction.id, decision: 'APPROVE' }
      const seq = await world.seq(id)
      const refused = (await world.ask(decideApproval, { input: { ...input, editedInput: { value: 'many' } } })).result
      expectEqual('the answer', [refused.__typename, refused.field], ['InvalidInputError', 'editedInput'])
      expectEqual('seq', await world.seq(id), seq)
      await world.ask(decideApproval, { input: { ...input, editedInput: { value: 7 } } })
      const log = await world.rest(id, 2)
      expectEqual('output of a tool that answers with its input', find(log, 'ToolSucceeded').output, { value: 7 })
    },
  },
]
