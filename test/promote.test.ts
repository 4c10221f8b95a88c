import { expect, it } from 'vitest'
import { serveHttp } from '../src/http/serve.ts'
import { changeDelivery, withdrawPrompt } from '../src/runner/pending.ts'
import {
  admit,
  atAppend,
  atRest,
  claimOf,
  conversation,
  events,
  everything,
  inputOf,
  newSession,
  tenant,
  typesOf,
  usersIn,
  useStage,
} from './support/prompt-stage.ts'
import { finish, gate, reply, status, text, toolCall, wait } from './support/provider.ts'

const stage = useStage()
const said = (word: string) => reply(text(word), finish())
const note = {
  name: 'note',
  description: 'Keeps a note',
  inputSchema: { type: 'object', properties: {} },
  execute: async () => 'kept',
} as const
/** Asks for the tool, so that another step of the same activity follows. */
const noting = (n: number) => reply(toolCall('note', { n }), finish('tool_calls'))
/** What users had said by each request. */
const asked = () => stage.provider.requests.map(usersIn)

it('PROMO-01, PROMO-02: what waits is listed in admission order; steers run together, the queued one alone afterwards', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const { wake } = a.core.coordinator
  a.core.coordinator.wake = () => {}
  const one = await admit(a, sessionId, 'one')
  const two = await admit(a, sessionId, 'two', { delivery: 'QUEUE' })
  const three = await admit(a, sessionId, 'three')
  const server = await serveHttp(a.core, { host: '127.0.0.1', port: 0 })
  const response = await fetch(`${server.url}graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      query: 'query ($id: ID!) { session(id: $id) { inputs(state: PENDING) { id delivery } } }',
      variables: { id: sessionId },
    }),
  })
  const { data } = (await response.json()) as { data: { session: { inputs: unknown[] } } }
  await server.close(1000)
  expect(data.session.inputs).toEqual([
    { id: one, delivery: 'STEER' },
    { id: two, delivery: 'QUEUE' },
    { id: three, delivery: 'STEER' },
  ])

  const first = gate()
  stage.provider.script(reply(wait(first.promise), text('both'), finish()), said('alone'))
  wake(sessionId)
  await stage.provider.request(0)
  expect(await inputOf(a, two)).toMatchObject({ state: 'PENDING' })
  first.open()
  await atRest(a)
  expect(stage.provider.requests.map(conversation)).toEqual([
    ['user: one', 'user: three'],
    ['user: one', 'user: three', 'assistant: both', 'user: two'],
  ])
})

it('PROMO-03: a steer that arrives during a step is in the next request, after the answer', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const first = gate()
  stage.provider.script(reply(text('A'), wait(first.promise), text('B'), finish()), said('C'))
  await admit(a, sessionId, 'one')
  await stage.provider.request(0)
  await admit(a, sessionId, 'two')
  first.open()
  await atRest(a)
  expect(stage.provider.requests.map(conversation)).toEqual([
    ['user: one'],
    ['user: one', 'assistant: AB', 'user: two'],
  ])
  const messages = await a.core.db.message.findMany({ where: { sessionId }, orderBy: { seq: 'asc' } })
  expect(messages.map(({ kind }) => kind)).toEqual(['USER', 'ASSISTANT', 'USER', 'ASSISTANT'])
})

it('PROMO-04: two steers that arrive during a step are in exactly one further request, in order', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const first = gate()
  stage.provider.script(reply(wait(first.promise), text('A'), finish()), said('B'))
  await admit(a, sessionId, 'one')
  await stage.provider.request(0)
  const steers = [await admit(a, sessionId, 'two'), await admit(a, sessionId, 'three')]
  first.open()
  await atRest(a)
  expect(asked()).toEqual([['one'], ['one', 'two', 'three']])
  const promoted = await events(a, sessionId, 'prompt.promoted')
  expect(promoted.slice(1).map(({ payload }) => payload.messageId)).toEqual(steers)
})

it('PROMO-05: a queued prompt waits until the activity of a step with tools has ended', async () => {
  const a = await stage.start({ tools: [note] })
  const sessionId = await newSession(a)
  const first = gate()
  stage.provider.script(reply(wait(first.promise), noting(1)), said('noted'), said('queued'))
  await admit(a, sessionId, 'one')
  await stage.provider.request(0)
  await admit(a, sessionId, 'two', { delivery: 'QUEUE' })
  first.open()
  await atRest(a)
  expect(asked()).toEqual([['one'], ['one'], ['one', 'two']])
})

it('PROMO-06: queued prompts are answered one at a time', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const first = gate()
  stage.provider.script(reply(wait(first.promise), text('A'), finish()), said('B'), said('C'))
  await admit(a, sessionId, 'one')
  await stage.provider.request(0)
  await admit(a, sessionId, 'two', { delivery: 'QUEUE' })
  await admit(a, sessionId, 'three', { delivery: 'QUEUE' })
  first.open()
  await atRest(a)
  expect(asked()).toEqual([['one'], ['one', 'two'], ['one', 'two', 'three']])
})

it('PROMO-07: a steer admitted before the promotion of a queued one commits makes it decide again', async () => {
  const a = await stage.start()
  const b = await stage.start()
  const sessionId = await newSession(a)
  const queued = await admit(a, sessionId, 'queued', { delivery: 'QUEUE', resume: false })
  const outcomes: string[] = []
  let steer = ''
  atAppend(a, 'prompt.promoted', async (go, nth, request) => {
    if (nth === 1) {
      expect(request.events[0]).toMatchObject({ payload: { messageId: queued } })
      steer = await admit(b, sessionId, 'steer', { resume: false })
    }
    const outcome = await go()
    outcomes.push(outcome.kind)
    return outcome
  })
  stage.provider.script(said('to the steer'), said('to the queued'))
  await a.core.eventLog.append({ sessionId, events: [{ type: 'session.resume_requested', payload: {} }] })
  a.core.coordinator.wake(sessionId)
  await atRest(a)
  expect(outcomes).toEqual(['stale', 'appended', 'appended'])
  expect((await events(a, sessionId, 'prompt.promoted')).map(({ payload }) => payload.messageId)).toEqual([
    steer,
    queued,
  ])
  expect(asked()).toEqual([['steer'], ['steer', 'queued']])
})

it('PROMO-08: a queued prompt alone runs on an idle session', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  stage.provider.script(said('A'))
  await admit(a, sessionId, 'one', { delivery: 'QUEUE' })
  await atRest(a)
  expect(asked()).toEqual([['one']])
})

it('PROMO-10: promotion, start of its step and the move to UNKNOWN are one commit, right before the request', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const first = gate()
  stage.provider.script(reply(wait(first.promise), text('A'), finish()))
  const met = atAppend(a, 'prompt.promoted', async (go, _nth, request) => {
    // Up to here nothing has been promoted or asked.
    expect(await claimOf(a, sessionId)).toMatchObject({ phase: 'READY' })
    expect(await a.core.db.message.count({ where: { sessionId } })).toBe(0)
    expect(stage.provider.requests).toHaveLength(0)
    expect(request.events.map(({ type }) => type)).toEqual(['prompt.promoted', 'prompt.promoted', 'step.started'])
    const outcome = await go()
    expect(stage.provider.requests).toHaveLength(0)
    return outcome
  })
  await admit(a, sessionId, 'one', { resume: false })
  await admit(a, sessionId, 'two')
  await stage.provider.request(0)
  expect(met.count).toBe(1)
  const commit = (await events(a, sessionId)).filter(
    ({ type }) => type === 'prompt.promoted' || type === 'step.started',
  )
  expect(new Set(commit.map(({ appendId }) => appendId)).size).toBe(1)
  const step = commit[2]!
  expect(await claimOf(a, sessionId)).toMatchObject({
    phase: 'UNKNOWN',
    messageId: (step.payload as { messageId: string }).messageId,
  })
  const inputs = await a.core.db.input.findMany({ where: { sessionId }, orderBy: { admittedSeq: 'asc' } })
  for (const [n, { id, state, wakePending, promotedSeq }] of inputs.entries()) {
    expect({ state, wakePending, promotedSeq }).toEqual({
      state: 'PROMOTED',
      wakePending: false,
      promotedSeq: commit[n]!.seq,
    })
    expect(await a.core.db.message.findUniqueOrThrow({ where: { id } })).toMatchObject({
      kind: 'USER',
      seq: promotedSeq,
    })
  }
  first.open()
  await atRest(a)
})

it('PROMO-13, PROMO-15: a withdrawn prompt is never promoted, and the call repeated says the same', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const first = gate()
  stage.provider.script(reply(wait(first.promise), text('A'), finish()))
  await admit(a, sessionId, 'one')
  await stage.provider.request(0)
  const messageId = await admit(a, sessionId, 'two')
  for (let n = 0; n < 2; n++) {
    expect(await withdrawPrompt(a.core, tenant, { sessionId, messageId })).toEqual({
      type: 'PromptChangePayload',
      messageId,
    })
    expect(await inputOf(a, messageId)).toMatchObject({ state: 'WITHDRAWN', wakePending: false })
  }
  first.open()
  await atRest(a)
  expect(await events(a, sessionId, 'prompt.withdrawn')).toHaveLength(1)
  expect(asked()).toEqual([['one']])
})

it('PROMO-14: what is promoted, unknown or of another session is not pending here', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const elsewhere = await newSession(a)
  stage.provider.script(said('A'))
  const promoted = await admit(a, sessionId, 'one')
  const foreign = await admit(a, elsewhere, 'one', { resume: false })
  await atRest(a)
  const before = [await everything(a, sessionId), await everything(a, elsewhere)]
  for (const messageId of [promoted, foreign, 'msg_nobodyhasit'])
    expect(await withdrawPrompt(a.core, tenant, { sessionId, messageId })).toMatchObject({
      type: 'PromptNotPendingError',
      messageId,
    })
  expect([await everything(a, sessionId), await everything(a, elsewhere)]).toEqual(before)
})

it('PROMO-16: a queued prompt moved to STEER joins the next safe boundary', async () => {
  const a = await stage.start({ tools: [note] })
  const sessionId = await newSession(a)
  const first = gate()
  stage.provider.script(reply(wait(first.promise), noting(1)), said('B'))
  await admit(a, sessionId, 'one')
  await stage.provider.request(0)
  const messageId = await admit(a, sessionId, 'two', { delivery: 'QUEUE' })
  expect(await inputOf(a, messageId)).toMatchObject({ wakePending: true })
  expect(await changeDelivery(a.core, tenant, { sessionId, messageId, delivery: 'STEER' })).toMatchObject({
    type: 'PromptChangePayload',
  })
  expect((await events(a, sessionId, 'prompt.delivery_changed')).map(({ payload }) => payload)).toEqual([
    { messageId, delivery: 'STEER' },
  ])
  first.open()
  await atRest(a)
  expect(asked()).toEqual([['one'], ['one', 'two']])
})

it('PROMO-17: a step that fails for good ends its execution; what is armed goes on in a new one', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const first = gate()
  stage.provider.script(reply(wait(first.promise), status(400, { error: { message: 'no' } })), said('B'), said('C'))
  await admit(a, sessionId, 'one')
  await stage.provider.request(0)
  await admit(a, sessionId, 'queued', { delivery: 'QUEUE' })
  await admit(a, sessionId, 'steer')
  first.open()
  await atRest(a)
  expect(asked()).toEqual([['one'], ['one', 'steer'], ['one', 'steer', 'queued']])
  const settled = await events(a, sessionId, 'execution.settled')
  const started = await events(a, sessionId, 'execution.started')
  expect(settled.map(({ payload }) => payload.outcome)).toEqual(['FAILED', 'SUCCEEDED'])
  expect(started.map(({ payload }) => payload.executionId)).toEqual(settled.map(({ payload }) => payload.executionId))
  expect(started[1]!.seq).toBeGreaterThan(settled[0]!.seq)
  expect(await events(a, sessionId, 'step.failed')).toMatchObject([
    { payload: { continues: false, error: { code: 'PROVIDER_INVALID' } } },
  ])
})

it('PROMO-19: a boundary with steers starts the step allowance again, once, however many there are', async () => {
  const a = await stage.start({ tools: [note], config: { stepLimit: 2 } })
  const sessionId = await newSession(a)
  const first = gate()
  stage.provider.script(reply(wait(first.promise), noting(1)), noting(2), said('out of steps'))
  await admit(a, sessionId, 'one')
  await stage.provider.request(0)
  await admit(a, sessionId, 'two')
  await admit(a, sessionId, 'three')
  first.open()
  await atRest(a)
  expect(asked()).toEqual([['one'], ['one', 'two', 'three'], ['one', 'two', 'three']])
  expect(stage.provider.requests.map(({ body }) => body.tool_choice)).toEqual(['auto', 'auto', 'none'])
})

it('PROMO-20: a promotion of what is not pending in the session is refused with all that came with it', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const elsewhere = await newSession(a)
  stage.provider.script(said('A'))
  const promoted = await admit(a, sessionId, 'one')
  await atRest(a)
  const withdrawn = await admit(a, sessionId, 'two', { resume: false })
  await withdrawPrompt(a.core, tenant, { sessionId, messageId: withdrawn })
  const pending = await admit(a, sessionId, 'three', { resume: false })
  const foreign = await admit(a, elsewhere, 'four', { resume: false })
  const before = [await everything(a, sessionId), await everything(a, elsewhere)]
  const promotion = (messageId: string) => ({
    type: 'prompt.promoted' as const,
    payload: { messageId, inputKind: 'PROMPT' as const, text: 'x', attachments: [], hidden: false },
  })
  const refusal = (messageId: string) =>
    a.core.eventLog.append({ sessionId, events: [promotion(pending), promotion(messageId)] }).then(
      ({ kind }) => kind,
      (error: Error) => /refused \((.*?)\)/.exec(error.message)?.[1],
    )
  expect({
    promoted: await refusal(promoted),
    withdrawn: await refusal(withdrawn),
    foreign: await refusal(foreign),
    nobody: await refusal('msg_nobodyhasit'),
  }).toEqual({
    promoted: '23505 Event_promoted',
    withdrawn: 'HF001 input_pending',
    foreign: 'HF001 input_pending',
    nobody: 'HF001 input_pending',
  })
  expect([await everything(a, sessionId), await everything(a, elsewhere)]).toEqual(before)
})

it('PROMO-21: admitted with resume false during a drain, a prompt goes along at its boundary, unarmed until then', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const first = gate()
  stage.provider.script(reply(wait(first.promise), text('A'), finish()), said('B'), said('C'))
  await admit(a, sessionId, 'one')
  await stage.provider.request(0)
  a.wakes.length = 0
  const unasked = [
    await admit(a, sessionId, 'queued', { delivery: 'QUEUE', resume: false }),
    await admit(a, sessionId, 'steer', { resume: false }),
  ]
  for (const id of unasked) expect(await inputOf(a, id)).toMatchObject({ state: 'PENDING', wakePending: false })
  first.open()
  await atRest(a)
  expect(a.wakes).toEqual([])
  expect(asked()).toEqual([['one'], ['one', 'steer'], ['one', 'steer', 'queued']])
  expect((await typesOf(a, sessionId)).filter((type) => type.startsWith('execution.'))).toEqual([
    'execution.started',
    'execution.settled',
  ])
})
