import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { type McpServer, prepareTool, type Tool, type ToolContext } from '../src/config.ts'
import { createLog } from '../src/log.ts'
import { realClock } from '../src/runner/clock.ts'
import { liveTools } from '../src/runner/tools/live-tools.ts'
import { createMcp, type Mcp } from '../src/runner/tools/mcp.ts'
import { runTool } from '../src/runner/tools/run-tool.ts'

const SECRET = 'hunter2-hunter2'
const support = (file: string) => join(import.meta.dirname, 'support', file)
const local = (env: Record<string, string> = {}): McpServer => ({
  command: process.execPath,
  args: [support('mcp-stdio-server.mjs')],
  env: { SECRET, ...env },
})

// Each test starts processes, some of them several times.
vi.setConfig({ testTimeout: 90_000 })

const undo: (() => unknown)[] = []
afterEach(async () => {
  for (const stop of undo.reverse().splice(0)) await stop()
})

let lines: string[] = []
function start(servers: Record<string, McpServer>, taken: string[] = []): Mcp {
  lines = []
  const mcp = createMcp({ servers, taken, log: createLog('debug', { write: (line: string) => void lines.push(line) }) })
  undo.push(() => mcp.close())
  return mcp
}

const until = (look: () => unknown) => vi.waitFor(look, { timeout: 30_000, interval: 20 })
const stateOf = (mcp: Mcp, name: string) => mcp.health().find((one) => one.name === name)!
const connected = (mcp: Mcp, name: string) => until(() => expect(stateOf(mcp, name).state).toBe('CONNECTED'))

function call(mcp: Mcp, name: string, input: unknown = {}, over: Partial<ToolContext> = {}) {
  const tool = mcp.tools().get(name)
  if (tool === undefined) throw new Error(`no tool ${name} among ${[...mcp.tools().keys()]}`)
  const deadline = new Date(Date.now() + 30_000)
  const signal = new AbortController().signal
  const context = { sessionId: 's', messageId: 'm', callId: 'c', signal, deadline, progress: () => {}, ...over }
  return Promise.resolve(tool.execute(input, context))
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  await once(server, 'close')
  return port
}

