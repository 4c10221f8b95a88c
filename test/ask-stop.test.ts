// What ends the activity of a step that asks: declined or dismissed to stop, and an interrupt (design sections 7 and 8).
import { afterEach, describe, expect, it } from 'vitest'
import { builtinTools } from '../src/runner/tools/builtin.ts'
import {
  asked,
  call,
  calling,
  declineAndStop,
  dieAt,
  dismiss,
  goOnWithout,
  guarded,
  interaction,
  resetTime,
  said,
  scanned,
  statusIn,
  waiting,
} from './support/asking.ts'
import { eventually } from './support/core.ts'
import { finishing, hang, reply, toolCalls } from './support/provider.ts'
import { interrupt, probe, prompt, spoken, useStage } from './support/stage.ts'

const stage = useStage()
afterEach(() => resetTime(stage))

const question = { name: 'ask_user', args: { question: 'Go on?' }, id: 'call_ask' }

/** A session that waits for two people's decisions, with an armed prompt behind it. */
async function twoAsked() {
  const deploy = guarded('deploy')
  const erase = guarded('erase')
  const a = await stage.start({ tools: [deploy.tool, erase.tool] })
  const s = await stage.session()
  stage.provider.script(calling('deploy', 'erase'))
  await prompt(a.core, s)
  await waiting(stage, a, s)
  const pending = await prompt(a.core, s, 'behind it', { delivery: 'QUEUE' })
  await a.core.coordinator.idle()
  return { a, s, deploy, erase, pending, first: await asked(stage, s, 1), second: await asked(stage, s, 2) }
}

describe('without a claim', () => {
  it('ASK-09: declined to stop: one commit ends the whole step and the other question, and nothing follows', async () => {
    const { a, s, deploy, erase, pending, first, second } = await twoAsked()
    const before = (await stage.commits(s)).length
    expect(await declineAndStop(a.core, first, 'enough')).toMatchObject({ type: 'InteractionPayload' })
    await a.core.coordinator.idle()
    await scanned(stage, a)
    expect((await stage.commits(s)).slice(before)).toEqual([
      [
        'interrupt.requested',
        'interaction.settled',
        'interaction.settled',
        'tool.failed',
        'tool.failed',
        'step.interrupted',
      ],
    ])
    expect(await interaction(stage, first)).toMatchObject({ state: 'DECLINED', feedback: 'enough', wakePending: false })
    expect(await interaction(stage, second)).toMatchObject({ state: 'CANCELLED', wakePending: false })
    expect(await call(stage, s, 'call_deploy')).toMatchObject({ errorCode: 'DECLINED', startedAt: null })
    expect((await call(stage, s, 'call_deploy')).errorMessage).toContain('enough')
    expect(await call(stage, s, 'call_erase')).toMatchObject({ errorCode: 'ABORTED', startedAt: null })
    expect(await stage.payloads(s, 'execution.settled')).toHaveLength(1)
    const input = await stage.db.input.findUniqueOrThrow({ where: { id: pending } })
    expect(input).toMatchObject({ state: 'PENDING', wakePending: false })
    expect(await statusIn(stage, a, s)).toBe('IDLE')
    expect(stage.provider.requests).toHaveLength(1)
    expect([...deploy.ran, ...erase.ran]).toEqual([])
  })

  it('ASK-09: a question that was declined before, to go on, and is not carried out yet keeps that reason', async () => {
    const { a, s, first, second } = await twoAsked()
    a.core.coordinator.wake = () => {}
    await goOnWithout(a.core, first, 'not this one')
    await declineAndStop(a.core, second, 'nor this')
    expect(await interaction(stage, first)).toMatchObject({ state: 'DECLINED', wakePending: false })
    expect((await call(stage, s, 'call_deploy')).errorMessage).toContain('not this one')
    expect((await call(stage, s, 'call_erase')).errorMessage).toContain('nor this')
  })

  it('ASK-11: a dismissed question ends the activity in the same way', async () => {
    const a = await stage.start({ config: { tools: builtinTools } })
    const s = await stage.session()
    stage.provider.script(calling(question))
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const before = (await stage.commits(s)).length
    expect(await dismiss(a.core, await asked(stage, s))).toMatchObject({ type: 'InteractionPayload' })
    await a.core.coordinator.idle()
    expect((await stage.commits(s)).slice(before)).toEqual([
      ['interrupt.requested', 'interaction.settled', 'tool.failed', 'step.interrupted'],
    ])
    expect(await interaction(stage, await asked(stage, s))).toMatchObject({ state: 'DISMISSED' })
    expect(await call(stage, s, 'call_ask')).toMatchObject({ errorCode: 'DECLINED', startedAt: null })
    expect(await statusIn(stage, a, s)).toBe('IDLE')
    // The session goes on when a person says so, and the model is told what became of its question.
    stage.provider.script(said())
    await prompt(a.core, s, 'again')
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(spoken(stage.provider.requests[1]!).slice(-2)).toEqual([
      'result DECLINED: declined by the user',
      'user: again',
    ])
  })

  it('ASK-10: declined to stop and dead at once: recovery never takes it up', async () => {
    const { a, s, first, deploy } = await twoAsked()
    const b = await stage.start({ tools: [deploy.tool] })
    const death = dieAt(a, 'interrupt.requested', 'after')
    await expect(declineAndStop(a.core, first)).rejects.toThrow('died')
    await death.died
    for (let pass = 0; pass < 3; pass++) expect(await scanned(stage, b)).toMatchObject({ taken: 0, woken: 0 })
    expect(await stage.types(s)).not.toContain('step.recovered')
    expect(stage.provider.requests).toHaveLength(1)
    expect(await statusIn(stage, b, s)).toBe('IDLE')
    expect(await declineAndStop(b.core, first)).toMatchObject({ type: 'InteractionPayload' })
  })

  it('INT-18: an interrupt cancels the open question and ends the step in its one commit', async () => {
    const { a, s, deploy, erase, first, second } = await twoAsked()
    const before = (await stage.commits(s)).length
    expect(await interrupt(a.core, s)).toMatchObject({ type: 'InterruptSessionPayload', interrupted: true })
    await a.core.coordinator.idle()
    expect((await stage.commits(s)).slice(before)).toEqual([
      [
        'interrupt.requested',
        'interaction.settled',
        'interaction.settled',
        'tool.failed',
        'tool.failed',
        'step.interrupted',
      ],
    ])
    expect(await stage.payloads(s, 'interrupt.requested')).toEqual([{ interruptedExecutionId: null }])
    for (const id of [first, second]) expect(await interaction(stage, id)).toMatchObject({ state: 'CANCELLED' })
    for (const callId of ['call_deploy', 'call_erase'])
      expect(await call(stage, s, callId)).toMatchObject({ errorCode: 'ABORTED', startedAt: null })
    expect(await stage.payloads(s, 'execution.settled')).toHaveLength(1)
    expect([...deploy.ran, ...erase.ran]).toEqual([])
    expect(await declineAndStop(a.core, first)).toMatchObject({ type: 'InteractionSettledError' })
  })
})

