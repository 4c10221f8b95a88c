// A decision is taken on what was read; if the session or its claim moves before the append, the append is refused and the decision is
// taken again (design section 2, idea 1; scenario LOG-25). Each decision of the runner meets such a move here.
import { afterEach, describe, expect, it } from 'vitest'
import { type EventType, event } from '../src/events.ts'
import { newExecutionId } from '../src/ids.ts'
import { expireInteraction } from '../src/recovery/settle-rows.ts'
import { admitPrompt } from '../src/runner/admit.ts'
import { compactSession } from '../src/runner/compact.ts'
import type { Core } from '../src/runner/core.ts'
import { drain } from '../src/runner/drain.ts'
import { isEligible, readWork } from '../src/runner/eligible.ts'
import { HoldEnded } from '../src/runner/hold.ts'
import { changeDelivery, withdrawPrompt } from '../src/runner/pending.ts'
import { resumeSession } from '../src/runner/resume.ts'
import {
  approve,
  asked,
  calling,
  declineAndStop,
  goOnWithout,
  guarded,
  interaction,
  resetTime,
  said,
  waiting,
} from './support/asking.ts'
import { atAppend, hasEvent } from './support/at-append.ts'
import { eventually } from './support/core.ts'
import { inStep, quiet } from './support/cut-off.ts'
import { errorBody, finishing, hang, reply, status, toolCalls } from './support/provider.ts'
import { interrupt, newId, prompt, tenant, useStage } from './support/stage.ts'

const stage = useStage()
afterEach(() => resetTime(stage))

/** Right before this core's first append with such an event `meanwhile` happens elsewhere; gives what became of each append with one. */
function racing(core: Core, type: EventType, meanwhile: () => Promise<unknown>): string[] {
  const outcomes: string[] = []
  atAppend(core, hasEvent(type), async (go, nth) => {
    if (nth === 1) await meanwhile()
    const outcome = await go()
    outcomes.push(outcome.kind)
    return outcome
  })
  return outcomes
}

const titled = (model = 'compatible/scripted') =>
  event('session.updated', { title: 'x', instructions: null, model, archived: false })
/** Something that concerns nobody, but moves the session. */
const move = async (core: Core, sessionId: string, model?: string) =>
  expect(await core.eventLog.append({ sessionId, events: [titled(model)] })).toMatchObject({ kind: 'appended' })
const phaseIs = (sessionId: string, phase: string) =>
  eventually(phase, async () => (await stage.claim(sessionId))?.phase === phase)
const idsOf = async (sessionId: string) =>
  (await stage.db.input.findMany({ where: { sessionId }, orderBy: { admittedSeq: 'asc' } })).map(({ id }) => id)

/** `a` runs, `b` only appends. */
async function two(options: Parameters<typeof stage.start>[0] = {}) {
  const a = await stage.start(options)
  const b = await stage.start(options)
  quiet(b.core)
  return { a, b, s: await stage.session() }
}
async function waits() {
  const deploy = guarded()
  const { a, b, s } = await two({ tools: [deploy.tool] })
  stage.provider.script(calling('deploy'))
  await prompt(a.core, s)
  await waiting(stage, a, s)
  return { a, b, s, deploy, id: await asked(stage, s) }
}

