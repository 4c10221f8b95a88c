import { describe, expect, it } from 'vitest'
import { resumeSession } from '../src/runner/resume.ts'
import { sessionStream } from '../src/session-stream.ts'
import { replaySession } from '../src/verify.ts'
import { eventually } from './support/core.ts'
import { finish, finishing, gate, hang, reply, text, toolCall, wait } from './support/provider.ts'
import {
  hasEvent,
  holdAppend,
  instant,
  interrupt,
  probe,
  prompt,
  refuseEvents,
  spoken,
  spyAppends,
  tenant,
  useStage,
} from './support/stage.ts'

const stage = useStage()
const ok = (said = 'ok') => reply(text(said), finish())
const done = { type: 'InterruptSessionPayload', interrupted: true }
const input = (id: string) => stage.db.input.findUnique({ where: { id } })
const session = (id: string) => stage.db.session.findUnique({ where: { id } })

describe('an interrupt', () => {
  it('INT-01: of a running tool: asked in one commit, the tool stopped and joined, settled in one append, then answered', async () => {
    const look = probe('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    const appends = spyAppends(core)
    stage.provider.script(reply(toolCall('look', {}, 'call_i'), finish('tool_calls')))
    await prompt(core, s)
    const { context, fail } = await look.run()
    await stage.logged(s, 'step.streamed')
    let isAnswered = false
    const interrupted = interrupt(core, s).finally(() => {
      isAnswered = true
    })
    await eventually('the signal', async () => context.signal.aborted)
    const { executionId } = (await stage.payloads(s, 'execution.started'))[0]!
    expect(appends.at(-1)).toMatchObject({
      events: [{ type: 'interrupt.requested', payload: { interruptedExecutionId: executionId } }],
      claim: { kind: 'move', to: 'CANCELLING' },
    })
    // The tool still cleans up behind itself: nothing is settled and nobody has an answer.
    expect(await stage.claim(s)).toMatchObject({ phase: 'CANCELLING' })
    expect((await stage.types(s)).at(-1)).toBe('interrupt.requested')
    expect(isAnswered).toBe(false)
    fail(new Error('stopped'))
    expect(await interrupted).toMatchObject(done)
    expect((await stage.commits(s)).slice(-2)).toEqual([
      ['interrupt.requested'],
      ['tool.failed', 'step.interrupted', 'execution.settled'],
    ])
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([{ callId: 'call_i', error: { code: 'ABORTED' } }])
    expect(await stage.payloads(s, 'step.interrupted')).toMatchObject([{ error: { code: 'ABORTED' } }])
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'INTERRUPTED' }])
    expect(await stage.claim(s)).toBeNull()
    await core.coordinator.idle()
    expect(stage.provider.requests).toHaveLength(1)
  })

  it('INT-02, INT-21: of a text stream: the request is aborted, the text kept, and no chunk is written after CANCELLING', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(reply(text('par', 'tial'), hang()))
    await prompt(core, s)
    await eventually('all of it', async () => [...core.live.partsOf(s)][0]?.text === 'partial')
    await eventually('a chunk', () => stage.db.chunk.count({ where: { sessionId: s } }))
    await core.live.flush()
    const cleanup = holdAppend(core, hasEvent('step.interrupted'))
    const interrupted = interrupt(core, s)
    await cleanup.held
    await stage.provider.aborted(0)
    expect(await stage.claim(s)).toMatchObject({ phase: 'CANCELLING' })
    const before = await stage.db.chunk.findMany({ where: { sessionId: s } })
    const { messageId, index } = [...core.live.partsOf(s)][0]!
    core.live.add(s, messageId, index, ' late')
    await core.live.flush()
    expect(await stage.db.chunk.findMany({ where: { sessionId: s } })).toEqual(before)
    cleanup.release()
    expect(await interrupted).toMatchObject(done)
    expect((await stage.types(s)).slice(-4)).toEqual([
      'interrupt.requested',
      'text.ended',
      'step.interrupted',
      'execution.settled',
    ])
    const [part] = await stage.db.part.findMany({ where: { sessionId: s } })
    // What was there when the cleanup was put together.
    expect(part).toMatchObject({ text: 'partial', complete: true })
    expect(await stage.types(s)).not.toContain('step.ended')
    await core.live.flush()
    expect(await stage.db.chunk.count({ where: { sessionId: s } })).toBe(0)
  })

  it('INT-03: of an idle session writes nothing, and of an unknown one says so', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    await prompt(core, s, 'kept for later', { resume: false })
    const before = await stage.events(s)
    expect(await interrupt(core, s)).toMatchObject({ type: 'InterruptSessionPayload', interrupted: false })
    expect(await stage.events(s)).toEqual(before)
    expect(await interrupt(core, 'ses_nowhere12')).toMatchObject({ type: 'SessionNotFoundError' })
  })

  it('INT-08: whose cleanup cannot be written is answered with InterruptPendingError; nothing of it runs again', async () => {
    const look = probe('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('look', {}), finishing('tool_calls'), hang()))
    await prompt(core, s)
    const { context, fail } = await look.run()
    const fault = await refuseEvents(stage, s, 'step.interrupted')
    const interrupted = interrupt(core, s)
    await eventually('the signal', async () => context.signal.aborted)
    fail(new Error('stopped'))
    const { executionId } = (await stage.payloads(s, 'execution.started'))[0]!
    expect(await interrupted).toMatchObject({ type: 'InterruptPendingError', sessionId: s, executionId })
    expect(await fault.fired()).toBeGreaterThan(0)
    expect(await stage.claim(s)).toMatchObject({ phase: 'CANCELLING', executionId })
    expect(await stage.types(s)).not.toContain('tool.failed')
    await prompt(core, s, 'more')
    await core.coordinator.idle()
    expect(await stage.payloads(s, 'execution.started')).toHaveLength(1)
    expect(stage.provider.requests).toHaveLength(1)
  })

  it('INT-09: twice at once is one cleanup, and both are answered after it', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(reply(text('x'), hang()))
    await prompt(core, s)
    await stage.logged(s, 'text.started')
    const cleanup = holdAppend(core, hasEvent('step.interrupted'))
    let answers = 0
    const listening = core.doorbell.listeners()
    const both = [interrupt(core, s), interrupt(core, s)].map((each) => each.finally(() => answers++))
    await cleanup.held
    // Who asks after the cleanup finds nothing to stop.
    await eventually('both to wait for the cleanup', () => core.doorbell.listeners() === listening + 2 || undefined)
    expect(answers).toBe(0)
    cleanup.release()
    expect(await Promise.all(both)).toMatchObject([done, done])
    expect(await stage.payloads(s, 'step.interrupted')).toHaveLength(1)
    expect(await stage.payloads(s, 'execution.settled')).toHaveLength(1)
    expect(await stage.payloads(s, 'interrupt.requested')).toHaveLength(1)
  })

  it('INT-10: leaves a tool that ignores its signal to itself after the grace, and drops its late result', async () => {
    const stubborn = probe('stubborn')
    const { core } = await stage.start({ tools: [stubborn.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('stubborn', {}), finish('tool_calls')))
    await prompt(core, s)
    const { finish: late, context } = await stubborn.run()
    await stage.logged(s, 'step.streamed')
    const interrupted = interrupt(core, s)
    await stage.clock.armed(5000)
    expect(context.signal.aborted).toBe(true)
    await stage.clock.advance(4999)
    expect(await stage.types(s)).not.toContain('tool.failed')
    await stage.clock.advance(1)
    expect(await interrupted).toMatchObject(done)
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([{ error: { code: 'OUTCOME_UNKNOWN' } }])
    const before = await stage.events(s)
    late('late')
    await core.coordinator.idle()
    await core.eventLog.idle()
    expect(await stage.events(s)).toEqual(before)
  })

  it('INT-13: of a tool leaves a result for every call in the next request', async () => {
    const look = probe('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(reply(text('I look'), toolCall('look', { n: 1 }), finish('tool_calls')), ok())
    await prompt(core, s, 'one')
    const { context, fail } = await look.run()
    const interrupted = interrupt(core, s)
    await eventually('the signal', async () => context.signal.aborted)
    fail(new Error('stopped'))
    await interrupted
    await prompt(core, s, 'two')
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(spoken(stage.provider.requests[1]!)).toEqual([
      'user: one',
      'assistant: I look',
      'call look {"n":1}',
      expect.stringMatching(/^result ABORTED: /),
      'user: two',
    ])
  })

  it('INT-14: is what a closed subscription is not: the session goes on', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const listening = core.doorbell.listeners()
    const open = gate()
    stage.provider.script(reply(text('a'), wait(open.promise), text('b'), finish()))
    const streams = [1, 2].map(() => sessionStream({ ...core, clock: undefined } as never, { sessionId: s, after: 0 }))
    const reading = streams.map(async (stream) => {
      for await (const item of stream) if (item.typename === 'TextStarted') await stream.return!()
    })
    await prompt(core, s)
    await Promise.all(reading)
    expect(core.doorbell.listeners()).toBe(listening)
    expect(core.live.listeners()).toBe(0)
    open.open()
    await core.coordinator.idle()
    expect(await stage.payloads(s, 'step.ended')).toHaveLength(1)
    expect(await stage.types(s)).not.toContain('interrupt.requested')
  })

  it('INT-19: is not what the end of a runner is: phase UNKNOWN remains', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(reply(text('x'), hang()))
    await prompt(core, s)
    await stage.logged(s, 'text.started')
    for (const hold of core.leases.held()) hold.end('shutdown')
    await core.coordinator.idle()
    expect(await stage.claim(s)).toMatchObject({ phase: 'UNKNOWN', owner: core.owner })
    expect((await stage.types(s)).at(-1)).toBe('text.started')
    expect(await stage.types(s)).not.toContain('interrupt.requested')
  })
})