describe('with a live claim', () => {
  async function asking() {
    const look = probe('look')
    const deploy = guarded('deploy')
    const erase = guarded('erase')
    const options = { tools: [deploy.tool, erase.tool, look.tool] }
    const owner = await stage.start(options)
    const other = await stage.start(options)
    const s = await stage.session()
    stage.provider.script(calling('look', 'erase', 'deploy'))
    await prompt(owner.core, s)
    const run = await look.run()
    const id = await asked(stage, s, 2)
    await stage.logged(s, 'step.streamed')
    return { owner, other, s, run, id, erase }
  }

  it.each([
    ['the owner', true],
    ['another node', false],
  ])(
    'ASK-21: a sibling runs; declined to stop on %s: decision, request and CANCELLING are one commit',
    async (_where, isOwner) => {
      const { owner, other, s, run, id, erase } = await asking()
      const before = (await stage.commits(s)).length
      const { executionId } = (await stage.claim(s))!
      const phases: string[] = []
      const decider = isOwner ? owner : other
      const { append } = decider.core.eventLog
      decider.core.eventLog = {
        ...decider.core.eventLog,
        async append(request) {
          const outcome = await append(request)
          if (request.events.some(({ type }) => type === 'interrupt.requested'))
            phases.push((await stage.claim(s))?.phase ?? 'none')
          return outcome
        },
      }
      expect(await declineAndStop(decider.core, id, 'stop it')).toMatchObject({ type: 'InteractionPayload' })
      expect(phases).toEqual(['CANCELLING'])
      await eventually('the abort', async () => run.context.signal.aborted)
      expect(await stage.types(s)).not.toContain('step.interrupted')
      run.fail(new Error('stopped'))
      await eventually('the end', async () => (await stage.claim(s)) === null)
      await owner.core.coordinator.idle()
      const commits = (await stage.commits(s)).slice(before)
      expect(commits[0]).toEqual(['interaction.settled', 'interrupt.requested'])
      expect(commits[1]).toEqual([
        'interaction.settled',
        'tool.failed',
        'tool.failed',
        'tool.failed',
        'step.interrupted',
        'execution.settled',
      ])
      expect(commits).toHaveLength(2)
      expect(await call(stage, s, 'call_deploy')).toMatchObject({ errorCode: 'DECLINED', startedAt: null })
      expect((await call(stage, s, 'call_deploy')).errorMessage).toContain('stop it')
      expect(await call(stage, s, 'call_look')).toMatchObject({ errorCode: 'ABORTED' })
      expect(await call(stage, s, 'call_erase')).toMatchObject({ errorCode: 'ABORTED', startedAt: null })
      expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ executionId, outcome: 'INTERRUPTED' }])
      expect(erase.ran).toEqual([])
      expect(stage.provider.requests).toHaveLength(1)
    },
  )

  it('ASK-21, ASK-11: the stream is open; a dismissed question aborts it, and no request follows', async () => {
    const look = probe('look')
    const options = { tools: [look.tool], config: { tools: builtinTools } }
    const owner = await stage.start(options)
    const other = await stage.start(options)
    const s = await stage.session()
    stage.provider.script(
      reply(toolCalls({ name: 'look', args: {}, id: 'call_look' }, question), finishing('tool_calls'), hang()),
    )
    await prompt(owner.core, s)
    const run = await look.run()
    const id = await asked(stage, s)
    expect(await dismiss(other.core, id)).toMatchObject({ type: 'InteractionPayload' })
    await stage.provider.aborted(0)
    await eventually('the abort', async () => run.context.signal.aborted)
    run.fail(new Error('stopped'))
    await eventually('the end', async () => (await stage.claim(s)) === null)
    await owner.core.coordinator.idle()
    expect(await call(stage, s, 'call_ask')).toMatchObject({ errorCode: 'DECLINED', startedAt: null })
    expect(await call(stage, s, 'call_look')).toMatchObject({ errorCode: 'ABORTED' })
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'INTERRUPTED' }])
    expect(await stage.payloads(s, 'step.interrupted')).toHaveLength(1)
    expect(await interaction(stage, id)).toMatchObject({ state: 'DISMISSED', wakePending: false })
    expect(stage.provider.requests).toHaveLength(1)
  })

  it('ASK-10: declined to stop and the owner dies before its cleanup: set aside until a person stops it again', async () => {
    const { owner, other, s, run, id } = await asking()
    const death = dieAt(owner, 'step.interrupted', 'before')
    await declineAndStop(other.core, id)
    await eventually('the abort', async () => run.context.signal.aborted)
    run.fail(new Error('stopped'))
    await death.died
    expect(await scanned(stage, other)).toMatchObject({ quarantined: 1 })
    expect(await scanned(stage, other)).toMatchObject({ taken: 0, quarantined: 0, woken: 0 })
    expect(await statusIn(stage, other, s)).toBe('QUARANTINED')
    expect(await stage.types(s)).not.toContain('step.recovered')
    expect(await interrupt(other.core, s)).toMatchObject({ interrupted: true })
    await scanned(stage, other)
    expect(await statusIn(stage, other, s)).toBe('IDLE')
    expect(await call(stage, s, 'call_deploy')).toMatchObject({ errorCode: 'DECLINED' })
    expect(await call(stage, s, 'call_look')).toMatchObject({ errorCode: 'OUTCOME_UNKNOWN' })
    expect(stage.provider.requests).toHaveLength(1)
  })

  it('INT-18: an interrupt with a live claim cancels the open question in the cleanup append', async () => {
    const { owner, s, run, id, erase } = await asking()
    const before = (await stage.commits(s)).length
    const stopped = interrupt(owner.core, s)
    await eventually('the abort', async () => run.context.signal.aborted)
    run.fail(new Error('stopped'))
    expect(await stopped).toMatchObject({ interrupted: true })
    expect((await stage.commits(s)).slice(before)).toEqual([
      ['interrupt.requested'],
      [
        'interaction.settled',
        'interaction.settled',
        'tool.failed',
        'tool.failed',
        'tool.failed',
        'step.interrupted',
        'execution.settled',
      ],
    ])
    expect(await interaction(stage, id)).toMatchObject({ state: 'CANCELLED' })
    for (const callId of ['call_deploy', 'call_erase'])
      expect(await call(stage, s, callId)).toMatchObject({ errorCode: 'ABORTED', startedAt: null })
    expect(erase.ran).toEqual([])
  })
})
