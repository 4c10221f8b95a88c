import { type Config, loadConfig, prepareTool, type Tool, type ToolDefinition } from '../../src/config.ts'
import { newOwnerId } from '../../src/ids.ts'
import { createLog } from '../../src/log.ts'
import { settleFailedDrain } from '../../src/recovery/failed-drain.ts'
import { createLiveness, type Liveness } from '../../src/recovery/liveness.ts'
import { createRecovery, type Recovery } from '../../src/recovery/resolver.ts'
import { type Clock, realClock } from '../../src/runner/clock.ts'
import type { Core } from '../../src/runner/core.ts'
import { createCore } from '../../src/runner/create-core.ts'
import { createModelRegistry, type ModelSettings } from '../../src/runner/models/registry.ts'
import { liveTools } from '../../src/runner/tools/live-tools.ts'
import { createMcp } from '../../src/runner/tools/mcp.ts'
import { type Link, openLink } from './link.ts'

export interface CoreOptions {
  /** Of the database; the core reaches it over a wire of its own that `kill` cuts. */
  url: string
  /** `compatible: { baseUrl: provider.baseUrl }` brings a scripted provider as compatible/… */
  models?: Partial<ModelSettings>
  tools?: ToolDefinition[]
  /** Over what an empty environment gives. Times are in ms. */
  config?: Partial<Config>
  clock?: Clock
  /** By which other processes' locks count as free for so long, in monotonic ms; that of the process if it is not given. */
  livenessNow?: () => number
  /** How long others may take to come back after the database was away; the liveness grace if it is not given. */
  returnsWithinMs?: number
  /** Scans run from the start on, as in a server; else only when the test asks for one. */
  recovers?: boolean
  /** Lines of the log, parsed; else it is silent. */
  log?: (line: Record<string, unknown>) => void
}

export interface TestCore {
  core: Core
  liveness: Liveness
  recovery: Recovery
  /** The wire to the database: cut it to take the network away. */
  link: Link
  /** Orderly: drains end, holds are dropped, everything closes. Claims that are still held stay as they are. */
  stop(): Promise<void>
  /**
   * As a death of the process: the database is out of reach from this moment on, requests to providers break off, no timer and no
   * LISTEN is left. What the database had been told before it still does. Resolves when all of it has come to rest.
   */
  kill(): Promise<void>
}

const prepared = (definition: ToolDefinition): Tool => {
  const checked = prepareTool(definition)
  if ('tool' in checked) return checked.tool
  throw new Error(checked.issues.map(({ message }) => message).join('; '))
}

/** A whole core as the server assembles it, without HTTP. */
export async function startCore({
  url,
  models,
  tools = [],
  config: over,
  clock,
  livenessNow,
  returnsWithinMs,
  recovers,
  log: said,
}: CoreOptions): Promise<TestCore> {
  const link = await openLink(url)
  const fromNothing = await loadConfig({ env: { DATABASE_URL: link.url }, cwd: import.meta.dirname })
  const config: Config = { ...fromNothing, dbPool: 4, ...over }
  const log = said
    ? createLog('debug', { write: (line: string) => said(JSON.parse(line) as Record<string, unknown>) })
    : createLog('silent')
  const owner = newOwnerId()
  const ownTools = [...config.tools, ...tools.map(prepared)]
  const mcp = createMcp({ servers: config.mcpServers, log, taken: ownTools.map(({ name }) => name) })
  const stopping = new AbortController()
  const liveness = createLiveness({
    url: link.url,
    owner,
    graceMs: config.livenessGraceMs,
    returnsWithinMs: returnsWithinMs ?? config.livenessGraceMs,
    log,
    ...(livenessNow && { now: livenessNow }),
  })
  const { core, close: closeCore } = createCore({
    config,
    log,
    url: link.url,
    owner,
    alive: liveness,
    models: createModelRegistry({ defaultModel: config.model, ...models }, clock),
    tools: liveTools(ownTools, mcp),
    clock: clock ?? realClock,
    settleFailedDrain,
    stopping: stopping.signal,
  })
  const recovery = createRecovery(core, liveness)
  await liveness.whenHeld()
  await mcp.tried(30_000)
  if (recovers) await recovery.start()

  let closing: Promise<void> | null = null
  async function close(graceMs: number) {
    stopping.abort()
    await core.coordinator.stop(graceMs)
    await recovery.stop()
    await liveness.close()
    await mcp.close()
    await closeCore().catch(() => {})
    await link.close()
  }
  return {
    core,
    liveness,
    recovery,
    link,
    stop: () => (closing ??= close(30_000)),
    kill: () => {
      if (closing === null) {
        link.cut()
        core.leases.close()
        for (const hold of core.leases.held()) hold.end('lost')
        closing = close(30_000)
      }
      return closing
    },
  }
}

export { eventually } from './eventually.ts'
