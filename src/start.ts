import type { Config } from './config.ts'
import { startEmbedded } from './embedded/server.ts'
import { serveHttp } from './http/serve.ts'
import { newOwnerId } from './ids.ts'
import type { Log } from './log.ts'
import { migrate } from './migrate.ts'
import { settleFailedDrain } from './recovery/failed-drain.ts'
import { handOver } from './recovery/hand-over.ts'
import { createLiveness } from './recovery/liveness.ts'
import { createRecovery } from './recovery/resolver.ts'
import { type Clock, realClock } from './runner/clock.ts'
import type { Core } from './runner/core.ts'
import { createCore } from './runner/create-core.ts'
import { createModelRegistry, type ModelRegistry } from './runner/models/registry.ts'
import { builtinTools } from './runner/tools/builtin.ts'
import { liveTools } from './runner/tools/live-tools.ts'
import { createMcp } from './runner/tools/mcp.ts'
import { startTraces } from './traces.ts'

export interface StartOptions {
  config: Config
  log: Log
  /** For tests: in place of what the config brings. */
  models?: ModelRegistry
  /** Told once when something is gone that no repeat brings back, in words for the log: `close` is to be called, and says the same to `/readyz`. */
  gone?: (why: string) => void
  clock?: Clock
}

export interface Running {
  /** Where it can be reached, with the real port. */
  url: string
  core: Core
  /** Stops in order (design section 12) and resolves when nothing is left. `why`: what `/readyz` says meanwhile. Calling it again waits for the same end. */
  close(why?: string): Promise<void>
}

/** How long clients get to take the end of their streams and answers. */
const goodbyeMs = 2000
/** How long the spans that are not sent yet may take at the very end; less if the grace is shorter. */
const lastSpansMs = 5000
/** How long recovery lets MCP servers connect first: a call that was approved before a restart needs its tool. */
const mcpFirstMs = 5000
/**
 * Starts a server: database, migrations, runner, HTTP. What was started is stopped again when a later part fails, and the
 * error says why in its message or code (startup-problem.ts makes a line of it).
 */
export async function start({
  config,
  log,
  models,
  clock = realClock,
  gone = () => {},
}: StartOptions): Promise<Running> {
  const undo: (() => unknown)[] = []
  /** Last started, first stopped; one failure does not keep the others running. */
  const undoAll = async () => {
    for (const stop of undo.reverse().splice(0)) {
      try {
        await stop()
      } catch (error) {
        log.warn({ err: error }, 'a part did not stop cleanly')
      }
    }
  }
  try {
    for (const warning of config.warnings) log.warn(warning)
    const owner = newOwnerId()
    // Ends last, when all that makes spans has ended. Loads beside the database's start.
    const tracing = config.traces ? startTraces(log, owner) : null
    if (tracing) undo.push(async () => (await tracing).stop(Math.min(config.shutdownGraceMs, lastSpansMs)))
    const ownTools = [...builtinTools, ...config.tools]
    const taken = ownTools.map(({ name }) => name)
    const mcp = createMcp({ servers: config.mcpServers, log, clock, taken })
    undo.push(() => mcp.close())
    const url = config.databaseUrl ?? (await embedded(config, log, undo, gone))
    await migrate({ url, log: (line) => log.info(line) })
    const stopping = new AbortController()
    const liveness = createLiveness({ url, owner, graceMs: config.livenessGraceMs, log })
    undo.push(() => liveness.close())
    const { core, close } = createCore({
      config,
      log,
      url,
      owner,
      alive: liveness,
      models: models ?? createModelRegistry({ ...config, defaultModel: config.model }, clock),
      tools: liveTools(ownTools, mcp),
      clock,
      settleFailedDrain,
      stopping: stopping.signal,
    })
    undo.push(close)
    // The client loads a part of itself at its first query: now, as its files may be moved away later.
    await core.db.$queryRaw`SELECT 1`
    const recovery = createRecovery(core, liveness)
    await tracing
    const http = await serveHttp(core, config)
    // Requests are answered while what earlier processes left is still being looked at (OPS-03).
    void mcp.tried(mcpFirstMs).then(() => recovery.start())
    let closed: Promise<void> | undefined
    return {
      url: http.url,
      core,
      close(why = 'the server is stopping') {
        closed ??= (async () => {
          stopping.abort(why)
          const rested = core.coordinator.stop(config.shutdownGraceMs)
          await http.close(goodbyeMs)
          await recovery.stop()
          await rested
          // The grace is over: whoever still runs is told to leave, and its claim is given to the others.
          await handOver(core, core.leases.held())
          await undoAll()
        })()
        return closed
      },
    }
  } catch (error) {
    await undoAll()
    throw error
  }
}

async function embedded(
  config: Config,
  log: Log,
  undo: (() => unknown)[],
  gone: (why: string) => void,
): Promise<string> {
  const database = await startEmbedded({ dataDir: config.dataDir, log: (line) => log.info(line), gone })
  undo.push(() => database.stop())
  return database.url
}