describe('LOG-25: decided again by the runner', () => {
  it('the start of an execution: what was to run is withdrawn, and nothing starts', async () => {
    const { a, b, s } = await two()
    const outcomes = racing(a.core, 'execution.started', async () => {
      const [messageId] = await idsOf(s)
      expect(await withdrawPrompt(b.core, tenant, { sessionId: s, messageId: messageId! })).toMatchObject({
        type: 'PromptChangePayload',
      })
    })
    await prompt(a.core, s)
    await a.core.coordinator.idle()
    expect(outcomes).toEqual(['stale'])
    expect(await stage.payloads(s, 'execution.started')).toEqual([])
    expect(await stage.claim(s)).toBeNull()
  })

  it('a step that waits for a person: decided while it is given back, the tool runs under the same claim', async () => {
    const deploy = guarded()
    const { a, b, s } = await two({ tools: [deploy.tool] })
    stage.provider.script(calling('deploy'), said())
    const outcomes = racing(a.core, 'execution.settled', async () => {
      expect(await approve(b.core, await asked(stage, s))).toMatchObject({ type: 'InteractionPayload' })
    })
    await prompt(a.core, s)
    await a.core.coordinator.idle()
    expect(outcomes[0]).toBe('stale')
    expect(deploy.ran).toHaveLength(1)
    expect(await stage.payloads(s, 'execution.started')).toHaveLength(1)
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'SUCCEEDED' }])
  })

  it('a step that cannot be prepared for good: what came meanwhile is looked at', async () => {
    const { a, b } = await two()
    const s = await stage.session({ model: 'nobody/none' })
    const outcomes = racing(a.core, 'step.failed', () => move(b.core, s, 'nobody/none'))
    await prompt(a.core, s)
    await a.core.coordinator.idle()
    expect(outcomes).toEqual(['stale', 'appended'])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([{ error: { code: 'UNKNOWN_MODEL' } }])
  })

  it('a step that cannot be prepared for now: the same', async () => {
    const { a, b, s } = await two()
    const { models } = a.core
    a.core.models = {
      ...models,
      resolve() {
        throw new Error('injected')
      },
    }
    const outcomes = racing(a.core, 'execution.settled', () => move(b.core, s))
    await prompt(a.core, s)
    await a.core.coordinator.idle()
    expect(outcomes).toEqual(['stale', 'appended'])
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'RELEASED' }])
  })

  it('the start of a compaction: the same', async () => {
    const { a, b, s } = await two()
    stage.provider.script(said('one'), said('summary'))
    await prompt(a.core, s)
    await a.core.coordinator.idle()
    const outcomes = racing(a.core, 'compaction.started', () => move(b.core, s))
    await compactSession(a.core, tenant, { sessionId: s, messageId: newId('msg_') })
    await a.core.coordinator.idle()
    expect(outcomes).toEqual(['stale', 'appended'])
    expect(await stage.payloads(s, 'compaction.ended')).toMatchObject([{ summary: 'summary' }])
  })

  it('INT-21: a failed execution that is interrupted before its end is an interrupted one', async () => {
    const { a, b, s } = await two()
    stage.provider.script(status(401, errorBody('invalid_api_key')))
    let interrupted: Promise<unknown> = Promise.resolve()
    const outcomes = racing(a.core, 'execution.settled', async () => {
      interrupted = interrupt(b.core, s)
      await phaseIs(s, 'CANCELLING')
    })
    await prompt(a.core, s)
    await a.core.coordinator.idle()
    expect(await interrupted).toMatchObject({ interrupted: true })
    expect(outcomes).toEqual(['fenced', 'appended'])
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'INTERRUPTED' }])
  })

  it('the cleanup of an interrupt: what a person decides meanwhile is kept', async () => {
    const deploy = guarded()
    const { a, b, s } = await two({ tools: [deploy.tool] })
    const call = { name: 'deploy', args: {}, id: 'call_deploy' }
    stage.provider.script(reply(toolCalls(call), finishing('tool_calls'), hang()))
    await prompt(a.core, s)
    const id = await asked(stage, s)
    const outcomes = racing(a.core, 'execution.settled', async () => {
      expect(await goOnWithout(b.core, id, 'not today')).toMatchObject({ type: 'InteractionPayload' })
    })
    expect(await interrupt(a.core, s)).toMatchObject({ interrupted: true })
    await a.core.coordinator.idle()
    expect(outcomes).toEqual(['stale', 'appended'])
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([
      { error: { code: 'DECLINED', message: 'declined by the user: not today' } },
    ])
    expect(await interaction(stage, id)).toMatchObject({ state: 'DECLINED' })
  })
})

describe('what may start', () => {
  it('CLAIM-20: a drain that begins when its process stops already claims nothing', async () => {
    const { a, s } = await two()
    quiet(a.core)
    await prompt(a.core, s)
    expect(await drain({ ...a.core, stopping: AbortSignal.abort() }, s)).toEqual({ again: false })
    expect(await stage.payloads(s, 'execution.started')).toEqual([])
    expect(await stage.claim(s)).toBeNull()
  })

  it('CLAIM-15: no request whose hold may not start one right before it, its step having begun', async () => {
    const { a, s } = await two()
    const asked: string[] = []
    a.core.leases.mustStart = async (hold) => {
      asked.push(hold.sessionId)
      hold.end('lost')
      throw new HoldEnded('lost')
    }
    stage.provider.script(said())
    stage.leavesReplies = true
    await prompt(a.core, s)
    await a.core.coordinator.idle()
    expect((await stage.types(s)).at(-1)).toBe('step.started')
    expect(asked).toEqual([s])
    expect(stage.provider.requests).toEqual([])
  })

  it('REC-23, REC-44: no session that is parked, set aside, resting or claimed, whatever it owes', async () => {
    const { a, s } = await two()
    quiet(a.core)
    await prompt(a.core, s)
    const work = (await readWork(a.core.db, s))!
    expect(isEligible(work)).toBe(true)
    for (const not of [{ parked: true }, { quarantined: true }, { backingOff: true }])
      expect(isEligible({ ...work, ...not }), JSON.stringify(not)).toBe(false)
    const claim = { executionId: newExecutionId(), owner: 'own_.other', phase: 'READY' as const, live: false }
    expect(isEligible({ ...work, claim })).toBe(false)
  })
})

