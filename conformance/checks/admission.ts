import type { Check } from '../check.ts'
import type { Anything } from '../http.ts'
import { expectEqual, expectThat } from '../outcome.ts'
import { named, seqs, upTo } from '../watching.ts'
import { admission, type Item, newMessageId, newSessionId, type World } from '../world.ts'

const of = (log: Item[], typename: string) => log.filter(named(typename))
const admitted = ({ __typename, outcome, executionRequested }: Anything) => ({
  __typename,
  outcome,
  executionRequested,
})
const answered = (outcome: string, executionRequested: boolean) => ({
  __typename: 'PromptAdmission',
  outcome,
  executionRequested,
})

async function wakePending(world: World, id: string): Promise<boolean> {
  const { node } = await world.ask('query ($id: ID!) { node(id: $id) { ... on SessionInput { wakePending } } }', { id })
  return node.wakePending
}

/** Sends it again in another form and expects a conflict that names the fields and has written and armed nothing. */
async function conflicts(
  world: World,
  input: Record<string, unknown>,
  over: Record<string, unknown>,
  differingFields: string[],
) {
  const sessionId = String(over.sessionId ?? input.sessionId)
  const before = await world.seq(sessionId)
  const { admitPrompt } = await world.ask(admission, { input: { ...input, ...over } })
  const { message, ...rest } = admitPrompt
  expectEqual(`the answer to the same id with other ${differingFields}`, rest, {
    __typename: 'PromptConflictError',
    sessionId,
    messageId: input.messageId,
    differingFields,
  })
  expectThat('its message', message?.length > 0, 'some words', message)
  expectEqual('seq after a conflict', await world.seq(sessionId), before)
}

