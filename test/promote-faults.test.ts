import { expect, it } from 'vitest'
import { interruptSession } from '../src/runner/interrupt.ts'
import { changeDelivery, withdrawPrompt } from '../src/runner/pending.ts'
import { resumeSession } from '../src/runner/resume.ts'
import { fault } from './support/faults.ts'
import {
  admit,
  atAppend,
  atRest,
  claimOf,
  conversation,
  events,
  eventually,
  everything,
  inputOf,
  newSession,
  type Played,
  recoverByHand,
  sessionOf,
  statusIn,
  tenant,
  usersIn,
  useStage,
} from './support/prompt-stage.ts'
import { finish, hang, reply, text, toolCall } from './support/provider.ts'

const stage = useStage()
const said = (word: string) => reply(text(word), finish())
const asked = () => stage.provider.requests.map(usersIn)

/** A session whose process dies in the stream of its first step, or of the one after `steps` others. */
async function cutOff(a: Played, steps: ReturnType<typeof said>[] = []): Promise<string> {
  stage.provider.script(...steps, reply(text('half an '), hang()))
  const sessionId = await newSession(a)
  await admit(a, sessionId, 'one')
  await eventually('live text', () => a.core.db.chunk.count({ where: { sessionId } }))
  await a.kill()
  return sessionId
}

it('PROMO-09: the continuation is promoted first of all, the steer at the same boundary, the queued one when idle', async () => {
  const sessionId = await cutOff(await stage.start())
  const b = await stage.start()
  const continuation = await recoverByHand(b, sessionId)
  const { wake } = b.core.coordinator
  b.core.coordinator.wake = () => {}
  const queued = await admit(b, sessionId, 'queued', { delivery: 'QUEUE' })
  const steer = await admit(b, sessionId, 'steer')
  stage.provider.script(said('B'), said('C'))
  wake(sessionId)
  await atRest(b)
  expect(stage.provider.requests.slice(1).map(conversation)).toEqual([
    ['user: one', 'assistant: half an ', 'user: continue', 'user: steer'],
    ['user: one', 'assistant: half an ', 'user: continue', 'user: steer', 'assistant: B', 'user: queued'],
  ])
  const promoted = (await events(b, sessionId, 'prompt.promoted')).slice(1)
  expect(promoted.map(({ payload }) => payload.messageId)).toEqual([continuation, steer, queued])
  expect(promoted[0]!.appendId).toBe(promoted[1]!.appendId)
  expect(promoted[2]!.appendId).not.toBe(promoted[1]!.appendId)
  expect(await b.core.db.recovery.findMany({ where: { sessionId } })).toMatchObject([{ wakePending: false }])
})

it('PROMO-11: a promotion that cannot be committed promotes nothing and asks nothing; later it is promoted once', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const injected = await fault(stage.database.url, {
    table: 'Claim',
    operation: 'UPDATE',
    when: `NEW."sessionId" = '${sessionId}' AND NEW.phase = 'UNKNOWN'`,
  })
  const messageId = await admit(a, sessionId, 'one')
  await atRest(a)
  expect(await injected.fired()).toBeGreaterThan(0)
  // Each failed run is settled at once and counts; then a person has to say go on.
  expect(await statusIn(a, sessionId)).toBe('PARKED')
  expect(await inputOf(a, messageId)).toMatchObject({ state: 'PENDING', promotedSeq: null })
  expect(await a.core.db.message.count({ where: { sessionId } })).toBe(0)
  expect(await events(a, sessionId, 'prompt.promoted')).toEqual([])
  expect(await claimOf(a, sessionId)).toBeNull()
  expect(a.core.leases.held()).toEqual([])
  expect(stage.provider.requests).toEqual([])

  await injected.lift()
  stage.provider.script(said('A'))
  expect(await resumeSession(a.core, tenant, { sessionId })).toMatchObject({ type: 'ResumeSessionPayload' })
  await atRest(a)
  expect(
    (await events(a, sessionId, 'prompt.promoted')).filter(({ payload }) => payload.messageId === messageId),
  ).toHaveLength(1)
  expect(asked()).toEqual([['one']])
})

it('PROMO-12: of a stale owner and its successor one promotes', async () => {
  const a = await stage.start()
  const b = await stage.start()
  const sessionId = await newSession(a)
  stage.provider.script(said('A'))
  let outcome = ''
  const met = atAppend(a, 'prompt.promoted', async (go) => {
    // Decided and about to be written; meanwhile another process takes over and runs it.
    await recoverByHand(b, sessionId)
    b.core.coordinator.wake(sessionId)
    await atRest(b)
    const late = await go()
    outcome = late.kind
    return late
  })
  const messageId = await admit(a, sessionId, 'one')
  await atRest(a, b)
  expect(met.count).toBe(1)
  expect(outcome).toBe('fenced')
  const promoted = await events(a, sessionId, 'prompt.promoted')
  expect(promoted.filter(({ payload }) => payload.messageId === messageId)).toHaveLength(1)
  expect(await a.core.db.message.count({ where: { sessionId, kind: 'USER' } })).toBe(1)
  expect(asked()).toEqual([['one']])
})

