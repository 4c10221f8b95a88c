import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Place } from './place.ts'
import { isAlive, processesIn } from './process-table.ts'

/**
 * What `postmaster.pid` and the process table say about the server of a place:
 * - `absent`: no file, or its process is gone. A new server may be started; PostgreSQL itself clears such a file, after
 *   checking that no backend of the old one is left.
 * - `present`: a process of that id lives. Whether it is our server is known only by connecting, or by `isOurs`.
 */
export type PidFile =
  | { state: 'absent' }
  | { state: 'present'; pid: number; port: number; status: string; text: string }

/** Reads the file as it is now; half-written and empty files count as present with pid 0. */
export function readPidFile(place: Place): PidFile {
  let text: string
  try {
    text = readFileSync(pidPath(place), 'utf8')
  } catch {
    return { state: 'absent' }
  }
  const lines = text.split('\n')
  const pid = Number(lines[0]) || 0
  if (pid !== 0 && !isAlive(pid)) return { state: 'absent' }
  return { state: 'present', pid, port: Number(lines[3]) || 0, status: lines[7]?.trim() ?? '', text }
}

/** True when the pid is a process at work in this cluster; undefined when the system does not tell. */
export function isOurs(place: Place, pid: number): boolean | undefined {
  return processesIn(place.cluster, place.account)?.includes(pid)
}

/**
 * Removes a `postmaster.pid` whose process id now belongs to some other program: PostgreSQL would refuse to start
 * beside it for ever. Only when no process at all works in the cluster, as the file also protects the shared memory
 * of backends that outlive their postmaster. Call it under the launch lock. Returns whether it was removed.
 */
export function removeForeignPidFile(place: Place, seen: string): boolean {
  const holders = processesIn(place.cluster, place.account)
  if (holders === undefined || holders.length > 0) return false
  // A server that began after our reading has put its own file there.
  const now = readPidFile(place)
  if (now.state !== 'present' || now.text !== seen) return false
  rmSync(pidPath(place), { force: true })
  return true
}

function pidPath(place: Place): string {
  return join(place.cluster, 'postmaster.pid')
}
