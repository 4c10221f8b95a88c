// Interrupts that one process asks for and another one owns; the owner hears nothing of it where its doorbell is lost.
import { describe, expect, it } from 'vitest'
import { createEventLog } from '../src/event-log.ts'
import { eventually, type TestCore } from './support/core.ts'
import { finish, finishing, gate, hang, reply, text, toolCall, wait } from './support/provider.ts'
import { hasEvent, holdAppend, instant, interrupt, prompt, useStage } from './support/stage.ts'

const stage = useStage()
const done = { type: 'InterruptSessionPayload', interrupted: true }

/** Two processes; the first takes the notifications of the second for its own, so that no ring tells it anything. */
async function owners(options: Parameters<typeof stage.start>[0] = {}): Promise<[TestCore['core'], TestCore['core']]> {
  const { core: a } = await stage.start(options)
  const { core: b } = await stage.start(options)
  b.eventLog = createEventLog({ db: b.db, doorbell: b.doorbell, origin: a.owner })
  return [a, b]
}

const cancelling = (sessionId: string) =>
  eventually('CANCELLING', async () => (await stage.claim(sessionId))?.phase === 'CANCELLING')

describe('an owner that is not told', () => {
  it('INT-05: sees the interrupt at its next renewal, and settles', async () => {
    const [a, b] = await owners()
    const s = await stage.session()
    stage.provider.script(reply(text('x'), hang()))
    await prompt(a, s)
    await stage.logged(s, 'text.started')
    const interrupted = interrupt(b, s)
    await cancelling(s)
    expect(a.leases.held().map(({ ended }) => ended)).toEqual([null])
    expect(stage.provider.requests[0]!.aborted).toBe(false)
    await a.leases.renewNow()
    expect(await interrupted).toMatchObject(done)
    await stage.provider.aborted(0)
    expect((await stage.types(s)).slice(-4)).toEqual([
      'interrupt.requested',
      'text.ended',
      'step.interrupted',
      'execution.settled',
    ])
  })

  it('INT-05: sees it at its next fence at the latest', async () => {
    const [a, b] = await owners()
    const s = await stage.session()
    const open = gate()
    stage.provider.script(reply(text('x'), wait(open.promise), finish()))
    await prompt(a, s)
    await stage.logged(s, 'text.started')
    const interrupted = interrupt(b, s)
    await cancelling(s)
    expect(a.leases.held().map(({ ended }) => ended)).toEqual([null])
    open.open()
    expect(await interrupted).toMatchObject(done)
    const types = await stage.types(s)
    expect(types.slice(-3)).toEqual(['text.ended', 'step.interrupted', 'execution.settled'])
    expect(types).not.toContain('step.ended')
  })

  it('INT-06, INT-21: has its ToolCalled and ToolStarted refused, dispatches nothing, and no ToolSucceeded follows', async () => {
    const look = instant('look')
    const [a, b] = await owners({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('look', {}), finishing('tool_calls'), hang()))
    const start = holdAppend(a, hasEvent('tool.started'))
    await prompt(a, s)
    await start.held
    const interrupted = interrupt(b, s)
    await cancelling(s)
    start.release()
    expect(await interrupted).toMatchObject(done)
    expect(look.ran).toEqual([])
    const types = await stage.types(s)
    for (const type of ['tool.called', 'tool.started', 'tool.succeeded']) expect(types).not.toContain(type)
    expect(types.slice(-4)).toEqual(['interrupt.requested', 'tool.failed', 'step.interrupted', 'execution.settled'])
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([{ error: { code: 'ABORTED' } }])
    expect(await stage.db.toolCall.findMany({ where: { sessionId: s } })).toMatchObject([{ startedAt: null }])
  })

  it('INT-21: whose StepEnded comes second is refused it: only its cleanup passes, and no next request is made', async () => {
    const look = instant('look')
    const [a, b] = await owners({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('look', {}), finish('tool_calls')))
    const end = holdAppend(a, hasEvent('step.ended'))
    await prompt(a, s)
    await end.held
    const interrupted = interrupt(b, s)
    await cancelling(s)
    end.release()
    expect(await interrupted).toMatchObject(done)
    await a.coordinator.idle()
    const types = await stage.types(s)
    expect(types).not.toContain('step.ended')
    expect((await stage.commits(s)).at(-1)).toEqual(['step.interrupted', 'execution.settled'])
    expect(stage.provider.requests).toHaveLength(1)
  })

  it('INT-21: whose StepEnded comes first keeps it: no StepInterrupted, no next request', async () => {
    const look = instant('look')
    const [a, b] = await owners({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('look', {}), finish('tool_calls')))
    let begun = 0
    const next = holdAppend(a, (request) => hasEvent('step.started')(request) && ++begun === 2)
    await prompt(a, s)
    await next.held
    expect(await stage.payloads(s, 'step.ended')).toMatchObject([{ continues: true }])
    const interrupted = interrupt(b, s)
    await cancelling(s)
    next.release()
    expect(await interrupted).toMatchObject(done)
    await a.coordinator.idle()
    expect((await stage.types(s)).slice(-3)).toEqual(['step.ended', 'interrupt.requested', 'execution.settled'])
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'INTERRUPTED' }])
    expect(stage.provider.requests).toHaveLength(1)
    expect(await stage.db.session.findUnique({ where: { id: s } })).toMatchObject({ stepOwed: false })
  })
})
