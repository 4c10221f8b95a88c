import { bytesMaxDefault, createByteBudget } from '../../src/byte-budget.ts'
import { type Auth, type Config, type LogLevel, loadConfig } from '../../src/config.ts'
import { turnsOfPool } from '../../src/connection-turns.ts'
import { connect } from '../../src/db.ts'
import { createDoorbell } from '../../src/doorbell.ts'
import { createEventLog } from '../../src/event-log.ts'
import type { NewEvent } from '../../src/events.ts'
import type { Bounds } from '../../src/http/bounds.ts'
import { serveHttp } from '../../src/http/serve.ts'
import { createLiveText } from '../../src/live-text.ts'
import { createLog } from '../../src/log.ts'
import { createMetrics } from '../../src/metrics.ts'
import { createPlaces } from '../../src/places.ts'
import { type Clock, realClock } from '../../src/runner/clock.ts'
import type { Core } from '../../src/runner/core.ts'
import { createModelRegistry } from '../../src/runner/models/registry.ts'
import { createTurns } from '../../src/runner/turns.ts'
import { createTestDatabase } from './database.ts'

/** Answer of a GraphQL call. */
export interface Answer {
  // biome-ignore lint/suspicious/noExplicitAny: tests read whatever they asked for
  data?: any
  errors?: { message: string; path?: (string | number)[]; extensions: { code?: string; requestId?: string } }[]
}

/**
 * The API on a database of its own, over real HTTP, without a runner: sessions are what the test appends to their logs. Statements
 * that reach the database are counted.
 */
export async function serveLog(
  options: {
    pool?: number
    pingMs?: number
    auth?: Auth
    clock?: Clock
    logLevel?: LogLevel
    env?: Record<string, string>
    /** Where the console was built. Else none is served: whether somebody has built one here must not matter. */
    consoleAt?: string
    bounds?: Partial<Bounds>
  } = {},
) {
  const database = await createTestDatabase()
  const { auth } = options
  const fromNothing = await loadConfig({
    env: { DATABASE_URL: database.url, ...options.env },
    cwd: import.meta.dirname,
  })
  const config: Config = { ...fromNothing, ...(auth && { auth }) }
  const lines: string[] = []
  const log = createLog(options.logLevel ?? 'info', { write: (line: string) => void lines.push(line) })
  const pool = options.pool ?? 4
  const turns = createPlaces({ ...turnsOfPool(pool, config.auth === undefined), waitingOfTenant: 20_000 })
  const db = connect(database.url, pool, undefined, undefined, turns)
  const owner = 'own_.test'
  const doorbell = createDoorbell({ db, url: null, origin: owner, pollMs: 1000 })
  const eventLog = createEventLog({ db, doorbell, origin: owner })
  const stopping = new AbortController()
  const core = {
    config,
    log,
    metrics: createMetrics(),
    db,
    doorbell,
    eventLog,
    live: createLiveText({ db, owner }),
    clock: options.clock ?? realClock,
    owner,
    // Nothing is run here, so no lock says that it lives.
    leases: { whenAlive: async () => true },
    turns: createTurns(),
    // Nobody keeps account of appends that the database did not take.
    writes: null,
    models: createModelRegistry({ defaultModel: config.model }),
    // What logs tell of it; nothing here runs.
    tools: new Map([['send', { name: 'send', definition: 'as shown' }]]),
    bytes: createByteBudget(config.bytesMax ?? bytesMaxDefault()),
    stopping: stopping.signal,
  } as unknown as Core
  const server = await serveHttp(core, {
    host: '127.0.0.1',
    port: 0,
    consoleAt: options.consoleAt === undefined ? [] : [options.consoleAt],
    ...(options.pingMs && { pingMs: options.pingMs }),
    ...(options.bounds && { bounds: options.bounds }),
  })
  const endpoint = `${server.url}graphql`

  return {
    core,
    database,
    server,
    endpoint,
    stopping,
    /** Lines of the server's log so far, parsed. */
    logged: () => lines.map((line) => JSON.parse(line) as Record<string, unknown>),
    async append(sessionId: string, ...events: NewEvent[]) {
      const outcome = await eventLog.append({ sessionId, events })
      if (outcome.kind !== 'appended') throw new Error(`append: ${outcome.kind}`)
      return outcome
    },
    async ask(query: string, variables?: Record<string, unknown>, headers?: Record<string, string>): Promise<Answer> {
      const response = await fetch(endpoint, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify({ query, variables }),
      })
      return (await response.json()) as Answer
    },
    async close() {
      stopping.abort()
      await server.close(1000)
      await core.live.close()
      await doorbell.close()
      await db.$disconnect()
      await database.drop()
    },
  }
}

export type Served = Awaited<ReturnType<typeof serveLog>>
