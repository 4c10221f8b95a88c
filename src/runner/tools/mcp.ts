// The tools of the MCP servers in the config, as tools like any other, whose list changes while the process runs.

import type { Tool as Listed } from '@modelcontextprotocol/client'
import { type McpServer, prepareTool, type Tool, type ToolContext } from '../../config.ts'
import type { Log } from '../../log.ts'
import { type Clock, realClock } from '../clock.ts'
import { connectMcp, type McpConnection, type McpConnectionState } from './mcp-connection.ts'

export interface McpHealth extends McpConnectionState {
  name: string
  /** Tools that it offers and that cannot be used, each with the reason. */
  leftOut: readonly string[]
}

export interface Mcp {
  /** What can be called now, by the name `server__tool`. Another map after each change, so that it can be compared. */
  tools(): ReadonlyMap<string, Tool>
  health(): McpHealth[]
  /** Resolves once every server has been tried, at the latest after `ms`. */
  tried(ms: number): Promise<void>
  close(): Promise<void>
}

export interface McpOptions {
  servers: Readonly<Record<string, McpServer>>
  log: Log
  clock?: Clock
  /** Names of other tools, which win. */
  taken?: Iterable<string>
}

const TOOLS_MAX = 500
const DESCRIPTION_MAX = 10_000
const NAME_MAX = 64

/** Begins to connect and returns at once: a server that is down hinders nothing but its own tools. */
export function createMcp({ servers, log, clock = realClock, taken = [] }: McpOptions): Mcp {
  const others = new Set(taken)
  const leftOut = new Map<string, string[]>()
  const connections = new Map<string, McpConnection>()
  let tools: ReadonlyMap<string, Tool> = new Map()

  function rebuild(changed: string) {
    const next = new Map<string, Tool>()
    for (const [server, connection] of connections) {
      const problems: string[] = []
      const listed = connection.listed()
      if (listed.length > TOOLS_MAX) problems.push(`${listed.length - TOOLS_MAX} tools: a server may have ${TOOLS_MAX}`)
      for (const one of listed.slice(0, TOOLS_MAX)) {
        const made = toolOf(server, one, connection)
        const problem =
          'problem' in made
            ? made.problem
            : others.has(made.tool.name) || next.has(made.tool.name)
              ? 'its name is taken'
              : null
        if (problem !== null) problems.push(`${one.name.slice(0, NAME_MAX)}: ${problem}`)
        else if ('tool' in made) next.set(made.tool.name, made.tool)
      }
      if (server === changed && problems.join() !== leftOut.get(server)?.join())
        for (const problem of problems) log.warn({ server }, `MCP tool left out: ${problem}`)
      leftOut.set(server, problems)
    }
    tools = next
  }

  for (const [name, server] of Object.entries(servers))
    connections.set(name, connectMcp({ name, server, log, clock, changed: () => rebuild(name) }))

  return {
    tools: () => tools,
    health: () =>
      [...connections].map(([name, connection]) => ({ name, ...connection.state(), leftOut: leftOut.get(name) ?? [] })),
    async tried(ms) {
      if (connections.size === 0) return
      let cancel = () => {}
      const late = new Promise<void>((resolve) => {
        cancel = clock.setTimeout(resolve, ms)
      })
      await Promise.race([Promise.all([...connections.values()].map(({ firstTried }) => firstTried)), late])
      cancel()
    },
    async close() {
      await Promise.all([...connections.values()].map((connection) => connection.close()))
    },
  }
}

function toolOf(server: string, listed: Listed, connection: McpConnection): { tool: Tool } | { problem: string } {
  const name = `${server}__${listed.name.replace(/[^a-zA-Z0-9_-]/g, '_')}`
  if (name.length > NAME_MAX) return { problem: `${name} has more than ${NAME_MAX} characters` }
  const made = prepareTool({
    name,
    description: (listed.description || listed.title || listed.name).slice(0, DESCRIPTION_MAX),
    // The protocol lets a server leave "type" out.
    inputSchema: { ...listed.inputSchema, type: 'object' },
    execute: (input: unknown, context: ToolContext) =>
      connection.call(listed.name, input as Record<string, unknown>, context),
  })
  if ('tool' in made) return made
  return { problem: `${made.issues[0]?.path.join('.')} ${made.issues[0]?.message}`.slice(0, 300) }
}
