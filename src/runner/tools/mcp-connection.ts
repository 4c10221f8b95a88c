// One MCP server: connected in the background, again after a loss, later and later but at least once a minute, and at once when one of
// its tools is called. A call that was sent is not sent again (design section 12, OPS-14).

import { Client, type Tool as Listed } from '@modelcontextprotocol/client'
import type { McpServer, ToolContext } from '../../config.ts'
import { asError } from '../../errors.ts'
import type { JsonValue } from '../../events.ts'
import type { Log } from '../../log.ts'
import type { Clock } from '../clock.ts'
import { mcpFailure } from './mcp-failure.ts'
import { mcpOutput } from './mcp-output.ts'
import { maskFor } from './mcp-secrets.ts'
import { mcpTransport } from './mcp-transport.ts'

export interface McpConnectionState {
  state: 'CONNECTING' | 'CONNECTED' | 'DOWN'
  /** Why it is down, or was when it last was. No secret is in it. */
  error?: string
}

export interface McpConnection {
  state(): McpConnectionState
  /** As last listed, secrets masked; kept while the server is away. */
  listed(): readonly Listed[]
  /** Resolves when the first attempt to connect has ended, either way. */
  firstTried: Promise<void>
  /** Calls a tool. Throws an error that names the server, or the context's signal's reason. */
  call(tool: string, input: Record<string, unknown>, context: ToolContext): Promise<JsonValue>
  close(): Promise<void>
}

/** Starting may mean that a package is downloaded first. */
const CONNECT_MS = 60_000
/** How long one call waits for a connection. */
const CALL_WAITS_MS = 10_000
const CHECK_MS = 5_000
const FIRST_RETRY_MS = 1_000
const LAST_RETRY_MS = 60_000
/** Behind the deadline of a call, at which the runner aborts its signal. */
const BEHIND_DEADLINE_MS = 1_000
const LONGEST_TIMER = 2 ** 31 - 1

interface Live {
  client: Client
  /** Aborted with the reason when the connection is given up. */
  lost: AbortController
}

interface McpConnectionOptions {
  name: string
  server: McpServer
  log: Log
  clock: Clock
  /** The list of tools has changed. */
  changed: () => void
}

