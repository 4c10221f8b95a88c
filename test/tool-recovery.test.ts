// Tools whose process died under them, or whose definition is another one when they are taken up again.
import { expect, it } from 'vitest'
import { decideApproval } from '../src/runner/decide.ts'
import { eventually } from './support/core.ts'
import { finish, finishing, hang, reply, text, toolCalls } from './support/provider.ts'
import { instant, probe, prompt, spoken, tenant, useStage } from './support/stage.ts'

const stage = useStage()
const callRows = (sessionId: string) => stage.db.toolCall.findMany({ where: { sessionId }, orderBy: { index: 'asc' } })

it('TOOL-20, TOOL-18: after a death the started tool ends OUTCOME_UNKNOWN, the other NOT_STARTED without having run, and the model is told both', async () => {
  const a1 = probe('effect')
  const asked = instant('asked')
  const { core: dying, kill } = await stage.start({
    tools: [a1.tool, { ...asked.tool, needsApproval: true }],
  })
  const s = await stage.session()
  const calls = toolCalls({ name: 'effect', args: { n: 1 }, id: 'c1' }, { name: 'asked', args: { n: 2 }, id: 'c2' })
  stage.provider.script(reply(text('I act'), calls, finishing('tool_calls'), hang()))
  await prompt(dying, s, 'go')
  await a1.run()
  await stage.logged(s, 'interaction.requested')
  // The text is still open; what a death keeps of it is what has been written.
  await dying.live.flush()
  const dead = kill()
  // The tool outlives its process here; in this process its step waits for it no longer than the grace.
  await stage.clock.armed(5000)
  await stage.clock.advance(5000)
  await dead
  expect(await callRows(s)).toMatchObject([{ startedAt: expect.any(Date) }, { startedAt: null }])

  // The one that recovers has renamed both tools: it has no need of them.
  const renamed = instant('effect2')
  const survivor = await stage.start({ tools: [renamed.tool], config: { livenessGraceMs: 20 } })
  stage.provider.script(reply(text('I see'), finish()))
  await eventually('the takeover', async () => (await survivor.recovery.scan()).taken > 0)
  await survivor.core.coordinator.idle()
  stage.provider.expectDone()
  const recovery = (await stage.commits(s)).find((types) => types.includes('step.recovered'))
  expect(recovery!.filter((type) => /^(tool|step)/.test(type))).toEqual([
    'tool.failed',
    'tool.failed',
    'step.failed',
    'step.recovered',
  ])
  expect(
    (await callRows(s)).map(({ callId, errorCode, startedAt }) => [callId, errorCode, startedAt !== null]),
  ).toEqual([
    ['c1', 'OUTCOME_UNKNOWN', true],
    ['c2', 'NOT_STARTED', false],
  ])
  expect(a1.runs).toHaveLength(1)
  expect(asked.ran).toEqual([])
  expect(renamed.ran).toEqual([])
  expect(spoken(stage.provider.requests[1]!)).toEqual([
    'user: go',
    'assistant: I act',
    'call effect {"n":1}',
    'call asked {"n":2}',
    expect.stringMatching(/^result OUTCOME_UNKNOWN/),
    expect.stringMatching(/^result NOT_STARTED/),
    'user: continue',
  ])
})

it('TOOL-18: an approved tool that has another name by now fails typed, and nothing else of its step does', async () => {
  const look = instant('look', () => 'seen')
  const send = instant('send')
  const first = await stage.start({ tools: [look.tool, { ...send.tool, needsApproval: true }] })
  const s = await stage.session()
  const calls = toolCalls({ name: 'look', args: { n: 1 }, id: 'c1' }, { name: 'send', args: { n: 2 }, id: 'c2' })
  stage.provider.script(reply(calls, finish('tool_calls')))
  await prompt(first.core, s, 'go')
  await eventually('WAITING', async () => (await stage.payloads(s, 'execution.settled'))[0]?.outcome === 'WAITING')
  await first.stop()

  const renamed = instant('send_mail')
  const second = await stage.start({ tools: [look.tool, { ...renamed.tool, needsApproval: true }] })
  stage.provider.script(reply(text('ok'), finish()))
  const { interactionId } = (await stage.payloads(s, 'interaction.requested'))[0]!
  const answered = await decideApproval(second.core, tenant, { interactionId, decision: 'APPROVE' })
  expect(answered).toMatchObject({ type: 'InteractionPayload' })
  await stage.logged(s, 'step.ended', 2)
  await second.core.coordinator.idle()
  stage.provider.expectDone()
  expect((await callRows(s)).map(({ callId, status, errorCode }) => [callId, status, errorCode])).toEqual([
    ['c1', 'COMPLETED', null],
    ['c2', 'FAILED', 'UNKNOWN_TOOL'],
  ])
  expect(send.ran).toEqual([])
  expect(renamed.ran).toEqual([])
  expect(look.ran).toHaveLength(1)
  expect(await stage.types(s)).not.toContain('step.failed')
  expect(spoken(stage.provider.requests[1]!).slice(-2)).toEqual([
    'result seen',
    expect.stringMatching(/^result UNKNOWN_TOOL/),
  ])
})