it('PROMO-12: of a stale owner and its successor that promote at the same time one does', async () => {
  const a = await stage.start()
  const b = await stage.start()
  for (let round = 0; round < 10; round++) {
    const sessionId = await newSession(a)
    stage.provider.script(said('A'))
    const kinds: string[] = []
    let here = () => {}
    const reached = new Promise<void>((resolve) => {
      here = resolve
    })
    let meet = () => {}
    const met = new Promise<void>((resolve) => {
      meet = resolve
    })
    atAppend(a, 'prompt.promoted', async (go) => {
      here()
      await met
      const late = await go()
      kinds.push(late.kind)
      return late
    })
    const messageId = await admit(a, sessionId, 'one')
    await reached
    await recoverByHand(b, sessionId)
    atAppend(b, 'prompt.promoted', (go) => {
      meet()
      return go()
    })
    b.core.coordinator.wake(sessionId)
    await atRest(a, b)
    expect(kinds).toEqual(['fenced'])
    const promoted = await events(a, sessionId, 'prompt.promoted')
    expect(promoted.filter(({ payload }) => payload.messageId === messageId)).toHaveLength(1)
  }
  expect(stage.provider.requests).toHaveLength(10)
})

it('PROMO-21: when the process dies first, a prompt admitted with resume false wakes nothing by itself', async () => {
  const a = await stage.start()
  stage.provider.script(reply(text('A'), hang()))
  const sessionId = await newSession(a)
  await admit(a, sessionId, 'one')
  await stage.provider.request(0)
  const unasked = await admit(a, sessionId, 'unasked', { resume: false })
  await a.kill()
  const b = await stage.start()
  expect(await inputOf(b, unasked)).toMatchObject({ state: 'PENDING', wakePending: false })
  // The execution is ended from outside, so that the prompt is all that is left.
  await stage.database.shiftClock(60_000)
  expect(await interruptSession(b.core, tenant, { sessionId })).toMatchObject({ interrupted: true })
  const before = await everything(b, sessionId)
  b.core.coordinator.wake(sessionId)
  await atRest(b)
  expect(await everything(b, sessionId)).toEqual(before)
  expect(await statusIn(b, sessionId)).toBe('IDLE')
})

it('PROMO-22: a pending continuation can neither be withdrawn nor moved, and the recovery goes on', async () => {
  const sessionId = await cutOff(await stage.start())
  const b = await stage.start()
  const messageId = await recoverByHand(b, sessionId)
  const before = await everything(b, sessionId)
  const refused = { type: 'PromptNotPendingError', messageId }
  expect(await withdrawPrompt(b.core, tenant, { sessionId, messageId })).toMatchObject(refused)
  expect(await changeDelivery(b.core, tenant, { sessionId, messageId, delivery: 'STEER' })).toMatchObject(refused)
  expect(await everything(b, sessionId)).toEqual(before)
  stage.provider.script(said('answer'))
  b.core.coordinator.wake(sessionId)
  await atRest(b)
  expect(usersIn(stage.provider.requests[1]!)).toEqual(['one', 'continue'])
})

it('PROMO-24: a continuation does not start the step allowance again', async () => {
  const note = {
    name: 'note',
    description: 'Keeps a note',
    inputSchema: { type: 'object', properties: {} },
    execute: async () => 'kept',
  } as const
  const noting = (n: number) => reply(toolCall('note', { n }), finish('tool_calls'))
  const options = { tools: [note], config: { stepLimit: 4 } }
  const sessionId = await cutOff(await stage.start(options), [noting(1)])
  const b = await stage.start(options)
  await recoverByHand(b, sessionId)
  stage.provider.script(noting(2), said('out of steps'))
  b.core.coordinator.wake(sessionId)
  await atRest(b)
  expect(asked()).toEqual([['one'], ['one'], ['one', 'continue'], ['one', 'continue']])
  expect(stage.provider.requests.map(({ body }) => body.tool_choice)).toEqual(['auto', 'auto', 'auto', 'none'])
  expect(await sessionOf(b, sessionId)).toMatchObject({ stepOwed: false })
})

it('PROMO-24: an activity that has used up its steps before it was cut off is not continued', async () => {
  const options = { config: { stepLimit: 1 } }
  const sessionId = await cutOff(await stage.start(options))
  const b = await stage.start(options)
  await recoverByHand(b, sessionId)
  b.core.coordinator.wake(sessionId)
  await atRest(b)
  expect(stage.provider.requests).toHaveLength(1)
  expect((await events(b, sessionId, 'step.failed')).map(({ payload }) => payload.error.code)).toEqual([
    'OUTCOME_UNKNOWN',
    'STEP_LIMIT',
  ])
  expect(await statusIn(b, sessionId)).toBe('IDLE')
})