export function connectMcp({ name, server, log, clock, changed }: McpConnectionOptions): McpConnection {
  const mask = maskFor(server)
  const closing = new AbortController()
  let status: McpConnectionState = { state: 'CONNECTING' }
  let listed: readonly Listed[] = []
  let live: Live | undefined
  let attempt: Promise<Live> | undefined
  let cancelRetry = () => {}
  let failures = 0

  const failure = (reason: string) => new Error(mask(`MCP server "${name}": ${reason}`))

  function keep(tools: readonly Listed[]) {
    // Not in the names, by which they are called.
    const masked = JSON.parse(mask(JSON.stringify(tools))) as Listed[]
    listed = masked.map((tool, index) => ({ ...tool, name: tools[index]!.name }))
    changed()
  }

  /** One attempt at a time, shared by whoever waits. */
  function connect(): Promise<Live> {
    attempt ??= open().finally(() => {
      attempt = undefined
    })
    return attempt
  }

  async function open(): Promise<Live> {
    cancelRetry()
    status = { ...status, state: 'CONNECTING' }
    const mine: Live = { client: newClient(() => mine), lost: new AbortController() }
    const { client } = mine
    try {
      const limits = { timeout: CONNECT_MS, signal: closing.signal }
      await client.connect(mcpTransport(server, heard), limits)
      const { tools } = await client.listTools(undefined, limits)
      closing.signal.throwIfAborted()
      client.onclose = () => giveUp(mine, 'the connection to it was closed')
      live = mine
      failures = 0
      status = { state: 'CONNECTED' }
      log.info({ server: name, tools: tools.length }, 'MCP server connected')
      keep(tools)
      return mine
    } catch (error) {
      await client.close().catch(() => {})
      const { reason } = mcpFailure(error)
      down(reason)
      throw failure(reason)
    }
  }

  function newClient(self: () => Live): Client {
    const client = new Client(
      { name: 'holdfast', version: '1' },
      {
        versionNegotiation: { mode: 'auto', probe: { timeoutMs: CHECK_MS } },
        listChanged: { tools: { onChanged: (_error, tools) => tools && live === self() && keep(tools) } },
      },
    )
    client.onerror = () => void check(self())
    return client
  }

  function heard(text: string) {
    for (const line of text.split('\n')) if (line.trim() !== '') log.debug({ server: name }, mask(line.slice(0, 500)))
  }

  function down(reason: string) {
    if (closing.signal.aborted) return
    const delay = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** failures++)
    status = { state: 'DOWN', error: mask(reason) }
    log.warn({ server: name, retryMs: delay }, `MCP server is down: ${mask(reason)}`)
    cancelRetry = clock.setTimeout(() => void connect().catch(() => {}), delay)
  }

  function giveUp(which: Live, reason: string) {
    if (live !== which) return
    live = undefined
    which.lost.abort(failure(`${reason}; whether the call had its effect is not known`))
    void which.client.close().catch(() => {})
    down(reason)
  }

  let checking = false
  let notBefore = 0
  /** The client met an error that it does not explain: is the server still there? At most one question in five seconds. */
  async function check(which: Live) {
    if (live !== which || checking || clock.now() < notBefore) return
    checking = true
    try {
      const { tools } = await which.client.listTools(undefined, { timeout: CHECK_MS, signal: closing.signal })
      if (live === which) keep(tools)
    } catch (error) {
      giveUp(which, mcpFailure(error).reason)
    } finally {
      checking = false
      notBefore = clock.now() + CHECK_MS
    }
  }

  /** A connection for a call: waits for the attempt that runs or starts one, within the signal and ten seconds. */
  async function connected(signal: AbortSignal): Promise<Live> {
    signal.throwIfAborted()
    if (closing.signal.aborted) throw failure('this process is stopping')
    if (live !== undefined) return live
    let cancel = () => {}
    let stop = () => {}
    const late = new Promise<never>((_, reject) => {
      stop = () => reject(signal.reason)
      cancel = clock.setTimeout(() => reject(failure('it is not connected yet')), CALL_WAITS_MS)
    })
    signal.addEventListener('abort', stop, { once: true })
    try {
      return await Promise.race([connect(), late])
    } finally {
      cancel()
      signal.removeEventListener('abort', stop)
    }
  }

  async function callOn(which: Live, tool: string, input: Record<string, unknown>, context: ToolContext) {
    const timeout = context.deadline.getTime() - clock.now() + BEHIND_DEADLINE_MS
    return which.client.callTool(
      { name: tool, arguments: input },
      {
        signal: AbortSignal.any([context.signal, which.lost.signal]),
        timeout: Math.min(Math.max(timeout, 1), LONGEST_TIMER),
        onprogress: ({ progress, total, message }) =>
          context.progress({
            progress,
            ...(total !== undefined && { total }),
            ...(message !== undefined && { message }),
          }),
      },
    )
  }

  async function call(tool: string, input: Record<string, unknown>, context: ToolContext): Promise<JsonValue> {
    for (let attempt = 1; ; attempt++) {
      const which = await connected(context.signal)
      let result: Awaited<ReturnType<typeof callOn>>
      try {
        result = await callOn(which, tool, input, context)
      } catch (error) {
        context.signal.throwIfAborted()
        if (which.lost.signal.aborted) throw which.lost.signal.reason
        const { kind, reason } = mcpFailure(error)
        if (kind === 'lost' || kind === 'refused') giveUp(which, reason)
        else if (kind === 'unclear') void check(which)
        // It has forgotten our session, so it has not done anything: the one failure after which the call may be made again.
        if (kind === 'refused' && attempt === 1) continue
        throw failure(reason)
      }
      try {
        return mcpOutput(result)
      } catch (error) {
        throw failure(asError(error).message)
      }
    }
  }

  const firstTried = connect().then(
    () => {},
    () => {},
  )
  return {
    state: () => status,
    listed: () => listed,
    firstTried,
    call,
    async close() {
      closing.abort()
      cancelRetry()
      const which = live
      live = undefined
      which?.lost.abort(failure('this process is stopping'))
      await which?.client.close().catch(() => {})
      await attempt?.catch(() => {})
    },
  }
}
