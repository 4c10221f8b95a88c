// Server processes that are killed and started again, as a supervisor does it.
import { type ServerProcess, startServer } from '../support/server-process.ts'

export interface Fleet {
  /** Addresses of those that have said that they are ready and have not been killed. */
  urls(): string[]
  /** Kills one at once, and starts another in its place. Says whether it was still starting. */
  kill(n: number): Promise<{ whileStarting: boolean }>
  size: number
  /** Resolves when all are ready. */
  ready(): Promise<void>
  /** Ends all in order; each must leave with 0. */
  stop(): Promise<(number | null)[]>
  /** The last words of each server that ended by itself. */
  deaths(): string[]
}

const command = `exec '${process.execPath}' scripts/start.mjs`

export async function startFleet(size: number, env: Record<string, string>): Promise<Fleet> {
  const urls: (string | null)[] = []
  const servers: ServerProcess[] = []
  const killed = new Set<ServerProcess>()
  const deaths: string[] = []
  const begin = (n: number) => {
    const server = startServer(env, command)
    servers[n] = server
    urls[n] = null
    server.ready.then(
      (url) => {
        if (servers[n] === server && !killed.has(server)) urls[n] = url
      },
      () => {},
    )
    void server.ended.then(({ code, signal }) => {
      if (!killed.has(server)) deaths.push(`code ${code}, signal ${signal}: ${server.stderr().slice(-2000)}`)
    })
    return server.ready
  }
  // One first: it makes the bundle and the database.
  await begin(0)
  await Promise.all(Array.from({ length: size - 1 }, (_, n) => begin(n + 1)))
  return {
    urls: () => urls.filter((url) => url !== null),
    async kill(n) {
      const server = servers[n]!
      const whileStarting = urls[n] === null
      killed.add(server)
      urls[n] = null
      server.signal('SIGKILL')
      const { signal } = await server.ended
      if (signal !== 'SIGKILL') throw new Error(`server ${n} was to be killed and ended with ${signal}`)
      begin(n).catch(() => {})
      return { whileStarting }
    },
    size,
    ready: async () => void (await Promise.all(servers.map(({ ready }) => ready))),
    stop: () =>
      Promise.all(
        servers.map(async (server, n) => {
          killed.add(server)
          urls[n] = null
          server.signal('SIGTERM')
          return (await server.ended).code
        }),
      ),
    deaths: () => deaths,
  }
}
