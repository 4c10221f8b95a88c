import { expect, it } from 'vitest'
import { event } from '../src/events.ts'
import { newQuarantineId } from '../src/ids.ts'
import { createRecovery } from '../src/recovery/resolver.ts'
import { interruptSession } from '../src/runner/interrupt.ts'
import { resumeSession } from '../src/runner/resume.ts'
import {
  admit,
  atAppend,
  atRest,
  claimOf,
  events,
  eventually,
  everything,
  inputOf,
  newSession,
  newSessionId,
  type Played,
  statusIn,
  tenant,
  typesOf,
  usersIn,
  useStage,
} from './support/prompt-stage.ts'
import { errorBody, finish, gate, hang, reply, status, text, toolCall, wait } from './support/provider.ts'

const stage = useStage()
const said = (word: string) => reply(text(word), finish())
const asked = () => stage.provider.requests.map(usersIn)
const resume = ({ core }: Played, sessionId: string) => resumeSession(core, tenant, { sessionId })
const scan = ({ core }: Played) => createRecovery(core, null).scan()

it('DRAIN-01: woken or resumed three times at once, in one process or two, a session runs once', async () => {
  const a = await stage.start()
  const b = await stage.start()
  const ways: ((sessionId: string) => unknown)[] = [
    (sessionId) => Promise.all([1, 2, 3].map(() => a.core.coordinator.wake(sessionId))),
    (sessionId) => Promise.all([1, 2, 3].map(() => resume(a, sessionId))),
    (sessionId) => Promise.all([a, b, a].map((core) => resume(core, sessionId))),
    (sessionId) => [a, b, b].map(({ core }) => core.coordinator.wake(sessionId)),
  ]
  for (const way of ways) {
    const sessionId = await newSession(a)
    await admit(a, sessionId, 'one', { resume: false })
    await a.core.eventLog.append({ sessionId, events: [event('session.resume_requested', {})] })
    stage.provider.script(said('A'))
    await way(sessionId)
    await atRest(a, b)
    const types = await typesOf(a, sessionId)
    for (const once of ['session.resume_requested', 'execution.started', 'execution.settled', 'prompt.promoted'])
      expect(types.filter((type) => type === once)).toHaveLength(1)
    expect(await claimOf(a, sessionId)).toBeNull()
  }
  expect(stage.provider.requests).toHaveLength(ways.length)
})

it('DRAIN-02: woken with nothing owed, a session does nothing', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const before = await everything(a, sessionId)
  a.core.coordinator.wake(sessionId)
  a.core.coordinator.wake(newSessionId())
  await atRest(a)
  expect(await everything(a, sessionId)).toEqual(before)
})

it('DRAIN-05: two sessions run side by side', async () => {
  const a = await stage.start()
  const both = gate()
  for (const word of ['one', 'two']) {
    stage.provider.script(reply(wait(both.promise), text(word), finish()))
    await admit(a, await newSession(a), word)
  }
  await Promise.all([stage.provider.request(0), stage.provider.request(1)])
  both.open()
  await atRest(a)
})

it('DRAIN-06: never more drains at once than the bound; first come, first served; the wait is in the metrics', async () => {
  const a = await stage.start({ config: { maxDrains: 2 } })
  const gates = Array.from({ length: 10 }, () => gate())
  const sessions: string[] = []
  for (const [n, { promise }] of gates.entries()) {
    stage.provider.script(reply(wait(promise), text('done'), finish()))
    sessions.push(await newSession(a))
    await admit(a, sessions[n]!, `prompt ${n}`, { resume: false })
    await a.core.eventLog.append({ sessionId: sessions[n]!, events: [event('session.resume_requested', {})] })
  }
  for (const sessionId of sessions) a.core.coordinator.wake(sessionId)
  const claims = () => a.core.db.claim.count({ where: { sessionId: { in: sessions } } })
  for (const [n, { open }] of gates.entries()) {
    const running = Math.min(2, 10 - n)
    await stage.provider.request(Math.min(n + 1, 9))
    expect(a.core.coordinator.size()).toEqual({ running, queued: Math.max(0, 8 - n) })
    expect(stage.provider.requests).toHaveLength(Math.min(n + 2, 10))
    expect(await claims()).toBe(running)
    open()
    if (n < 8) await stage.provider.request(n + 2)
    else await eventually('a drain to end', async () => a.core.coordinator.size().running === 9 - n)
  }
  expect(asked().slice(2)).toEqual(Array.from({ length: 8 }, (_, n) => [`prompt ${n + 2}`]))
  const metrics = await a.core.metrics.text()
  expect(metrics).toContain('holdfast_drain_queue_seconds_count 10')
  expect(metrics).toContain('holdfast_drains_in_progress 0')
})

