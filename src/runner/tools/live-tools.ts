// All tools as one map that changes while the process runs: those of Holdfast and the config, and those that MCP servers offer now.

import type { Tool } from '../../config.ts'
import type { Mcp } from './mcp.ts'

const RETIRED_MAX = 1000

/**
 * Listing it gives what can be called now. Asked for by name it also knows tools that an MCP server has taken back: a step that was told of
 * one before gets an ordinary failure of that tool.
 */
export function liveTools(fixed: readonly Tool[], mcp: Pick<Mcp, 'tools'>): ReadonlyMap<string, Tool> {
  const own = new Map(fixed.map((tool) => [tool.name, tool]))
  const retired = new Map<string, Tool>()
  let seen: ReadonlyMap<string, Tool> | undefined
  let all: ReadonlyMap<string, Tool> = own

  function now(): ReadonlyMap<string, Tool> {
    const offered = mcp.tools()
    if (offered === seen) return all
    for (const [name, tool] of seen ?? []) if (!offered.has(name)) retired.set(name, gone(tool))
    for (const name of offered.keys()) retired.delete(name)
    for (const oldest of retired.keys()) {
      if (retired.size <= RETIRED_MAX) break
      retired.delete(oldest)
    }
    seen = offered
    all = new Map([...offered, ...own])
    return all
  }

  return {
    get: (name) => now().get(name) ?? retired.get(name),
    has: (name) => now().has(name) || retired.has(name),
    get size() {
      return now().size
    },
    keys: () => now().keys(),
    values: () => now().values(),
    entries: () => now().entries(),
    [Symbol.iterator]: () => now()[Symbol.iterator](),
    forEach: (each, self) => now().forEach(each, self),
  }
}

const gone = (tool: Tool): Tool => ({
  ...tool,
  execute() {
    throw new Error(`the MCP server "${tool.name.slice(0, tool.name.indexOf('__'))}" does not offer this tool any more`)
  },
})
