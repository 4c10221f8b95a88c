// What was seen of each guard when it was last taken out, so that a whole table can be told from runs of parts of it.

import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { root } from './copy.ts'
import { editsOf, type Guard, type Result } from './mutant.ts'

export interface Seen {
  verdict: Result['verdict']
  /** The title of the test that went red first, or what went wrong. */
  told: string
  seconds: number
  /** When, as an ISO time. */
  at: string
  /** The commit of the sources, with a `+` if they were changed since; `none` without git. */
  commit: string
  database: 'external' | 'embedded'
  /** The entry as it was: what was seen of another text counts for nothing. */
  mark: string
}

export type SeenById = Map<string, Seen>

/** The last runs here, whatever they gave; and what is kept with the table, all of it red. */
const local = join(root, 'test-results/guards.json')
const tracked = join(root, 'test/guards/seen.json')

/** Tells an entry from what it was before, those of the guards before it included. */
export function markOf(guard: Guard, all: readonly Guard[]): string {
  const edits = editsOf(guard, all).map(({ file, find, replace }) => [file, find, replace])
  return createHash('sha256')
    .update(JSON.stringify([edits, guard.tests]))
    .digest('hex')
    .slice(0, 12)
}

const readSeen = (file: string): SeenById =>
  new Map(existsSync(file) ? Object.entries(JSON.parse(readFileSync(file, 'utf8')) as Record<string, Seen>) : [])

const writeSeen = (file: string, seen: SeenById) => {
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, `${JSON.stringify(Object.fromEntries(seen), null, 2)}\n`)
}

/** The newest of each guard that was seen as it stands in the table. */
export function seenOf(guards: readonly Guard[]): SeenById {
  const runs = [readSeen(tracked), readSeen(local)]
  return new Map(
    guards.flatMap((guard): [string, Seen][] => {
      const mark = markOf(guard, guards)
      const ofIt = runs.flatMap((run) => run.get(guard.id) ?? []).filter((one) => one.mark === mark)
      const newest = ofIt.toSorted((a, b) => a.at.localeCompare(b.at)).at(-1)
      return newest === undefined ? [] : [[guard.id, newest]]
    }),
  )
}

/** Keeps what was seen here, at once: a run that is ended keeps what it has. */
export function keep(id: string, seen: Seen): void {
  writeSeen(local, readSeen(local).set(id, seen))
}

/** Keeps with the table what is red. */
export function keepWithTable(seen: SeenById): void {
  writeSeen(tracked, new Map([...seen].filter(([, { verdict }]) => verdict === 'red')))
}

/** Of the sources that a run copies. */
export function commitOf(): string {
  const git = (...args: string[]) =>
    execFileSync('git', args, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
  try {
    const isChanged = git('status', '--porcelain', '--', 'src', 'prisma', 'test') !== ''
    return `${git('rev-parse', '--short', 'HEAD')}${isChanged ? '+' : ''}`
  } catch {
    return 'none'
  }
}
