import { type ChildProcess, spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import { fileURLToPath, pathToFileURL } from 'node:url'

/** Real servers as processes of their own, started as `npm start` does. */
const root = fileURLToPath(new URL('../..', import.meta.url))
const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href
const readyMsMax = 60_000
const running = new Set<ServerProcess>()

export interface ServerProcess {
  pid: number
  /** Its address, once it says that it is ready. Rejects when it ends before, with all it wrote. */
  ready: Promise<string>
  /** From the spawn to the line that says ready, in ms; null until then. */
  readyMs(): number | null
  /** Exit code (null if a signal ended it) and signal, once it and its output have ended. */
  ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>
  stdout(): string
  stderr(): string
  /** Closes this end of its outputs: who read them has gone. */
  stopReading(): void
  signal(signal: NodeJS.Signals): void
}

/**
 * Starts a server with these variables over a bare environment; PORT is 0 unless given. `command`: a shell command in the project's
 * directory in place of the plain process, with a process group of its own that `signal` reaches.
 */
export function startServer(env: Record<string, string>, command?: string): ServerProcess {
  const { PATH = '', HOME = '', TMPDIR = '' } = process.env
  const options = {
    cwd: root,
    env: { PATH, HOME, ...(TMPDIR && { TMPDIR }), PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'pipe'] as ['ignore', 'pipe', 'pipe'],
    detached: command !== undefined,
  }
  const begun = performance.now()
  const child: ChildProcess =
    command === undefined
      ? spawn(process.execPath, ['--import', tsx, 'src/server.ts'], options)
      : spawn('sh', ['-c', command], options)
  let stdout = ''
  let stderr = ''
  let readyMs: number | null = null
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) =>
    child.once('close', (code, signal) => resolve({ code, signal })),
  )
  const ready = new Promise<string>((resolve, reject) => {
    const fail = (why: string) => reject(new Error(`${why}\n${stdout}\n${stderr}`))
    const timer = setTimeout(() => fail(`not ready within ${readyMsMax} ms`), readyMsMax)
    timer.unref()
    child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      stdout += text
      const url = /ready at (\S+)/.exec(stdout)?.[1]
      if (url === undefined) return
      readyMs ??= Math.round(performance.now() - begun)
      clearTimeout(timer)
      resolve(url)
    })
    child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      stderr += text
    })
    ended.then(() => fail('ended before it was ready'))
  })
  // A test that kills it early, or expects it to fail, need not look at this.
  ready.catch(() => {})
  const server: ServerProcess = {
    pid: child.pid!,
    ready,
    readyMs: () => readyMs,
    ended,
    stdout: () => stdout,
    stderr: () => stderr,
    stopReading() {
      child.stdout!.destroy()
      child.stderr!.destroy()
    },
    signal(signal) {
      try {
        process.kill(command === undefined ? child.pid! : -child.pid!, signal)
      } catch {
        // It has ended already.
      }
    },
  }
  running.add(server)
  ended.then(() => running.delete(server))
  return server
}

/** Ends what a test left running. */
export async function endServers(): Promise<void> {
  await Promise.all(
    [...running].map(async (server) => {
      server.signal('SIGKILL')
      await server.ended
    }),
  )
}

/** One GraphQL call; throws on anything but an answer without errors. */
// biome-ignore lint/suspicious/noExplicitAny: tests read whatever they asked for
export async function ask(url: string, query: string, variables?: Record<string, unknown>): Promise<any> {
  const response = await fetch(new URL('graphql', url), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query, variables }),
    signal: AbortSignal.timeout(30_000),
  })
  const answer = (await response.json()) as { data: unknown; errors?: unknown[] }
  if (answer.errors) throw new Error(JSON.stringify(answer.errors))
  return answer.data
}
