// Approvals and questions across deaths, restarts and processes (design sections 7, 9 and 11).
import { afterEach, describe, expect, it } from 'vitest'
import type { ToolContext } from '../src/config.ts'
import { builtinTools } from '../src/runner/tools/builtin.ts'
import {
  answerTo,
  approve,
  asked,
  call,
  calling,
  dieAt,
  goOnWithout,
  guarded,
  interaction,
  passTime,
  resetTime,
  said,
  scanned,
  statusIn,
  waiting,
} from './support/asking.ts'
import { probe, prompt, spoken, useStage } from './support/stage.ts'

const stage = useStage()
afterEach(() => resetTime(stage))

const week = 7 * 24 * 3_600_000

/** A session that waits for an approval, and the process that asked. */
async function waits(tool = guarded()) {
  const a = await stage.start({ tools: [tool.tool] })
  const s = await stage.session()
  stage.provider.script(calling({ name: 'deploy', args: { to: 'prod' } }))
  await prompt(a.core, s)
  await waiting(stage, a, s)
  return { a, s, deploy: tool, id: await asked(stage, s) }
}

const another = (deploy: ReturnType<typeof guarded>) => stage.start({ tools: [deploy.tool] })

it('ASK-03: a restart and a week change nothing: still waiting, the same question, and an answer goes through', async () => {
  const a = await stage.start({ config: { tools: builtinTools } })
  const s = await stage.session()
  stage.provider.script(calling({ name: 'ask_user', args: { question: 'Which?' }, id: 'call_ask' }))
  await prompt(a.core, s)
  await waiting(stage, a, s)
  const id = await asked(stage, s)
  const before = await stage.types(s)
  await a.kill()
  const b = await stage.start({ config: { tools: builtinTools } })
  await passTime(stage, week)
  expect(await scanned(stage, b)).toMatchObject({ taken: 0, expired: 0, quarantined: 0 })
  expect(await stage.types(s)).toEqual(before)
  expect(await statusIn(stage, b, s)).toBe('WAITING')
  expect(await interaction(stage, id)).toMatchObject({ state: 'OPEN' })
  stage.provider.script(said())
  expect(await answerTo(b.core, id, 'that one')).toMatchObject({ type: 'InteractionPayload' })
  await b.core.coordinator.idle()
  expect(spoken(stage.provider.requests[1]!).at(-1)).toBe('result that one')
  expect(await stage.types(s)).not.toContain('step.recovered')
})

it('ASK-05: a decision works on a node that was not there when it was asked, from the database alone', async () => {
  const { a, s, deploy, id } = await waits()
  await a.kill()
  const b = await another(deploy)
  stage.provider.script(said())
  expect(await approve(b.core, id)).toMatchObject({ type: 'InteractionPayload' })
  await b.core.coordinator.idle()
  stage.provider.expectDone()
  expect(deploy.ran).toEqual([{ to: 'prod' }])
  expect(await call(stage, s, 'call_deploy')).toMatchObject({ status: 'COMPLETED' })
})