describe('what waits when an interrupt comes', () => {
  it.each(['admitPrompt', 'resumeSession'])(
    'INT-11: is disarmed by the very commit, kept, and run in the usual order by a later %s',
    async (how) => {
      const { core } = await stage.start()
      const s = await stage.session()
      stage.provider.script(reply(text('x'), hang()))
      await prompt(core, s, 'first')
      await stage.logged(s, 'text.started')
      const queued = await prompt(core, s, 'queued', { delivery: 'QUEUE' })
      const steer = await prompt(core, s, 'steer')
      for (const id of [queued, steer]) expect(await input(id)).toMatchObject({ state: 'PENDING', wakePending: true })
      const cleanup = holdAppend(core, hasEvent('step.interrupted'))
      const interrupted = interrupt(core, s)
      await cleanup.held
      for (const id of [queued, steer]) expect(await input(id)).toMatchObject({ state: 'PENDING', wakePending: false })
      core.coordinator.wake(s)
      cleanup.release()
      await interrupted
      core.coordinator.wake(s)
      await core.coordinator.idle()
      expect(stage.provider.requests).toHaveLength(1)
      for (const id of [queued, steer]) expect(await input(id)).toMatchObject({ state: 'PENDING', wakePending: false })

      stage.provider.script(ok('one'), ok('two'))
      if (how === 'admitPrompt') await prompt(core, s, 'later')
      else await resumeSession(core, tenant, { sessionId: s })
      await core.coordinator.idle()
      stage.provider.expectDone()
      const later = how === 'admitPrompt' ? ['user: later'] : []
      const said = ['user: first', 'assistant: x', 'user: steer', ...later]
      expect(spoken(stage.provider.requests[1]!)).toEqual(said)
      expect(spoken(stage.provider.requests[2]!)).toEqual([...said, 'assistant: one', 'user: queued'])
    },
  )

  it('INT-12, INT-27: what is admitted during the cleanup is new work: still armed, and run by a new execution', async () => {
    const { core } = await stage.start()
    const { core: other } = await stage.start()
    const s = await stage.session()
    stage.provider.script(reply(text('x'), hang()))
    await prompt(core, s, 'first')
    await stage.logged(s, 'text.started')
    const before = await prompt(other, s, 'before', { delivery: 'QUEUE' })
    const cleanup = holdAppend(core, hasEvent('step.interrupted'))
    const interrupted = interrupt(core, s)
    await cleanup.held
    // Elsewhere, where its wake finds the claim taken: the owner has to look again by itself.
    const after = await prompt(other, s, 'after')
    await other.coordinator.idle()
    const replayed = (await replaySession(stage.db, s)).tables.Input
    const armed = [...replayed.values()]
      .filter((row) => row.state === 'PENDING')
      .map((row) => [row.id, row.wakePending])
    expect(armed).toEqual([
      [before, false],
      [after, true],
    ])
    const started = holdAppend(core, hasEvent('execution.started'))
    cleanup.release()
    expect(await interrupted).toMatchObject(done)
    await started.held
    expect(await input(after)).toMatchObject({ state: 'PENDING', wakePending: true })
    expect(await session(s)).toMatchObject({ stepOwed: false })
    stage.provider.script(ok('one'), ok('two'))
    started.release()
    await core.coordinator.idle()
    const executions = await stage.payloads(s, 'execution.started')
    expect(executions).toHaveLength(2)
    expect(spoken(stage.provider.requests[1]!).at(-1)).toBe('user: after')
    expect(await input(after)).toMatchObject({ state: 'PROMOTED' })
  })

  it('INT-22: without a claim is disarmed in one commit, and neither wakes nor scans nor a restart run it', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const { coordinator } = core
    core.coordinator = { ...coordinator, wake() {} }
    const ids = [await prompt(core, s, 'a'), await prompt(core, s, 'b', { delivery: 'QUEUE' })]
    for (const id of ids) expect(await input(id)).toMatchObject({ wakePending: true })
    expect(await interrupt(core, s)).toMatchObject(done)
    expect((await stage.commits(s)).at(-1)).toEqual(['interrupt.requested'])
    expect(await stage.payloads(s, 'interrupt.requested')).toEqual([{ interruptedExecutionId: null }])
    for (const id of ids) expect(await input(id)).toMatchObject({ state: 'PENDING', wakePending: false })
    core.coordinator = coordinator
    const later = await stage.start()
    for (const each of [core, later.core]) {
      each.coordinator.wake(s)
      await each.coordinator.idle()
    }
    await later.recovery.scan()
    await later.core.coordinator.idle()
    expect(stage.provider.requests).toEqual([])
    expect((await stage.types(s)).at(-1)).toBe('interrupt.requested')
  })

  it('INT-23, INT-21: an owed step is owed no more and keeps its terminal; the next prompt runs with the tool results', async () => {
    const look = instant('look', () => 'seen')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('look', { n: 1 }), finish('tool_calls')))
    let begun = 0
    const next = holdAppend(core, (request) => hasEvent('step.started')(request) && ++begun === 2)
    await prompt(core, s, 'one')
    await next.held
    expect(await session(s)).toMatchObject({ stepOwed: true })
    const interrupted = interrupt(core, s)
    await stage.logged(s, 'interrupt.requested')
    next.release()
    expect(await interrupted).toMatchObject(done)
    expect((await stage.types(s)).slice(-3)).toEqual(['step.ended', 'interrupt.requested', 'execution.settled'])
    expect(await session(s)).toMatchObject({ stepOwed: false })
    await resumeSession(core, tenant, { sessionId: s })
    await core.coordinator.idle()
    expect(stage.provider.requests).toHaveLength(1)
    stage.provider.script(ok())
    await prompt(core, s, 'two')
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(spoken(stage.provider.requests[1]!)).toEqual(['user: one', 'call look {"n":1}', 'result seen', 'user: two'])
  })

  it('INT-29: a second interrupt during the cleanup disarms what was armed since; with nothing armed it writes nothing', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(reply(text('x'), hang()))
    await prompt(core, s, 'first')
    await stage.logged(s, 'text.started')
    const cleanup = holdAppend(core, hasEvent('step.interrupted'))
    const first = interrupt(core, s)
    await cleanup.held
    const since = await prompt(core, s, 'since')
    expect(await input(since)).toMatchObject({ wakePending: true })
    const second = interrupt(core, s)
    await stage.logged(s, 'interrupt.requested', 2)
    expect(await input(since)).toMatchObject({ state: 'PENDING', wakePending: false })
    // Named, as the cleanup may be over before it looks.
    const [{ executionId } = { executionId: '' }] = await stage.payloads(s, 'execution.started')
    const third = interrupt(core, s, executionId)
    cleanup.release()
    expect(await Promise.all([first, second, third])).toMatchObject([done, done, done])
    await core.coordinator.idle()
    expect(await stage.payloads(s, 'interrupt.requested')).toHaveLength(2)
    expect(await stage.payloads(s, 'step.interrupted')).toHaveLength(1)
    expect(stage.provider.requests).toHaveLength(1)
    expect(await input(since)).toMatchObject({ state: 'PENDING', wakePending: false })
  })
})

