// What nobody catches: in a tool, in a model, in a timer that a tool left behind. The process goes on and says whose it was.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { eventually } from './support/core.ts'
import { finish, reply, text, toolCall } from './support/provider.ts'
import { scriptedModel } from './support/scripted-model.ts'
import { ask, endServers, startServer } from './support/server-process.ts'
import { instant, newId, prompt, useStage } from './support/stage.ts'

const stage = useStage()
const dir = mkdtempSync(join(tmpdir(), 'holdfast-upsets-'))
afterAll(async () => {
  await endServers()
  rmSync(dir, { recursive: true, force: true })
})

describe('OPS-08: an error that nobody expects', () => {
  it('in a tool or a provider is logged with session and execution, and the process serves on', async () => {
    const lines: Record<string, unknown>[] = []
    const upset = instant('upset', () => {
      throw new TypeError('upset within')
    })
    const own = scriptedModel(new RangeError('model within'))
    const { core } = await stage.start({
      tools: [upset.tool],
      models: { models: { 'own/x': { model: own.model } } },
      log: (line) => lines.push(line),
    })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('upset', {}, 'call_u'), finish('tool_calls')), reply(text('ok'), finish()))
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    const { executionId } = (await stage.payloads(s, 'execution.started'))[0]!
    expect(lines.filter(({ level }) => level === 'warn')).toMatchObject([
      { sessionId: s, executionId, callId: 'call_u', tool: 'upset', code: 'TOOL_ERROR', err: { type: 'TypeError' } },
    ])

    const other = await stage.session({ model: 'own/x' })
    await prompt(core, other)
    await stage.logged(other, 'step.retry_scheduled')
    const { executionId: second } = (await stage.payloads(other, 'execution.started'))[0]!
    expect(lines.filter(({ sessionId }) => sessionId === other)).toMatchObject([
      { level: 'warn', executionId: second, attempt: 1, err: { code: 'PROVIDER_UNAVAILABLE' } },
    ])
  })

  it('in a timer that a tool leaves behind does not end the process, and is logged with both too', async () => {
    const config = join(dir, 'holdfast.config.mjs')
    writeFileSync(
      config,
      `export default { tools: [{ name: 'stray', description: 'leaves a timer', inputSchema: { type: 'object' },
         execute() { setTimeout(() => { throw new Error('stray within') }, 1); return 'ok' } }] }`,
    )
    const server = startServer({ DATABASE_URL: stage.database.url, HOLDFAST_CONFIG: config })
    const url = await server.ready
    const s = newId('ses_')
    await ask(url, 'mutation ($s: ID!) { createSession(input: { sessionId: $s }) { __typename } }', { s })
    const admit = `mutation ($s: ID!, $m: ID!, $t: String!) { admitPrompt(input: { sessionId: $s, messageId: $m, text: $t }) { __typename } }`
    await ask(url, admit, { s, m: newId('msg_'), t: '/tool stray {}' })
    const line = await eventually('the line', async () => {
      const found = server
        .stderr()
        .split('\n')
        .find((each) => each.includes('stray within'))
      return found && (JSON.parse(found) as Record<string, unknown>)
    })
    const { executionId } = await stage.logged(s, 'execution.started')
    expect(line).toMatchObject({ level: 'error', sessionId: s, executionId, err: { message: 'stray within' } })
    expect((await stage.logged(s, 'execution.settled')).outcome).toBe('SUCCEEDED')
    expect(await ask(url, '{ __typename }', {})).toBeTruthy()
    server.signal('SIGTERM')
    expect(await server.ended).toMatchObject({ code: 0 })
  })
})
