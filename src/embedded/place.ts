import { createHash, randomBytes } from 'node:crypto'
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { type Account, accountFor, canReach, isRoot } from './account.ts'
import { codeOf, EmbeddedDatabaseError, textOf } from './error.ts'

/**
 * Where one embedded database lives. `home` holds everything; the cluster is a directory in it, and the password, the
 * port, the log and the list of users stand beside the cluster, so that the server's account owns nothing but its own files.
 */
export type Place = {
  home: string
  cluster: string
  passwordFile: string
  portFile: string
  logFile: string
  usersDir: string
  account: Account
}

const closedHomeRoot = '/var/lib/holdfast'
const pointerName = 'postgres-location'

/**
 * Makes the data directory and returns its real path.
 * @throws EmbeddedDatabaseError naming HOLDFAST_DATA_DIR when it cannot be made or written.
 */
export function openDataDir(dataDir: string): string {
  const wanted = resolve(dataDir)
  try {
    const firstCreated = makeDirectories(wanted)
    const real = realpathSync(wanted)
    accessSync(real, constants.R_OK | constants.W_OK | constants.X_OK)
    // What root made for the server it must be able to walk through, whatever the umask says; search only, no listing.
    if (isRoot()) {
      const made = firstCreated ? pathsBetween(realpathSync(firstCreated), real) : isEmpty(real) ? [real] : []
      for (const path of made) chmodSync(path, 0o711)
    }
    return real
  } catch (error) {
    throw new EmbeddedDatabaseError(
      `The data directory ${wanted} cannot be used (${codeOf(error) ?? textOf(error)}). ` +
        'Set HOLDFAST_DATA_DIR to a directory that this user may write, or set DATABASE_URL to a PostgreSQL of your own.',
    )
  }
}

/**
 * Makes the directory and those above it that are missing, one after the other; returns the first that was made. Node's own recursive
 * way never returns where a directory cannot be made although its parent is there, as below /proc.
 */
function makeDirectories(wanted: string): string | undefined {
  const missing: string[] = []
  for (let at = wanted; !existsSync(at); at = dirname(at)) missing.unshift(at)
  for (const path of missing) {
    try {
      mkdirSync(path, { mode: 0o700 })
    } catch (error) {
      // Another process that starts at the same time may have been faster.
      if (codeOf(error) !== 'EEXIST') throw error
    }
  }
  if (!statSync(wanted).isDirectory()) throw Object.assign(new Error('not a directory'), { code: 'ENOTDIR' })
  return missing[0]
}

/**
 * Decides where the cluster of a data directory lives, and under which account. That is the data directory itself,
 * except as root below a closed home, which `nobody` cannot reach: then a directory of its own below /var/lib, named in
 * the log and in the file `postgres-location`, so that later starts find it again. Call it under the launch lock.
 */
export function locate(dataDir: string, log: (line: string) => void): Place {
  const here = layout(dataDir)
  if (existsSync(here.cluster)) {
    if (canReach(here.account, dataDir)) return here
    throw new EmbeddedDatabaseError(
      `The database in ${here.cluster} runs as "${here.account.name}", who cannot reach it any more: a directory above it ` +
        `is closed. Give others search permission (chmod o+x) on the directories above, or set HOLDFAST_DATA_DIR to another place.`,
    )
  }
  const pointer = join(dataDir, pointerName)
  if (existsSync(pointer)) return layout(readFileSync(pointer, 'utf8').trim())
  if (canReach(here.account, dataDir)) return here

  const name = `${createHash('sha256').update(dataDir).digest('hex').slice(0, 12)}-${randomBytes(4).toString('hex')}`
  const elsewhere = join(closedHomeRoot, name)
  try {
    mkdirSync(elsewhere, { recursive: true })
    chmodSync(closedHomeRoot, 0o711)
    chmodSync(elsewhere, 0o711)
  } catch (error) {
    throw new EmbeddedDatabaseError(
      `The data directory ${dataDir} is closed to "${here.account.name}", who has to run PostgreSQL because this process is root, ` +
        `and ${elsewhere} cannot be made (${codeOf(error)}). Set HOLDFAST_DATA_DIR to a directory that others may search, or start as an ordinary user.`,
    )
  }
  log(
    `The data directory ${dataDir} is closed to "${here.account.name}", who runs PostgreSQL because this process is root; ` +
      `the database is kept in ${elsewhere} instead. Set HOLDFAST_DATA_DIR to choose another place.`,
  )
  writeWhole(pointer, `${elsewhere}\n`)
  return layout(elsewhere)
}

/** What stands where in a home. */
export function layout(home: string): Place {
  const cluster = join(home, 'postgres')
  return {
    home,
    cluster,
    passwordFile: join(home, 'postgres.password'),
    portFile: join(home, 'postgres.port'),
    logFile: join(home, 'postgres.log'),
    usersDir: join(home, 'users'),
    account: accountFor(cluster),
  }
}

/**
 * Replaces a small file in one move, so that a reader or a crash never meets half of it.
 * @throws EmbeddedDatabaseError naming the file, when it cannot be written; nothing of it is left then.
 */
export function writeWhole(path: string, text: string): void {
  const temporary = `${path}.${randomBytes(4).toString('hex')}`
  try {
    writeFileSync(temporary, text, { mode: 0o600, flush: true })
    renameSync(temporary, path)
  } catch (error) {
    rmSync(temporary, { force: true })
    throw unwritable(path, error)
  }
}

const full = new Set(['ENOSPC', 'EDQUOT', 'EFBIG'])

/** Why something in a data directory could not be written, with the way out. */
export function unwritable(path: string, error: unknown): EmbeddedDatabaseError {
  if (error instanceof EmbeddedDatabaseError) return error
  const code = codeOf(error) ?? textOf(error)
  return new EmbeddedDatabaseError(
    `${path} cannot be written (${code}). ` +
      (full.has(code) ? `Make room on the disk of ${dirname(path)}` : `Let this user write to ${dirname(path)}`) +
      ', or set HOLDFAST_DATA_DIR to another directory. Nothing half written is left.',
  )
}

function isEmpty(dir: string): boolean {
  return readdirSync(dir).length === 0
}

function pathsBetween(top: string, bottom: string): string[] {
  const paths = [bottom]
  for (let at = bottom; at !== top && at !== dirname(at); ) {
    at = dirname(at)
    paths.push(at)
  }
  return paths
}
