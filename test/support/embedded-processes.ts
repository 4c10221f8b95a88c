import { type ChildProcess, spawn } from 'node:child_process'
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { isAlive } from '../../src/embedded/process-table.ts'
import { eventually } from './eventually.ts'

/** Real processes on real data directories, and the sweeping up behind them. */
const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href
const childFile = fileURLToPath(new URL('./embedded-child.ts', import.meta.url))
const children = new Set<ChildProcess>()
const directories = new Set<string>()

export type Holder = {
  pid: number
  lines: string[]
  /** Resolves with the rest of the first line that begins with the word; rejects when the process ends before. */
  said(word: string): Promise<string>
  ready(): Promise<{ url: string; joined: boolean; ms: number }>
  stop(): Promise<void>
  kill(): Promise<void>
  ended: Promise<number | null>
}

export type Who = { uid?: number; gid?: number; launcher?: string; env?: NodeJS.ProcessEnv }

/** Starts a process that opens the embedded database in `dataDir`. */
export function startHolder(dataDir: string, mode: 'hold' | 'exit' | 'write' = 'hold', who: Who = {}): Holder {
  const { uid, gid, launcher, env } = who
  const child = spawn(process.execPath, ['--import', tsx, childFile, dataDir, mode, ...(launcher ? [launcher] : [])], {
    ...(uid === undefined ? {} : { uid, gid }),
    cwd: '/',
    env: { ...process.env, ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  children.add(child)
  const lines: string[] = []
  const errors: string[] = []
  child.stderr.on('data', (data) => errors.push(String(data)))
  child.stdin.on('error', () => {})
  createInterface({ input: child.stdout }).on('line', (line) => lines.push(line))
  const ended = new Promise<number | null>((resolve) => child.once('close', (code) => resolve(code)))
  let over = false
  ended.then(() => {
    over = true
    children.delete(child)
  })
  const find = (word: string) => lines.find((line) => line.startsWith(`${word} `) || line === word)
  const said = async (word: string) => {
    await until(() => find(word) !== undefined || over, `a process to say "${word}"`)
    const line = find(word)
    if (line === undefined) throw new Error(`ended without "${word}": ${[...lines, ...errors].join(' | ')}`)
    return line.slice(word.length + 1)
  }
  return {
    pid: child.pid!,
    lines,
    said,
    ready: async () => JSON.parse(await said('ready')),
    async stop() {
      child.stdin.write('stop\n')
      await said('stopped')
      await ended
    },
    async kill() {
      child.kill('SIGKILL')
      await ended
    },
    ended,
  }
}

/** A temporary directory that every account can walk through; gone after `sweep`. */
export function openDirectory(): string {
  const dir = mkdtempSync(join(tmpdir(), 'holdfast-embedded-'))
  chmodSync(dir, 0o755)
  directories.add(dir)
  return dir
}

/** Waits for a condition, a minute at most. */
export const until = (holds: () => boolean, what: string) => eventually(what, holds, { ms: 60_000, every: 5 })

/** The postmaster that a home's cluster names, if it lives. */
export function serverPid(home: string): number | undefined {
  const file = join(home, 'postgres/postmaster.pid')
  if (!existsSync(file)) return undefined
  const pid = Number(readFileSync(file, 'utf8').split('\n')[0])
  return pid > 0 && isAlive(pid) ? pid : undefined
}

/** Ends what a test left: its processes by id, the servers of the given homes, its directories. */
export async function sweep(homes: string[]): Promise<void> {
  for (const child of children) child.kill('SIGKILL')
  await until(() => children.size === 0, 'the processes to end')
  for (const home of homes) {
    const pid = serverPid(home)
    if (pid === undefined) continue
    process.kill(pid, 'SIGQUIT')
    await until(() => !isAlive(pid), 'a database server to end')
  }
  for (const dir of directories) rmSync(dir, { recursive: true, force: true, maxRetries: 5 })
  directories.clear()
}
