import { join } from 'node:path'
import { expect, it, vi } from 'vitest'
import { loadConfig } from '../src/config.ts'
import { createLog } from '../src/log.ts'
import { start } from '../src/start.ts'
import { finish, reply, text, toolCall } from './support/provider.ts'
import { prompt, spoken, useStage } from './support/stage.ts'

vi.setConfig({ testTimeout: 60_000 })
const stage = useStage()
const server = {
  command: process.execPath,
  args: [join(import.meta.dirname, 'support/mcp-stdio-server.mjs')],
  env: { SECRET: 'hunter2-hunter2' },
}
// Nobody listens there.
const down = { url: 'http://127.0.0.1:45671/mcp', headers: { Authorization: 'Bearer hunter2-hunter2' } }
const ok = () => reply(text('ok'), finish())

it('OPS-14: a session whose MCP server dies in a call gets a tool failure and goes on; the next call works again', async () => {
  const { core } = await stage.start({ config: { mcpServers: { far: server, down } } as never })
  const s = await stage.session()
  const run = async (name: string, input: object, id: string) => {
    const asked = stage.provider.requests.length
    stage.provider.script(reply(toolCall(name, input, id), finish('tool_calls')), ok())
    await prompt(core, s, `use ${name}`)
    await core.coordinator.idle()
    return spoken(stage.provider.requests[asked + 1]!).at(-1)
  }
  const said = await run('far__pid', {}, 'call_a')
  const pid = Number(said?.replace('result ', ''))
  expect(pid).toBeGreaterThan(0)

  stage.provider.script(reply(toolCall('far__hang', {}, 'call_b'), finish('tool_calls')), ok())
  await prompt(core, s, 'hang')
  await vi.waitFor(async () => expect(await stage.payloads(s, 'tool.started')).toHaveLength(2), { timeout: 20_000 })
  process.kill(pid, 'SIGKILL')
  await core.coordinator.idle()
  expect(await stage.payloads(s, 'tool.failed')).toMatchObject([
    { callId: 'call_b', error: { code: 'TOOL_ERROR', message: expect.stringContaining('MCP server "far": ') } },
  ])
  expect((await stage.payloads(s, 'step.ended')).map(({ continues }) => continues)).toEqual([true, false, true, false])

  expect(await run('far__add', { a: 2, b: 3 }, 'call_c')).toBe('result 5')
  stage.provider.expectDone()
  expect(JSON.stringify(await stage.events(s))).not.toContain('hunter2')
})

it('OPS-14, SEC-13: a server starts and is ready beside MCP servers that are down, and `tools` shows the others without secrets', async () => {
  const config = await loadConfig({ env: { DATABASE_URL: stage.database.url, PORT: '0' }, cwd: import.meta.dirname })
  const lines: string[] = []
  const log = createLog('debug', { write: (line: string) => void lines.push(line) })
  const running = await start({ config: { ...config, mcpServers: { far: server, down } }, log })
  try {
    expect((await fetch(`${running.url}readyz`)).status).toBe(200)
    const body = JSON.stringify({ query: '{ tools { name description inputSchema needsApproval } }' })
    const ask = async () => {
      const response = await fetch(`${running.url}graphql`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      })
      return ((await response.json()) as { data: { tools: { name: string }[] } }).data.tools
    }
    const tools = await vi.waitFor(
      async () => {
        const listed = await ask()
        expect(listed.map(({ name }) => name)).toContain('far__add')
        return listed
      },
      { timeout: 20_000 },
    )
    expect(tools.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['current_time', 'wait', 'ask_user', 'far__fail']),
    )
    expect(tools.find(({ name }) => name === 'far__add')).toMatchObject({
      description: 'adds [secret]',
      inputSchema: { type: 'object', required: ['a', 'b'] },
      needsApproval: false,
    })
    await vi.waitFor(() => expect(lines.join()).toContain('MCP server is down: it cannot be reached'), {
      timeout: 20_000,
    })
    expect(JSON.stringify([tools, lines])).not.toContain('hunter2')
  } finally {
    await running.close()
  }
})
