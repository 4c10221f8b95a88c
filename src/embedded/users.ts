import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { unwritable } from './place.ts'
import { birthOf, isAlive } from './process-table.ts'

/**
 * Who uses the server of a place: one file per user, named after process id and birth. Only touched under the
 * launch lock, so "am I the last one?" and "stop it" are one act.
 *
 * Why files and not the server's own list of connections: a process whose pool is idle or reconnecting has none for a
 * moment and would lose its database, and a psql that somebody forgot would keep it running for ever. A user killed with
 * -9 leaves its file; pid and birth together tell that it is gone, also after the pid was given to somebody else.
 */
/** `leave` takes the directory again, which may have been moved. */
export type Membership = { leave(usersDir: string): { last: boolean } }

/** Adds this process to the users of a place. A process may join several times and leaves once for each. */
export function joinUsers(usersDir: string): Membership {
  const name = `${process.pid}_${birthOf(process.pid)}_${randomBytes(4).toString('hex')}`
  try {
    mkdirSync(usersDir, { recursive: true, mode: 0o700 })
    prune(usersDir)
    writeFileSync(join(usersDir, name), '', { mode: 0o600 })
  } catch (error) {
    throw unwritable(usersDir, error)
  }
  return {
    leave(now) {
      rmSync(join(now, name), { force: true })
      return { last: prune(now) === 0 }
    },
  }
}

/** Is anybody counted as a user? */
export const hasUsers = (usersDir: string): boolean => existsSync(usersDir) && prune(usersDir) > 0

/** Removes the files of processes that are gone and returns how many users are left. */
function prune(usersDir: string): number {
  let left = 0
  for (const name of readdirSync(usersDir)) {
    const [pid = '', birth] = name.split('_')
    const here = /^\d+$/.test(pid) && isAlive(Number(pid)) && birthOf(Number(pid)) === birth
    if (here) left++
    else rmSync(join(usersDir, name), { force: true })
  }
  return left
}