describe('LOG-25: decided again by a mutation', () => {
  it('a late request to run: of two at once one is the first', async () => {
    const { a, b, s } = await two()
    quiet(a.core)
    const messageId = newId('msg_')
    const admit = (core: Core, resume: boolean) =>
      admitPrompt(core, tenant, { sessionId: s, messageId, text: 'hi', resume })
    await admit(a.core, false)
    const outcomes = racing(a.core, 'prompt.execution_requested', async () => {
      expect(await admit(b.core, true)).toMatchObject({ executionRequested: true })
    })
    expect(await admit(a.core, true)).toMatchObject({ outcome: 'ALREADY_ADMITTED', executionRequested: false })
    expect(outcomes).toEqual(['stale'])
    expect(await stage.payloads(s, 'prompt.execution_requested')).toHaveLength(1)
  })

  it('a withdrawal', async () => {
    const { a, b, s } = await two()
    const messageId = await prompt(a.core, s, 'hi', { resume: false })
    const outcomes = racing(a.core, 'prompt.withdrawn', () =>
      changeDelivery(b.core, tenant, { sessionId: s, messageId, delivery: 'QUEUE' }),
    )
    expect(await withdrawPrompt(a.core, tenant, { sessionId: s, messageId })).toMatchObject({
      type: 'PromptChangePayload',
    })
    expect(outcomes).toEqual(['stale', 'appended'])
  })

  it('a resume: what was to be armed is withdrawn, and nothing is written', async () => {
    const { a, b, s } = await two()
    const messageId = await prompt(a.core, s, 'hi', { resume: false })
    const outcomes = racing(a.core, 'session.resume_requested', () =>
      withdrawPrompt(b.core, tenant, { sessionId: s, messageId }),
    )
    expect(await resumeSession(a.core, tenant, { sessionId: s })).toMatchObject({ type: 'ResumeSessionPayload' })
    await a.core.coordinator.idle()
    expect(outcomes).toEqual(['stale'])
    expect(await stage.payloads(s, 'session.resume_requested')).toEqual([])
  })

  it('ASK-13: an approval that comes second by a hair is told so', async () => {
    const { a, b, s, id, deploy } = await waits()
    const { wake } = a.core.coordinator
    quiet(a.core)
    const outcomes = racing(a.core, 'interaction.settled', async () => {
      expect(await goOnWithout(b.core, id)).toMatchObject({ type: 'InteractionPayload' })
    })
    expect(await approve(a.core, id)).toMatchObject({ type: 'InteractionSettledError' })
    expect(outcomes).toEqual(['stale'])
    stage.provider.script(said())
    wake(s)
    await a.core.coordinator.idle()
    expect(deploy.ran).toEqual([])
  })

  it('ASK-09: a decline that stops settles what is there', async () => {
    const { a, b, s, id } = await waits()
    const outcomes = racing(a.core, 'interaction.settled', () => move(b.core, s))
    expect(await declineAndStop(a.core, id)).toMatchObject({ type: 'InteractionPayload' })
    expect(outcomes).toEqual(['stale', 'appended'])
    expect((await stage.types(s)).at(-1)).toBe('step.interrupted')
  })

  it('ASK-21: a dismissal while the step runs does too', async () => {
    const deploy = guarded()
    const { a, b, s } = await two({ tools: [deploy.tool] })
    const call = { name: 'deploy', args: {}, id: 'call_deploy' }
    stage.provider.script(reply(toolCalls(call), finishing('tool_calls'), hang()))
    await prompt(a.core, s)
    const id = await asked(stage, s)
    const outcomes = racing(b.core, 'interrupt.requested', () => move(a.core, s))
    expect(await declineAndStop(b.core, id)).toMatchObject({ type: 'InteractionPayload' })
    await a.core.coordinator.idle()
    expect(outcomes).toEqual(['stale', 'appended'])
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'INTERRUPTED' }])
  })

  it('ASK-15: an expiry: decided in the last moment, it does not expire', async () => {
    const { a, b, s, id, deploy } = await waits()
    const outcomes = racing(a.core, 'interaction.settled', () => approve(b.core, id))
    expect(await expireInteraction(a.core, s, id)).toBe(false)
    expect(outcomes).toEqual(['stale'])
    expect(await interaction(stage, id)).toMatchObject({ state: 'APPROVED' })
    stage.provider.script(said())
    a.core.coordinator.wake(s)
    await a.core.coordinator.idle()
    expect(deploy.ran).toHaveLength(1)
  })
})

