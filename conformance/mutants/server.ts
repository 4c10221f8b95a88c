import { spawn } from 'node:child_process'
import { chmodSync, cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { within } from '../arrivals.ts'
import { applied } from './apply.ts'
import type { Mutant } from './table.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
/** What a server needs of the project, besides its packages. */
const copied = ['src', 'prisma', 'scripts', 'conformance', 'package.json', 'package-lock.json', 'tsconfig.json']
const startMs = 60_000
const stopMs = 20_000

/** A copy of the source in a temporary directory, one for all mutants, with a data directory of its own. */
export function createCopy(): { dir: string; remove(): void } {
  const dir = mkdtempSync(join(tmpdir(), 'holdfast-mutants-'))
  // As root the database runs as somebody else, who has to get through.
  chmodSync(dir, 0o711)
  for (const name of copied) cpSync(join(root, name), join(dir, name), { recursive: true })
  symlinkSync(join(root, 'node_modules'), join(dir, 'node_modules'))
  return { dir, remove: () => rmSync(dir, { recursive: true, force: true, maxRetries: 5 }) }
}

/** Starts the mutant's server in the copy; null: the source as it is. Throws for a stale mutant and one that does not start. */
export async function startMutant(dir: string, mutant: Mutant | null): Promise<{ url: string; stop(): Promise<void> }> {
  const original = (file: string) => readFileSync(join(root, file), 'utf8')
  const changed = mutant === null ? new Map<string, string>() : applied(mutant, original)
  for (const [file, source] of changed) writeFileSync(join(dir, file), source)
  const restore = () => {
    for (const file of changed.keys()) writeFileSync(join(dir, file), original(file))
  }
  rmSync(join(dir, 'dist'), { recursive: true, force: true })

  const { PATH = '', HOME = '', TMPDIR = '', DATABASE_URL = '' } = process.env
  const child = spawn(process.execPath, ['scripts/start.mjs'], {
    cwd: dir,
    env: {
      PATH,
      HOME,
      ...(TMPDIR && { TMPDIR }),
      PORT: '0',
      LOG_LEVEL: 'error',
      HOLDFAST_CONFIG: 'conformance/holdfast.config.mjs',
      ...(DATABASE_URL ? { DATABASE_URL } : { HOLDFAST_DATA_DIR: join(dir, 'data') }),
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const url = new Promise<string>((resolve, reject) => {
    const take = (text: string) => {
      output += text
      const ready = /ready at (\S+)/.exec(output)?.[1]
      if (ready !== undefined) resolve(ready)
    }
    child.stdout.setEncoding('utf8').on('data', take)
    child.stderr.setEncoding('utf8').on('data', take)
    void ended.then(() => reject(new Error(`the server of ${mutant?.name ?? 'the source'} ended:\n${output}`)))
  })
  async function stop(): Promise<void> {
    child.kill('SIGTERM')
    await within('the end of the server', ended, stopMs).catch(() => child.kill('SIGKILL'))
    await ended
    restore()
  }
  try {
    return { url: await within('a server that is ready', url, startMs), stop }
  } catch (error) {
    await stop()
    throw error
  }
}
