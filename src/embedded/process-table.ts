import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, realpathSync, statSync } from 'node:fs'
import type { Account } from './account.ts'
import { codeOf } from './error.ts'

/** Questions to the system about processes that may not be ours. Every answer can be out of date when it is read. */

/** A process, told from one that gets its number later. */
export interface Process {
  pid: number
  birth: string
}

/** True while the pid names a process that has not ended; one that only waits to be reaped counts as ended. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
  } catch (error) {
    // EPERM: it exists and belongs to someone else.
    if (codeOf(error) !== 'EPERM') return false
  }
  const state = statFields(pid)?.[0]
  return state !== 'Z' && state !== 'X'
}

/**
 * A text that differs between two processes that had the same pid one after the other (start time, and the boot it
 * counts from). Empty where the system does not tell: then the pid alone must do.
 */
export function birthOf(pid: number): string {
  if (process.platform === 'linux') {
    const ticks = statFields(pid)?.[19]
    if (!ticks) return ''
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').slice(0, 8)
    return `${boot}-${ticks}`
  }
  if (process.platform === 'win32') return ''
  const found = spawnSync('ps', ['-o', 'lstart=', '-p', String(pid)], {
    encoding: 'utf8',
    env: { LC_ALL: 'C', TZ: 'UTC' },
  })
  return found.stdout?.trim().replace(/\W+/g, '-') ?? ''
}

/** Fields of /proc/<pid>/stat behind the command name (which may itself hold spaces and brackets): state first. */
function statFields(pid: number): string[] | undefined {
  if (process.platform !== 'linux') return undefined
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return text.slice(text.lastIndexOf(')') + 2).split(' ')
  } catch {
    return undefined
  }
}

/**
 * The processes whose working directory is `dir`: postmaster and backends of a cluster all sit in their data directory.
 * Undefined when the system does not answer completely; the caller must then assume the worst.
 */
export function processesIn(dir: string, account: Account): number[] | undefined {
  if (process.platform === 'win32') return undefined
  if (process.platform !== 'linux') return listWith(dir, 'lsof', ['-w', '-a', '-d', 'cwd', '-Fpn'], {})
  const { dev, ino } = statSync(dir)
  const found: number[] = []
  let hidden = false
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue
    try {
      const cwd = statSync(`/proc/${entry}/cwd`)
      if (cwd.dev === dev && cwd.ino === ino) found.push(Number(entry))
    } catch (error) {
      // Another user's process is none of ours: the server runs as this user. As root it does not, see below.
      if (['EACCES', 'EPERM'].includes(codeOf(error) ?? '')) hidden ||= isRelevant(entry, account)
    }
  }
  if (!hidden) return found
  if (account.uid === undefined) return undefined
  // Root in a container lacks the right to look into other users' processes; the server's own account has it.
  const script = 'cd /proc; for p in [0-9]*; do c=$(readlink $p/cwd 2>/dev/null) && echo p$p && echo "n$c"; done'
  return listWith(dir, '/bin/sh', ['-c', script], { uid: account.uid, gid: account.gid })
}

function isRelevant(entry: string, account: Account): boolean {
  try {
    return statSync(`/proc/${entry}`).uid === (account.uid ?? process.getuid?.())
  } catch {
    return false
  }
}

function listWith(
  dir: string,
  command: string,
  args: string[],
  who: { uid?: number; gid?: number },
): number[] | undefined {
  const result = spawnSync(command, args, { ...who, encoding: 'utf8', cwd: '/', timeout: 10_000, maxBuffer: 1 << 26 })
  if (result.error || !result.stdout) return undefined
  const wanted = realpathSync(dir)
  const found: number[] = []
  let pid = 0
  for (const line of result.stdout.split('\n')) {
    if (line.startsWith('p')) pid = Number(line.slice(1))
    else if (line.startsWith('n') && line.slice(1) === wanted) found.push(pid)
  }
  return found
}
