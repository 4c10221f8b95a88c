// What the provider was paid for counts once, however the step ends (STEP-11). Its stream says the usage before the step has its end: what
// comes in between, by whoever settles it, must carry it on.
import { afterEach, describe, expect, it } from 'vitest'
import { resolveQuarantine } from '../src/recovery/quarantine.ts'
import { approve, asked, declineAndStop, passTime, resetTime, scanned, waiting } from './support/asking.ts'
import { eventually } from './support/core.ts'
import { finish, reply, text, toolCall } from './support/provider.ts'
import { interrupt, probe, prompt, tenant, useStage } from './support/stage.ts'

const stage = useStage()
afterEach(() => resetTime(stage))

const usage = { inputTokens: 100, outputTokens: 20, reasoningTokens: 7, cachedInputTokens: 40 }
const spent = { input: 100, output: 20, reasoning: 7, cached: 40 }

/** A session that waits for an approval; its stream has ended and told of its usage. */
async function waitingForApproval() {
  const deploy = probe('deploy', { needsApproval: true })
  const a = await stage.start({ tools: [deploy.tool] })
  const s = await stage.session()
  stage.provider.script(reply(toolCall('deploy', {}, 'call_deploy'), finish('tool_calls', spent)))
  await prompt(a.core, s)
  await waiting(stage, a, s)
  return { a, s, deploy, id: await asked(stage, s) }
}

/** The same, approved: the tool runs under the claim of a new execution. */
async function runningApproved() {
  const { a, s, deploy, id } = await waitingForApproval()
  await approve(a.core, id)
  await untilRunning(deploy)
  return { a, s, deploy }
}

/** Runs, and ends when it is told to stop. */
async function untilRunning(tool: ReturnType<typeof probe>) {
  const { context, fail } = await tool.run()
  context.signal.addEventListener('abort', () => fail(new Error('stopped')))
}

/** And its process is gone. `phase`: what its claim said at the end. */
async function leftRunning(phase?: string) {
  const { a, s, deploy } = await runningApproved()
  await a.kill()
  if (phase !== undefined) await stage.db.claim.update({ where: { sessionId: s }, data: { phase } })
  return { s, b: await stage.start({ tools: [deploy.tool] }) }
}

async function expectCounted(s: string, type: 'step.interrupted' | 'step.failed') {
  expect(await stage.payloads(s, type)).toMatchObject([{ usage }])
  const { messageId } = (await stage.payloads(s, type))[0]!
  const counts = (row: { [K in keyof typeof usage]: bigint | null }) =>
    Object.fromEntries(Object.keys(usage).map((key) => [key, Number(row[key as keyof typeof usage])]))
  expect(counts(await stage.db.message.findUniqueOrThrow({ where: { id: messageId } }))).toEqual(usage)
  expect(counts(await stage.db.session.findUniqueOrThrow({ where: { id: s } }))).toEqual(usage)
}

describe('STEP-11: the usage of a stream that has ended counts once', () => {
  it('when a decline stops the step that waited', async () => {
    const { a, s, id } = await waitingForApproval()
    await declineAndStop(a.core, id)
    await expectCounted(s, 'step.interrupted')
  })

  it('when an interrupt stops the step that waited', async () => {
    const { a, s } = await waitingForApproval()
    expect(await interrupt(a.core, s)).toMatchObject({ interrupted: true })
    await expectCounted(s, 'step.interrupted')
  })

  it('when an interrupt stops the approved tool', async () => {
    const { a, s } = await runningApproved()
    expect(await interrupt(a.core, s)).toMatchObject({ interrupted: true })
    await expectCounted(s, 'step.interrupted')
  })

  it('when an interrupt stops a step whose tool outlasts its stream', async () => {
    const look = probe('look')
    const a = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('look', {}), finish('tool_calls', spent)))
    await prompt(a.core, s)
    await untilRunning(look)
    await stage.logged(s, 'step.streamed')
    await interrupt(a.core, s)
    await expectCounted(s, 'step.interrupted')
  })

  it('when the process dies with the approved tool and another one recovers', async () => {
    const { s, b } = await leftRunning()
    stage.provider.script(reply(text('on'), finish('stop', { input: 0, output: 0 })))
    await scanned(stage, b)
    await stage.logged(s, 'step.recovered')
    await expectCounted(s, 'step.failed')
  })

  it('when the process dies with the approved tool and an interrupt settles for it', async () => {
    const { s, b } = await leftRunning()
    await passTime(stage)
    expect(await interrupt(b.core, s)).toMatchObject({ interrupted: true })
    await expectCounted(s, 'step.interrupted')
  })

  it.each([
    ['discarded', 'DISCARD', 'step.failed'],
    ['brought to its end', 'RETRY', 'step.interrupted'],
  ] as const)('when its interrupt was set aside and is %s', async (_what, action, type) => {
    const { s, b } = await leftRunning('CANCELLING')
    await scanned(stage, b)
    const entry = await eventually('the entry', () => stage.db.quarantine.findFirst({ where: { sessionId: s } }))
    expect(await resolveQuarantine(b.core, tenant, { id: entry.id, action })).toMatchObject({ sessionId: s })
    await expectCounted(s, type)
  })
})
