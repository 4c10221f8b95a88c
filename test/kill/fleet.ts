// Server processes that are killed and started again, as a supervisor does it.
import { setTimeout as sleep } from 'node:timers/promises'
import type { Random } from '../support/random.ts'
import { type ServerProcess, startServer } from '../support/server-process.ts'

export interface Fleet {
  /** Addresses of those that have said that they are ready and have not been killed. */
  urls(): string[]
  /**
   * Kills one at once, one that is ready if there is one and that is asked for, and starts another in its place. Says what it was killed
   * in; `gone`: it had ended by itself.
   */
  kill(which: 'ready' | 'any', chance: Random): Promise<'starting' | 'ready' | 'gone'>
  size: number
  /** Resolves when all are ready. */
  ready(): Promise<void>
  /** Ends all in order; each must leave with 0. */
  stop(): Promise<(number | null)[]>
  /** The last words of each server that was ready and then ended by itself. */
  deaths: readonly string[]
  /** The last words of each that could not start, as when its database was killed just then; it was started again. */
  failedStarts: readonly string[]
}

const readyMsMax = 120_000
/** A server that can never start must not be started for ever. */
const failedStartsMax = 100
const command = `exec '${process.execPath}' scripts/start.mjs`

export async function startFleet(size: number, env: Record<string, string>): Promise<Fleet> {
  const urls: (string | null)[] = []
  const servers: ServerProcess[] = []
  const killed = new Set<ServerProcess>()
  const deaths: string[] = []
  const failedStarts: string[] = []
  const begin = (n: number) => {
    const server = startServer(env, command)
    servers[n] = server
    urls[n] = null
    server.ready.then(
      (url) => {
        if (!killed.has(server)) urls[n] = url
      },
      () => {},
    )
    void server.ended.then(({ code, signal }) => {
      if (killed.has(server)) return
      const words = `code ${code}, signal ${signal}: ${server.stderr().slice(-2000)}`
      urls[n] = null
      if (server.readyMs() !== null) return void deaths.push(words)
      failedStarts.push(words)
      if (failedStarts.length < failedStartsMax) setTimeout(() => begin(n), 200)
    })
  }
  const allReady = async () => {
    for (const deadline = Date.now() + readyMsMax; urls.filter((url) => url !== null).length < servers.length; ) {
      if (Date.now() > deadline || deaths.length > 0)
        throw new Error(`a server is not ready: ${[...deaths, ...failedStarts].join('\n')}`)
      await sleep(20)
    }
  }
  // One first: it makes the bundle and the database.
  begin(0)
  await allReady()
  for (let n = 1; n < size; n++) begin(n)
  await allReady()
  return {
    urls: () => urls.filter((url) => url !== null),
    async kill(which, chance) {
      const all = servers.map((_, n) => n)
      const ready = all.filter((n) => urls[n] !== null)
      const among = which === 'ready' && ready.length > 0 ? ready : all
      const n = among[chance.from(0, among.length - 1)]!
      const server = servers[n]!
      const whileStarting = urls[n] === null
      killed.add(server)
      urls[n] = null
      server.signal('SIGKILL')
      const { signal } = await server.ended
      begin(n)
      // One that could not start may have ended a moment before.
      return signal === 'SIGKILL' ? (whileStarting ? 'starting' : 'ready') : 'gone'
    },
    size,
    ready: allReady,
    stop: () =>
      Promise.all(
        servers.map(async (server, n) => {
          killed.add(server)
          urls[n] = null
          server.signal('SIGTERM')
          return (await server.ended).code
        }),
      ),
    deaths,
    failedStarts,
  }
}
