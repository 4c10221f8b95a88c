import { createHash, randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import type pg from 'pg'

/**
 * Names of the databases that tests make: `holdfast_test_<host>_<pid>_<minute>_<random>`. They tell who made them, so that
 * the databases of a run that was killed can be told from those of a run that goes on beside this one.
 */
const prefix = 'holdfast_test'
const hostMark = createHash('sha256').update(hostname()).digest('hex').slice(0, 6)
const ageHoursMax = 24
const sweepMax = 50

/** A fresh name; safe to put into SQL unquoted. */
export function databaseName(kind: 'template' | 'file'): string {
  const minute = Math.floor(Date.now() / 60_000).toString(36)
  return `${prefix}_${hostMark}_${process.pid}_${minute}_${kind}_${randomBytes(4).toString('hex')}`
}

/** Drops at most fifty databases of runs that are dead: their process on this host is gone, or they are a day old. */
export async function sweepDeadRuns(admin: pg.Client): Promise<void> {
  const { rows } = await admin.query<{ datname: string }>('SELECT datname FROM pg_database WHERE datname LIKE $1', [
    `${prefix.replaceAll('_', '\\_')}\\_%`,
  ])
  const dead = rows.map((row) => row.datname).filter(isOfDeadRun)
  for (const name of dead.slice(0, sweepMax)) await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
}

function isOfDeadRun(name: string): boolean {
  const found = /^holdfast_test_([0-9a-f]{6})_(\d+)_([0-9a-z]+)_(template|file)_[0-9a-f]{8}$/.exec(name)
  if (!found) return false
  const [, host, pid, minute] = found
  const ageHours = (Date.now() / 60_000 - Number.parseInt(minute!, 36)) / 60
  return ageHours > ageHoursMax || (host === hostMark && !isAlive(Number(pid)))
}

/** True while a process of that id exists, whoever owns it. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