it('DRAIN-07: a session that always has work gives its place to another that waits', async () => {
  const a = await stage.start({ config: { maxDrains: 1 } })
  const busy = await newSession(a)
  const other = await newSession(a)
  let steps = 0
  // However far it gets, there is more.
  atAppend(a, 'step.ended', async (go, _nth, { sessionId }) => {
    if (sessionId === busy && ++steps <= 10) await admit(a, busy, `more ${steps}`, { delivery: 'QUEUE' })
    return go()
  })
  const first = gate()
  stage.provider.script(reply(wait(first.promise), text('A'), finish()), ...Array.from({ length: 11 }, () => said('B')))
  await admit(a, busy, 'one')
  await stage.provider.request(0)
  await admit(a, other, 'mine')
  first.open()
  await atRest(a)
  const turn = asked().findIndex((users) => users.at(-1) === 'mine')
  expect(turn).toBe(1)
  expect(stage.provider.requests).toHaveLength(12)
  expect((await events(a, busy, 'execution.settled')).map(({ payload }) => payload.outcome)).toEqual([
    'RELEASED',
    'SUCCEEDED',
  ])
})

it('DRAIN-11, DRAIN-12: a busy period of several steps is one execution, whose end is one commit with its claim', async () => {
  const note = {
    name: 'note',
    description: 'Keeps a note',
    inputSchema: { type: 'object', properties: {} },
    execute: async () => 'kept',
  } as const
  const a = await stage.start({ tools: [note] })
  const sessionId = await newSession(a)
  stage.provider.script(reply(toolCall('note', {}), finish('tool_calls')), said('A'), said('B'))
  const met = atAppend(a, 'execution.settled', async (go, _nth, request) => {
    expect(request.claim).toEqual({ kind: 'remove' })
    expect(await claimOf(a, sessionId)).toMatchObject({ phase: 'SAFE' })
    return go()
  })
  await admit(a, sessionId, 'one', { resume: false })
  await admit(a, sessionId, 'two', { delivery: 'QUEUE' })
  await atRest(a)
  expect(met.count).toBe(1)
  expect(stage.provider.requests).toHaveLength(3)
  const started = await events(a, sessionId, 'execution.started')
  const settled = await events(a, sessionId, 'execution.settled')
  const steps = [...(await events(a, sessionId, 'step.started')), ...(await events(a, sessionId, 'step.ended'))]
  expect([started.length, settled.length, steps.length]).toEqual([1, 1, 6])
  expect(settled[0]!.payload).toEqual({
    executionId: started[0]!.payload.executionId,
    outcome: 'SUCCEEDED',
    retryAt: null,
  })
  for (const { seq } of steps) {
    expect(seq).toBeGreaterThan(started[0]!.seq)
    expect(seq).toBeLessThan(settled[0]!.seq)
  }
  expect(await claimOf(a, sessionId)).toBeNull()
  expect(await statusIn(a, sessionId)).toBe('IDLE')
})

it('DRAIN-13: a step that fails for good ends the execution, and the next prompt runs', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  stage.provider.script(status(400, errorBody(null)))
  await admit(a, sessionId, 'one')
  await atRest(a)
  expect((await typesOf(a, sessionId)).slice(-2)).toEqual(['step.failed', 'execution.settled'])
  expect(await events(a, sessionId, 'step.failed')).toMatchObject([{ payload: { continues: false } }])
  expect(await events(a, sessionId, 'execution.settled')).toMatchObject([{ payload: { outcome: 'FAILED' } }])
  expect(await claimOf(a, sessionId)).toBeNull()
  expect(await statusIn(a, sessionId)).toBe('IDLE')
  stage.provider.script(said('A'))
  await admit(a, sessionId, 'two')
  await atRest(a)
  expect(asked()).toEqual([['one'], ['one', 'two']])
})

it('DRAIN-14: a resume makes the intent durable before it answers, and what waits runs in the usual order', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const { wake } = a.core.coordinator
  a.core.coordinator.wake = (id) => void a.wakes.push(id)
  const one = await admit(a, sessionId, 'queued', { delivery: 'QUEUE', resume: false })
  const two = await admit(a, sessionId, 'steer', { resume: false })
  expect(await resume(a, sessionId)).toEqual({ type: 'ResumeSessionPayload', sessionId })
  for (const id of [one, two]) expect(await inputOf(a, id)).toMatchObject({ state: 'PENDING', wakePending: true })
  expect(await events(a, sessionId, 'session.resume_requested')).toHaveLength(1)
  expect(a.wakes).toEqual([sessionId])
  stage.provider.script(said('A'), said('B'))
  wake(sessionId)
  await atRest(a)
  expect(asked()).toEqual([['steer'], ['steer', 'queued']])
})