describe('an interrupt that names an execution', () => {
  it('INT-26: touches that one only, and says true only if it was stopped by such a call', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(ok(), reply(text('x'), hang()), reply(text('y'), hang()))
    await prompt(core, s)
    await core.coordinator.idle()
    const ended = (await stage.payloads(s, 'execution.started'))[0]!.executionId
    let before = await stage.events(s)
    expect(await interrupt(core, s, ended)).toMatchObject({ interrupted: false })
    expect(await stage.events(s)).toEqual(before)

    await prompt(core, s)
    const { executionId } = await stage.logged(s, 'execution.started', 2)
    await stage.logged(s, 'text.started', 2)
    before = await stage.events(s)
    expect(await interrupt(core, s, ended)).toMatchObject({ interrupted: false })
    expect(await stage.events(s)).toEqual(before)
    expect(await stage.claim(s)).toMatchObject({ executionId, phase: 'UNKNOWN' })
    expect(await interrupt(core, s, executionId)).toMatchObject(done)

    await prompt(core, s)
    await stage.logged(s, 'text.started', 3)
    before = await stage.events(s)
    expect(await interrupt(core, s, executionId)).toMatchObject(done)
    expect(await stage.events(s)).toEqual(before)
    expect(await stage.claim(s)).toMatchObject({ phase: 'UNKNOWN' })
    await interrupt(core, s)
  })
})