describe('a decision that is committed is never lost', () => {
  it.each(['APPROVE', 'DECLINE_AND_CONTINUE'] as const)(
    'ASK-06: %s, and the process dies before the wake',
    async (decision) => {
      const { a, s, deploy, id } = await waits()
      const b = await another(deploy)
      const death = dieAt(a, 'interaction.settled', 'after')
      await expect(decision === 'APPROVE' ? approve(a.core, id) : goOnWithout(a.core, id, 'no')).rejects.toThrow('died')
      await death.died
      expect(await interaction(stage, id)).toMatchObject({ wakePending: true })
      stage.provider.script(said())
      expect(await scanned(stage, b)).toMatchObject({ taken: 0, woken: 1 })
      expect(await scanned(stage, b)).toMatchObject({ woken: 0 })
      stage.provider.expectDone()
      expect(deploy.ran).toHaveLength(decision === 'APPROVE' ? 1 : 0)
      const ends = (await stage.types(s)).filter((type) => type === 'tool.succeeded' || type === 'tool.failed')
      expect(ends).toEqual([decision === 'APPROVE' ? 'tool.succeeded' : 'tool.failed'])
      // Asked again after the death, the same decision has the same answer.
      const repeated = decision === 'APPROVE' ? approve(b.core, id) : goOnWithout(b.core, id, 'no')
      expect(await repeated).toMatchObject({ type: 'InteractionPayload' })
    },
  )

  it('ASK-06: with another question of the step still open the scan finds the decision too', async () => {
    const deploy = guarded('deploy')
    const erase = guarded('erase')
    const options = { tools: [deploy.tool, erase.tool] }
    const a = await stage.start(options)
    const b = await stage.start(options)
    const s = await stage.session()
    stage.provider.script(calling('deploy', 'erase'))
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const death = dieAt(a, 'interaction.settled', 'after')
    await expect(approve(a.core, await asked(stage, s))).rejects.toThrow('died')
    await death.died
    expect(await scanned(stage, b)).toMatchObject({ woken: 1 })
    expect(deploy.ran).toHaveLength(1)
    expect(erase.ran).toEqual([])
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'WAITING' }, { outcome: 'WAITING' }])
  })

  it.each(['APPROVE', 'DECLINE_AND_CONTINUE'] as const)(
    'ASK-20: %s, and the resuming owner dies after its claim: READY, the step stays open, and it happens once',
    async (decision) => {
      const { a, s, deploy, id } = await waits()
      const b = await another(deploy)
      const death = dieAt(a, decision === 'APPROVE' ? 'tool.started' : 'tool.failed', 'before')
      await (decision === 'APPROVE' ? approve(a.core, id) : goOnWithout(a.core, id))
      await death.died
      expect(await stage.claim(s)).toMatchObject({ phase: 'READY' })
      expect(await interaction(stage, id)).toMatchObject({ wakePending: true })
      const before = (await stage.commits(s)).length
      stage.provider.script(said())
      expect(await scanned(stage, b)).toMatchObject({ taken: 1 })
      stage.provider.expectDone()
      expect((await stage.commits(s)).slice(before, before + 4)).toEqual([
        ['step.recovered'],
        ['execution.started'],
        ...(decision === 'APPROVE' ? [['tool.started'], ['tool.succeeded']] : [['tool.failed'], ['step.ended']]),
      ])
      expect(await stage.payloads(s, 'step.recovered')).toMatchObject([{ phase: 'READY' }])
      expect(await stage.types(s)).not.toContain('step.failed')
      expect(deploy.ran).toHaveLength(decision === 'APPROVE' ? 1 : 0)
      expect(await interaction(stage, id)).toMatchObject({ wakePending: false })
      // One message for the step, one for the answer; the continuation is not shown to the model.
      expect(await stage.payloads(s, 'step.started')).toHaveLength(2)
      expect(spoken(stage.provider.requests[1]!).filter((line) => line.startsWith('user: '))).toEqual(['user: hi'])
    },
  )

  it.each([
    ['before its effect', false],
    ['after its effect', true],
  ])(
    'ASK-07: approved, and dead after ToolStarted, %s: its outcome is unknown, and it is not run again',
    async (_when, hasEffect) => {
      const ran: string[] = []
      let die = () => {}
      const tool = {
        tool: {
          ...guarded().tool,
          execute: (_input: unknown, { signal }: ToolContext): Promise<never> => {
            ran.push('ran')
            die()
            if (signal.aborted) return Promise.reject(signal.reason)
            return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
          },
        },
        ran,
      }
      const { a, s, id } = await waits(tool)
      const b = await another(tool)
      let gone: Promise<void>
      if (hasEffect) {
        gone = new Promise<void>((resolve) => {
          die = () => resolve(a.kill())
        })
      } else gone = dieAt(a, 'tool.started', 'after').died
      await approve(a.core, id)
      await gone
      expect(ran).toHaveLength(hasEffect ? 1 : 0)
      expect(await stage.claim(s)).toMatchObject({ phase: 'UNKNOWN' })
      const before = (await stage.commits(s)).length
      stage.provider.script(said())
      expect(await scanned(stage, b)).toMatchObject({ taken: 1 })
      stage.provider.expectDone()
      expect((await stage.commits(s))[before]).toEqual(['tool.failed', 'step.failed', 'step.recovered'])
      expect(await call(stage, s, 'call_deploy')).toMatchObject({ errorCode: 'OUTCOME_UNKNOWN' })
      expect(await stage.payloads(s, 'step.recovered')).toMatchObject([{ phase: 'UNKNOWN' }])
      expect(ran).toHaveLength(hasEffect ? 1 : 0)
      expect(await interaction(stage, id)).toMatchObject({ state: 'APPROVED', wakePending: false })
      expect(spoken(stage.provider.requests[1]!).at(-1)).toBe('user: continue')
    },
  )
})

it('ASK-18: a crash in the middle of a step that asks cancels the question, and its tool ends as never started', async () => {
  const deploy = guarded()
  const look = probe('look')
  const options = { tools: [deploy.tool, look.tool] }
  const a = await stage.start(options)
  const b = await stage.start(options)
  const s = await stage.session()
  stage.provider.script(calling('deploy', 'look'))
  await prompt(a.core, s)
  const { fail } = await look.run()
  const id = await asked(stage, s)
  await stage.logged(s, 'step.streamed')
  const death = a.kill()
  fail(new Error('the process is gone'))
  await death
  const before = (await stage.commits(s)).length
  stage.provider.script(said())
  expect(await scanned(stage, b)).toMatchObject({ taken: 1 })
  stage.provider.expectDone()
  expect((await stage.commits(s))[before]).toEqual([
    'interaction.settled',
    'tool.failed',
    'tool.failed',
    'step.failed',
    'step.recovered',
  ])
  expect(await interaction(stage, id)).toMatchObject({ state: 'CANCELLED', wakePending: false })
  expect(await call(stage, s, 'call_deploy')).toMatchObject({ errorCode: 'NOT_STARTED', startedAt: null })
  expect((await call(stage, s, 'call_deploy')).errorMessage).toContain('never ran')
  expect(await call(stage, s, 'call_look')).toMatchObject({ errorCode: 'OUTCOME_UNKNOWN' })
  expect(deploy.ran).toEqual([])
  expect(await approve(b.core, id)).toMatchObject({ type: 'InteractionSettledError' })
  expect(await statusIn(stage, b, s)).toBe('IDLE')
})