it('DRAIN-15: a resume with nothing pending or owed writes nothing and asks nothing', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const resumed = async () => {
    await atRest(a)
    const before = await everything(a, sessionId)
    expect(await resume(a, sessionId)).toMatchObject({ type: 'ResumeSessionPayload' })
    await atRest(a)
    expect(await everything(a, sessionId)).toEqual(before)
  }
  await resumed()
  stage.provider.script(said('A'), status(400, errorBody(null)), reply(text('C'), hang()))
  await admit(a, sessionId, 'ends')
  await resumed()
  await admit(a, sessionId, 'fails')
  await resumed()
  await admit(a, sessionId, 'is interrupted')
  await stage.provider.request(2)
  await interruptSession(a.core, tenant, { sessionId })
  await resumed()
})

it('DRAIN-16: a quarantined session is not resumed, an unknown one not found', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const opened = { quarantineId: newQuarantineId(), executionId: 'exe_.stage', reason: 'made by a test' }
  await admit(a, sessionId, 'one', { resume: false })
  await a.core.eventLog.append({
    sessionId,
    events: [event('quarantine.opened', { ...opened, quarantineKind: 'EXECUTION' })],
  })
  const before = await everything(a, sessionId)
  expect(await resume(a, sessionId)).toMatchObject({ type: 'SessionQuarantinedError', sessionId })
  await atRest(a)
  expect(await everything(a, sessionId)).toEqual(before)
  const unknown = newSessionId()
  expect(await resume(a, unknown)).toMatchObject({ type: 'SessionNotFoundError', sessionId: unknown })
})

it('DRAIN-17: unarmed prompts start nothing over scans and restarts; an armed one takes them along', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  await admit(a, sessionId, 'queued', { delivery: 'QUEUE', resume: false })
  await admit(a, sessionId, 'steer', { resume: false })
  const before = await everything(a, sessionId)
  for (const process of [a, await stage.start()]) {
    process.wakes.length = 0
    await scan(process)
    expect(process.wakes).not.toContain(sessionId)
    process.core.coordinator.wake(sessionId)
    await atRest(process)
    await process.stop()
  }
  const c = await stage.start()
  expect(await everything(c, sessionId)).toEqual(before)
  stage.provider.script(said('A'), said('B'))
  await admit(c, sessionId, 'armed')
  await atRest(c)
  expect(asked()).toEqual([
    ['steer', 'armed'],
    ['steer', 'armed', 'queued'],
  ])
})

it('DRAIN-18: the start of an execution arms all that waits, so that a death before their promotion loses none', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  let dying: Promise<void> | undefined
  const met = atAppend(a, 'prompt.promoted', (go) => {
    dying = a.kill()
    return go()
  })
  const queued = await admit(a, sessionId, 'queued', { delivery: 'QUEUE', resume: false })
  const steer = await admit(a, sessionId, 'steer', { resume: false })
  await admit(a, sessionId, 'armed')
  await eventually('its death', async () => met.count === 1)
  await dying
  const b = await stage.start()
  for (const id of [queued, steer])
    expect(await inputOf(b, id)).toMatchObject({ state: 'PENDING', wakePending: true, executionRequested: false })
  stage.provider.script(said('A'), said('B'))
  await stage.database.shiftClock(60_000)
  await scan(b)
  await atRest(b)
  expect(asked()).toEqual([
    ['steer', 'armed'],
    ['steer', 'armed', 'queued'],
  ])
})

it('DRAIN-19: after a refused key or a used-up quota what waits is disarmed, and the next prompt takes it along', async () => {
  const a = await stage.start()
  const failures = [
    [status(401, errorBody('invalid_api_key')), 'PROVIDER_AUTH'],
    [status(429, errorBody('insufficient_quota')), 'PROVIDER_QUOTA'],
  ] as const
  for (const [n, [failure, code]] of failures.entries()) {
    const sessionId = await newSession(a)
    const first = gate()
    stage.provider.script(reply(wait(first.promise), failure), said('B'), said('C'))
    await admit(a, sessionId, 'one')
    await stage.provider.request(n * 3)
    const waiting = [await admit(a, sessionId, 'queued', { delivery: 'QUEUE' }), await admit(a, sessionId, 'steer')]
    first.open()
    await atRest(a)
    expect(await events(a, sessionId, 'step.failed')).toMatchObject([{ payload: { error: { code } } }])
    expect(await events(a, sessionId, 'execution.settled')).toMatchObject([{ payload: { outcome: 'FAILED' } }])
    for (const id of waiting) expect(await inputOf(a, id)).toMatchObject({ state: 'PENDING', wakePending: false })
    a.wakes.length = 0
    await scan(a)
    expect(a.wakes).not.toContain(sessionId)
    await atRest(a)
    expect(stage.provider.requests).toHaveLength(n * 3 + 1)
    expect(await statusIn(a, sessionId)).toBe('IDLE')
    await admit(a, sessionId, 'next')
    await atRest(a)
    expect(asked().slice(n * 3 + 1)).toEqual([
      ['one', 'steer', 'next'],
      ['one', 'steer', 'next', 'queued'],
    ])
  }
})