export const admissionChecks: Check[] = [
  {
    id: 'C-ADM-01',
    title: 'a new id is admitted as STEER, armed, and runs once',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      const answer = await world.admit(id, 'Hello!')
      expectEqual('the answer', admitted(answer), answered('ADMITTED', true))
      const log = await world.rest(id)
      const [prompt] = of(log, 'PromptAdmitted')
      expectEqual(
        'PromptAdmitted',
        [prompt?.messageId, prompt?.delivery, prompt?.requestExecution, prompt?.text, prompt?.seq],
        [answer.input.id, 'STEER', true, 'Hello!', answer.input.admittedSeq],
      )
      expectEqual('promotions and steps', [of(log, 'PromptPromoted').length, of(log, 'StepStarted').length], [1, 1])
      expectEqual('the end', log.at(-1)!.outcome, 'SUCCEEDED')
    },
  },
  {
    id: 'C-ADM-02',
    title: 'resume false admits only: nothing is armed, nothing runs until it is asked for, and then once',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      const messageId = newMessageId()
      const first = await world.admit(id, 'Later', { messageId, resume: false })
      expectEqual('the answer', admitted(first), answered('ADMITTED', false))
      expectEqual('wakePending', first.input.wakePending, false)
      const { session } = await world.ask(
        'query ($id: ID!) { session(id: $id) { status messages(first: 5) { edges { cursor } } } }',
        { id },
      )
      expectEqual('the session', session, { status: 'IDLE', messages: { edges: [] } })
      expectEqual(
        'asked for later',
        admitted(await world.admit(id, 'Later', { messageId })),
        answered('ALREADY_ADMITTED', true),
      )
      const log = await world.rest(id)
      expectEqual(
        'events',
        ['PromptAdmitted', 'PromptExecutionRequested', 'PromptPromoted', 'StepStarted'].map(
          (name) => of(log, name).length,
        ),
        [1, 1, 1, 1],
      )
    },
  },
  {
    id: 'C-ADM-03',
    title: 'the identical call again, ten times, gives the same input and writes nothing',
    async run(world) {
      const id = await world.session()
      const messageId = newMessageId()
      const first = await world.admit(id, 'Once', { messageId, resume: false })
      const seq = await world.seq(id)
      for (let n = 0; n < 10; n++) {
        const again = await world.admit(id, 'Once', { messageId, resume: false })
        expectEqual('the answer', admitted(again), answered('ALREADY_ADMITTED', false))
        expectEqual('the input', again.input, first.input)
      }
      expectEqual('seq', await world.seq(id), seq)
    },
  },
  {
    id: 'C-ADM-04',
    title: 'two identical calls at once: one is ADMITTED, both answer the same input, the log has it once',
    async run(world) {
      for (let round = 0; round < 5; round++) {
        const id = await world.session()
        const messageId = newMessageId()
        const both = await Promise.all([0, 1].map(() => world.admit(id, 'Twice', { messageId, resume: false })))
        expectEqual('outcomes', both.map(({ outcome }) => outcome).sort(), ['ADMITTED', 'ALREADY_ADMITTED'])
        expectEqual('the second input', both[1].input, both[0].input)
        expectEqual('PromptAdmitted', of(await world.log(id), 'PromptAdmitted').length, 1)
      }
    },
  },
  {
    id: 'C-ADM-05',
    title: 'the same id with other text, delivery or attachments is a conflict that names the fields, and arms no wake',
    async run(world) {
      const sessionId = await world.session()
      const input = { sessionId, messageId: newMessageId(), text: 'one', resume: false }
      await world.ask(admission, { input })
      await conflicts(world, input, { text: 'two', resume: true }, ['text'])
      await conflicts(world, input, { delivery: 'QUEUE', resume: true }, ['delivery'])
      const attachments = [{ name: 'a.txt', mediaType: 'text/plain', url: 'data:text/plain;base64,YQ==' }]
      await conflicts(world, input, { attachments, resume: true }, ['attachments'])
      expectEqual(
        'wakePending after conflicts that asked for execution',
        await wakePending(world, input.messageId),
        false,
      )
      expectEqual(
        'the log',
        (await world.log(sessionId)).map((item) => item.__typename),
        ['SessionCreated', 'PromptAdmitted'],
      )
    },
  },
  {
    id: 'C-ADM-06',
    title: 'an id that is taken in another session differs in messageId and tells nothing of that session',
    async run(world) {
      const [there, here] = [await world.session({ title: 'a title to keep' }), await world.session()]
      const messageId = newMessageId()
      await world.admit(there, 'words to keep', { messageId, resume: false })
      const input = { sessionId: there, messageId, text: 'words to keep', resume: false }
      await conflicts(world, input, { sessionId: here }, ['messageId'])
      const answer = JSON.stringify(await world.admit(here, 'other words', { messageId, resume: false }))
      expectThat(
        'the answer',
        !answer.includes(there) && !answer.includes('to keep'),
        'nothing of the other session',
        answer,
      )
    },
  },
  {
    id: 'C-ADM-07',
    title: 'a promoted prompt sent again is ALREADY_PROMOTED and runs no second time; with other text it is a conflict',
    needs: ['echo'],
    async run(world) {
      const sessionId = await world.session()
      const input = { sessionId, messageId: newMessageId(), text: 'Hello!' }
      await world.ask(admission, { input })
      const log = await world.rest(sessionId)
      const again = (await world.ask(admission, { input })).admitPrompt
      expectEqual('the answer', admitted(again), answered('ALREADY_PROMOTED', false))
      expectEqual(
        'its input',
        [again.input.state, again.input.promotedSeq],
        ['PROMOTED', of(log, 'PromptPromoted')[0]!.seq],
      )
      await conflicts(world, input, { text: 'Bye!' }, ['text'])
      expectEqual('seq', await world.seq(sessionId), log.at(-1)!.seq)
    },
  },
  {
    id: 'C-ADM-08',
    title: 'delivery of a pending prompt can be changed, and an honest retry of the first call is no conflict',
    async run(world) {
      const sessionId = await world.session()
      const messageId = newMessageId()
      await world.admit(sessionId, 'Wait', { messageId, delivery: 'QUEUE', resume: false })
      const change = `mutation ($input: ChangeDeliveryInput!) { changeDelivery(input: $input) { __typename ... on PromptChangePayload { input { delivery state } } ... on Error { message } } }`
      const { changeDelivery } = await world.ask(change, { input: { sessionId, messageId, delivery: 'STEER' } })
      expectEqual('changeDelivery', changeDelivery, {
        __typename: 'PromptChangePayload',
        input: { delivery: 'STEER', state: 'PENDING' },
      })
      const again = await world.admit(sessionId, 'Wait', { messageId, delivery: 'QUEUE', resume: false })
      expectEqual('the retry', [again.outcome, again.input?.delivery], ['ALREADY_ADMITTED', 'STEER'])
      expectEqual('PromptDeliveryChanged', of(await world.log(sessionId), 'PromptDeliveryChanged').length, 1)
    },
  },
  {
    id: 'C-ADM-09',
    title: 'withdraw takes a pending prompt back, once; a retry of it says so and arms nothing',
    async run(world) {
      const sessionId = await world.session()
      const messageId = newMessageId()
      await world.admit(sessionId, 'Never mind', { messageId, resume: false })
      const withdraw = `mutation ($input: PromptIdInput!) { withdrawPrompt(input: $input) { __typename ... on PromptChangePayload { input { state } } ... on PromptNotPendingError { message messageId } } }`
      const input = { sessionId, messageId }
      const first = (await world.ask(withdraw, { input })).withdrawPrompt
      expectEqual('withdrawPrompt', first, { __typename: 'PromptChangePayload', input: { state: 'WITHDRAWN' } })
      const seq = await world.seq(sessionId)
      expectEqual('the same again', (await world.ask(withdraw, { input })).withdrawPrompt, first)
      const retry = await world.admit(sessionId, 'Never mind', { messageId })
      expectEqual('the retry', admitted(retry), answered('ALREADY_WITHDRAWN', false))
      expectEqual('its input', [retry.input.state, retry.input.wakePending], ['WITHDRAWN', false])
      expectEqual('seq', await world.seq(sessionId), seq)
    },
  },
  {
    id: 'C-ADM-10',
    title: 'STEER joins at the next boundary, before what was QUEUEd; a busy session admits both',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      await world.admit(id, '/slow 60 number one takes its time, so that others can come')
      await world.logged(id, 'TextStarted')
      const [queued, steered] = [newMessageId(), newMessageId()]
      expectEqual(
        'QUEUE',
        (await world.admit(id, 'number two', { messageId: queued, delivery: 'QUEUE' })).outcome,
        'ADMITTED',
      )
      expectEqual('STEER', (await world.admit(id, 'number three', { messageId: steered })).outcome, 'ADMITTED')
      await world.logged(id, 'PromptPromoted', 3)
      const order = of(await world.log(id), 'PromptPromoted').slice(1)
      expectEqual(
        'promotions after the first',
        order.map(({ messageId }) => messageId),
        [steered, queued],
      )
      await world.logged(id, 'StepEnded', 3)
    },
  },
  {
    id: 'C-ADM-11',
    title: '20 prompts at once on one session are all admitted, at different seqs, in a log without gaps',
    async run(world) {
      const id = await world.session()
      const all = await Promise.all(
        Array.from({ length: 20 }, (_, n) => world.admit(id, `prompt ${n}`, { resume: false })),
      )
      expectEqual('outcomes', [...new Set(all.map(({ outcome }) => outcome))], ['ADMITTED'])
      expectEqual('different seqs', new Set(all.map(({ input }) => input.admittedSeq)).size, 20)
      expectEqual('the log', seqs(await world.log(id)), upTo(1, 21))
    },
  },
  {
    id: 'C-ADM-12',
    title: 'an unknown session is SessionNotFoundError, and none is made',
    async run({ ask, admit }) {
      const id = newSessionId()
      const { __typename, sessionId } = await admit(id, 'Hello?')
      expectEqual('the answer', { __typename, sessionId }, { __typename: 'SessionNotFoundError', sessionId: id })
      expectEqual('session', (await ask('query ($id: ID!) { session(id: $id) { id } }', { id })).session, null)
    },
  },
  {
    id: 'C-ADM-13',
    title: 'ids, texts and attachments that break a rule are InvalidInputError with the field, and write nothing',
    async run(world) {
      const id = await world.session()
      const bad: [string, Record<string, unknown>][] = [
        ['messageId', { messageId: 'message-1234' }],
        ['messageId', { messageId: 'msg_1234567' }],
        ['messageId', { messageId: `msg_${'a'.repeat(65)}` }],
        ['messageId', { messageId: 'msg_12345678.9' }],
        ['text', { text: '' }],
        ['attachments', { attachments: [{ name: 'a', mediaType: 'text/plain', url: 'file:///etc/hosts' }] }],
        ['attachments', { attachments: [{ name: 'a', mediaType: 'image/png', url: 'data:image/png;base64,?' }] }],
      ]
      for (const [field, over] of bad) {
        const refused = await world.admit(id, 'text', { resume: false, ...over })
        expectEqual(`the answer to ${JSON.stringify(over)}`, refused.__typename, 'InvalidInputError')
        expectThat('its field', refused.field.startsWith(field), field, refused.field)
        expectThat('its message', refused.message.length > 10, 'the rule', refused.message)
      }
      expectEqual('seq', await world.seq(id), 1)
      for (const length of [8, 64]) {
        const messageId = `msg_${crypto.randomUUID().replaceAll('-', '').repeat(2).slice(0, length)}`
        expectEqual(
          `an id of ${length}`,
          (await world.admit(id, 'text', { messageId, resume: false })).outcome,
          'ADMITTED',
        )
      }
    },
  },
  {
    id: 'C-ADM-14',
    title: 'attachments come back as sent, on the input and on the message',
    needs: ['echo'],
    async run(world) {
      const id = await world.session()
      const attachments = [{ name: 'dot.png', mediaType: 'image/png', url: 'data:image/png;base64,iVBORw0KGgo=' }]
      const answer = await world.admit(id, 'See', { attachments })
      expectEqual('on the input', answer.input.attachments, attachments)
      await world.rest(id)
      const { node } = await world.ask(
        'query ($id: ID!) { node(id: $id) { ... on UserMessage { attachments { name mediaType url } } } }',
        { id: answer.input.id },
      )
      expectEqual('on the message', node.attachments, attachments)
    },
  },
]