describe('LOG-25: decided again by an interrupt', () => {
  const done = { type: 'InterruptSessionPayload', interrupted: true }

  it('an interrupt without a claim', async () => {
    const { a, b, s } = await two()
    quiet(a.core)
    await prompt(a.core, s)
    const outcomes = racing(a.core, 'interrupt.requested', () => move(b.core, s))
    expect(await interrupt(a.core, s)).toMatchObject(done)
    expect(outcomes).toEqual(['stale', 'appended'])
  })

  it('an interrupt that finds the session claimed does not settle past its owner', async () => {
    const { a, b, s } = await two()
    quiet(a.core)
    await prompt(a.core, s)
    const executionId = newExecutionId()
    const outcomes = racing(a.core, 'interrupt.requested', () =>
      // Its lease is over at once, so that the interrupt need not wait for it.
      b.core.eventLog.append({
        sessionId: s,
        events: [event('execution.started', { executionId })],
        claim: { kind: 'acquire', executionId, owner: 'own_.short', leaseMs: -1 },
      }),
    )
    expect(await interrupt(a.core, s)).toMatchObject(done)
    expect(outcomes).toEqual(['claimed', 'appended'])
    expect(await stage.payloads(s, 'interrupt.requested')).toEqual([{ interruptedExecutionId: executionId }])
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ executionId, outcome: 'INTERRUPTED' }])
  })

  it('INT-15: an interrupt over a dead owner', async () => {
    const { b } = await two()
    const cut = await inStep(b.core)
    const outcomes = racing(b.core, 'interrupt.requested', () => cut.append([titled()]))
    expect(await interrupt(b.core, cut.sessionId)).toMatchObject(done)
    expect(outcomes).toEqual(['stale', 'appended'])
    expect((await cut.types()).filter((type) => type === 'step.interrupted')).toHaveLength(1)
  })

  it('INT-15: an interrupt whose owner was only slow: renewed meanwhile, it is asked to stop first', async () => {
    const { b } = await two()
    const cut = await inStep(b.core)
    const { sessionId } = cut
    const outcomes = racing(
      b.core,
      'interrupt.requested',
      () =>
        stage.db
          .$executeRaw`UPDATE "Claim" SET "expiresAt" = holdfast_now() + interval '1 s' WHERE "sessionId" = ${sessionId}`,
    )
    expect(await interrupt(b.core, sessionId)).toMatchObject(done)
    expect(outcomes).toEqual(['fenced', 'appended'])
    // Asked in one commit, settled in another, once the lease had run out after all.
    expect((await stage.commits(sessionId)).slice(-2)).toEqual([
      ['interrupt.requested'],
      ['step.interrupted', 'execution.settled'],
    ])
  })

  it('INT-09: two interrupts at once, on two nodes: one is logged', async () => {
    const { a, b } = await two()
    const cut = await inStep(b.core, { leaseMs: 1500 })
    const { sessionId } = cut
    let other: Promise<unknown> = Promise.resolve()
    const outcomes = racing(a.core, 'interrupt.requested', async () => {
      other = interrupt(b.core, sessionId)
      await phaseIs(sessionId, 'CANCELLING')
    })
    expect(await interrupt(a.core, sessionId)).toMatchObject(done)
    expect(await other).toMatchObject(done)
    expect(outcomes).toEqual(['fenced'])
    expect(await stage.payloads(sessionId, 'interrupt.requested')).toHaveLength(1)
  })
})