/** The HTTP server as a process of its own. */
async function serve(mode: string, port: number): Promise<ChildProcess> {
  const env = { ...process.env, MODE: mode, PORT: String(port), SECRET }
  const child = spawn(process.execPath, [support('mcp-http-server.mjs')], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  undo.push(() => kill(child))
  await once(child.stdout!, 'data')
  return child
}

async function kill(child: ChildProcess) {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill('SIGKILL')
  await once(child, 'exit')
}

const remote = (port: number): McpServer => ({
  url: `http://127.0.0.1:${port}/mcp`,
  headers: { Authorization: `Bearer ${SECRET}` },
})

describe.each(['stdio', 'legacy', 'modern'])('a server over %s', (mode) => {
  const reach = async (): Promise<McpServer> => {
    if (mode === 'stdio') return local()
    const port = await freePort()
    await serve(mode, port)
    return remote(port)
  }

  it('offers its tools as server__tool with their schema, and their results are text and media parts', async () => {
    const mcp = start({ far: await reach() })
    await connected(mcp, 'far')
    const tool = mcp.tools().get('far__add')!
    expect(tool.jsonSchema).toMatchObject({
      type: 'object',
      properties: { a: { type: 'number' }, b: { type: 'number' } },
      required: ['a', 'b'],
    })
    expect(tool.validate({ a: 1 })).toMatchObject({ ok: false, field: 'b' })
    expect(tool.definition).toMatch(/^[\w-]{22}$/)
    expect(await call(mcp, 'far__add', { a: 2, b: 3 })).toBe('5')
    expect(await call(mcp, 'far__picture')).toEqual([
      { type: 'text', text: 'here' },
      { type: 'media', data: 'iVBORw0KGgo=', mediaType: 'image/png' },
      { type: 'text', text: 'inside' },
      { type: 'text', text: 'b: file:///b' },
    ])
  })

  it('TOOL-12: a call hands progress on and obeys its signal: the server is told, and the connection stays', async () => {
    const mcp = start({ far: await reach() })
    await connected(mcp, 'far')
    const stop = new AbortController()
    const reports: unknown[] = []
    const progress = (update: unknown) => {
      reports.push(update)
      stop.abort(new Error('stopped by the test'))
    }
    await expect(call(mcp, 'far__hang', {}, { signal: stop.signal, progress })).rejects.toThrow('stopped by the test')
    expect(reports).toEqual([{ progress: 1, total: 2, message: 'half' }])
    if (mode !== 'modern') await until(async () => expect(await call(mcp, 'far__cancellations')).toBe('1'))
    expect(await call(mcp, 'far__add', { a: 1, b: 1 })).toBe('2')
    expect(stateOf(mcp, 'far').state).toBe('CONNECTED')
  })

  it('SEC-13: no secret of its settings is in errors, tools, health or the log', async () => {
    const mcp = start({ far: await reach() })
    await connected(mcp, 'far')
    const told = await call(mcp, 'far__fail').catch((error: Error) => error.message)
    expect(told).toBe('MCP server "far": no luck with [secret]')
    await until(() =>
      expect(mode !== 'stdio' || lines.some((line) => line.includes('started with [secret]'))).toBe(true),
    )
    const seen = JSON.stringify([told, [...mcp.tools().values()], mcp.health(), lines])
    expect(seen).not.toContain('hunter2')
  })
})

it('SEC-13: a server that refuses us and quotes what we sent is told of by its status only', async () => {
  const port = await freePort()
  await serve('legacy', port)
  const url = `http://someone:hunter2pass@127.0.0.1:${port}/mcp?key=hunter2key`
  const mcp = start({ far: { url, headers: {} } })
  await until(() => expect(stateOf(mcp, 'far').state).toBe('DOWN'))
  expect(stateOf(mcp, 'far').error).toBe('it answered HTTP 401')
  expect(JSON.stringify([mcp.health(), lines])).not.toMatch(/hunter2|someone/)
})

it('a program gets its own environment and PATH, HOME and the like, and nothing else of ours', async () => {
  vi.stubEnv('OPENAI_API_KEY', 'sk-ours')
  undo.push(() => vi.unstubAllEnvs())
  const mcp = start({ far: local({ MINE: '1' }) })
  await connected(mcp, 'far')
  const names = String(await call(mcp, 'far__environment')).split(' ')
  expect(names).toEqual(expect.arrayContaining(['MINE', 'PATH', 'SECRET']))
  expect(names).not.toContain('OPENAI_API_KEY')
})

it('OPS-14: a program that dies in a call fails that call by name; other tools work, and it is started again', async () => {
  const mcp = start({ frail: local(), sound: local() })
  await Promise.all([connected(mcp, 'frail'), connected(mcp, 'sound')])
  const pid = Number(await call(mcp, 'frail__pid'))
  const ran = runTool({
    tool: mcp.tools().get('frail__hang')!,
    input: {},
    sessionId: 's',
    messageId: 'm',
    callId: 'c',
    timeoutMs: 60_000,
    signal: new AbortController().signal,
    clock: realClock,
    progress: () => process.kill(pid, 'SIGKILL'),
    unshown: () => {},
    late: () => {},
  })
  const message = 'MCP server "frail": the connection to it was closed; whether the call had its effect is not known'
  expect(await ran).toMatchObject({ kind: 'failed', error: { code: 'TOOL_ERROR', message } })
  expect(await call(mcp, 'sound__add', { a: 1, b: 2 })).toBe('3')
  expect(mcp.tools().has('frail__add'), 'still known while it is away').toBe(true)
  await connected(mcp, 'frail')
  expect(Number(await call(mcp, 'frail__pid'))).not.toBe(pid)
})

it.each(['legacy', 'modern'])(
  'OPS-14: an HTTP server (%s) that dies in a call fails that call by name, and is reached again',
  async (mode) => {
    const port = await freePort()
    const child = await serve(mode, port)
    const mcp = start({ far: remote(port) })
    await connected(mcp, 'far')
    await expect(call(mcp, 'far__hang', {}, { progress: () => void child.kill('SIGKILL') })).rejects.toThrow(
      /^MCP server "far": /,
    )
    await until(() =>
      expect(stateOf(mcp, 'far')).toMatchObject({ state: 'DOWN', error: expect.stringContaining('ECONNREFUSED') }),
    )
    await expect(call(mcp, 'far__add', { a: 1, b: 1 })).rejects.toThrow(
      'MCP server "far": it cannot be reached (ECONNREFUSED)',
    )
    await serve(mode, port)
    expect(await call(mcp, 'far__add', { a: 1, b: 1 }), 'a call does not wait for the next try').toBe('2')
  },
)

it.each(['legacy', 'modern'])(
  'OPS-14: an HTTP server (%s) that was restarted between two calls is used as if nothing had been',
  async (mode) => {
    const port = await freePort()
    const first = await serve(mode, port)
    const mcp = start({ far: remote(port) })
    await connected(mcp, 'far')
    expect(await call(mcp, 'far__pid')).toBe(String(first.pid))
    await kill(first)
    const second = await serve(mode, port)
    expect(await call(mcp, 'far__pid')).toBe(String(second.pid))
  },
)

it('OPS-14: a call that is refused because the server has forgotten our session is made once more, in a new one', async () => {
  const port = await freePort()
  await serve('legacy', port)
  const mcp = start({ far: remote(port) })
  await connected(mcp, 'far')
  const headers = { Authorization: `Bearer ${SECRET}` }
  expect(await (await fetch(`http://127.0.0.1:${port}/forget`, { headers })).text()).toBe('forgotten')
  expect(await call(mcp, 'far__add', { a: 1, b: 1 })).toBe('2')
})

it('OPS-14: servers that are down at start hinder nothing, are shown with the reason, and are connected later', async () => {
  const port = await freePort()
  const began = Date.now()
  const mcp = start({ far: remote(port), none: { command: '/nowhere/at/all', args: [], env: {} }, sound: local() })
  expect(Date.now() - began).toBeLessThan(1000)
  await mcp.tried(30_000)
  expect(stateOf(mcp, 'far')).toMatchObject({ state: 'DOWN', error: 'it cannot be reached (ECONNREFUSED)' })
  expect(stateOf(mcp, 'none')).toMatchObject({ state: 'DOWN', error: 'its command was not found (ENOENT)' })
  expect(await call(mcp, 'sound__add', { a: 1, b: 2 })).toBe('3')
  expect([...mcp.tools().keys()].filter((name) => !name.startsWith('sound__'))).toEqual([])
  await serve('legacy', port)
  await connected(mcp, 'far')
  expect(await call(mcp, 'far__add', { a: 1, b: 2 })).toBe('3')
})

it('tools whose name is taken or too long are left out, and it shows', async () => {
  const long = 'x'.repeat(60)
  const mcp = start({ far: local({ EXTRA_TOOL: long }) }, ['far__add'])
  await connected(mcp, 'far')
  expect(stateOf(mcp, 'far').leftOut).toEqual([
    'add: its name is taken',
    `${long}: far__${long} has more than 64 characters`,
  ])
  expect(mcp.tools().has('far__add')).toBe(false)
  expect(lines.filter((line) => line.includes('MCP tool left out'))).toHaveLength(2)
})

it('a tool that a server adds later is there without a restart', async () => {
  const mcp = start({ far: local() })
  await connected(mcp, 'far')
  expect(mcp.tools().has('far__grown')).toBe(false)
  await call(mcp, 'far__grow')
  await until(() => expect(mcp.tools().has('far__grown')).toBe(true))
  expect(await call(mcp, 'far__grown')).toBe('grown')
})

it('closing ends the programs, fails what still runs, and later calls', async () => {
  const mcp = start({ far: local() })
  await connected(mcp, 'far')
  const pid = Number(await call(mcp, 'far__pid'))
  let began = () => {}
  const running = new Promise<void>((resolve) => {
    began = resolve
  })
  const hanging = call(mcp, 'far__hang', {}, { progress: began })
  const failed = expect(hanging).rejects.toThrow('MCP server "far": this process is stopping')
  await running
  await mcp.close()
  await failed
  await until(() => expect(() => process.kill(pid, 0)).toThrow('ESRCH'))
  await expect(call(mcp, 'far__add', { a: 1, b: 1 })).rejects.toThrow('this process is stopping')
})

describe('all tools as one map', () => {
  const tool = (name: string): Tool => {
    const made = prepareTool({ name, description: 'd', inputSchema: { type: 'object' }, execute: () => name })
    return 'tool' in made ? made.tool : expect.fail('refused')
  }
  const offered = (...names: string[]) => new Map(names.map((name) => [name, tool(name)]))

  it('lists what is there now; one that was taken back is still found, and fails as a tool does', () => {
    let now = offered('far__a', 'far__b')
    const all = liveTools([tool('wait')], { tools: () => now })
    expect([...all.keys()].sort()).toEqual(['far__a', 'far__b', 'wait'])
    now = offered('far__b', 'far__c')
    expect([...all.values()].map(({ name }) => name).sort()).toEqual(['far__b', 'far__c', 'wait'])
    expect(all.size).toBe(3)
    expect(() => all.get('far__a')!.execute({}, {} as ToolContext)).toThrow(
      'the MCP server "far" does not offer this tool any more',
    )
    expect(all.get('never')).toBeUndefined()
    now = offered('far__a')
    expect(all.get('far__a')!.execute({}, {} as ToolContext)).toBe('far__a')
  })
})
