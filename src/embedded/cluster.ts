import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import {
  chownSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { type Binaries, serverEnvironment } from './binaries.ts'
import { codeOf, EmbeddedDatabaseError, textOf } from './error.ts'
import { type Place, writeWhole } from './place.ts'

const run = promisify(execFile)

/** The database role that owns everything; its password is the only way in. */
export const roleName = 'holdfast'

/** True when a complete cluster is there. It appears by one rename, so it is never half there. */
export function hasCluster(place: Place): boolean {
  return existsSync(join(place.cluster, 'PG_VERSION'))
}

/**
 * The password of the cluster, made on the first start: 192 random bits, in a file that only this user reads.
 * @throws EmbeddedDatabaseError when another user made it, or when it is lost while the cluster is there.
 */
export function passwordOf(place: Place): string {
  try {
    const password = readFileSync(place.passwordFile, 'utf8').trim()
    if (password) return password
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') {
      throw new EmbeddedDatabaseError(
        `${place.passwordFile} cannot be read (${codeOf(error)}): the database belongs to another user. ` +
          'Start Holdfast as that user, or set HOLDFAST_DATA_DIR to another directory.',
      )
    }
  }
  if (hasCluster(place)) {
    throw new EmbeddedDatabaseError(
      `${place.passwordFile} is missing while ${place.cluster} holds a database: put the file back, ` +
        'or set HOLDFAST_DATA_DIR to an empty directory to begin anew.',
    )
  }
  const password = randomBytes(24).toString('base64url')
  writeWhole(place.passwordFile, `${password}\n`)
  return password
}

/**
 * Makes the cluster if there is none: initdb in a directory of its own, then one rename. A kill at any instant leaves
 * either nothing or a directory that the next start sweeps away. Call it under the launch lock.
 */
export async function ensureCluster(place: Place, binaries: Binaries, password: string): Promise<void> {
  if (hasCluster(place)) return checkVersion(place, binaries)
  if (existsSync(place.cluster)) {
    throw new EmbeddedDatabaseError(
      `${place.cluster} exists and is not a PostgreSQL data directory: move it away, or set HOLDFAST_DATA_DIR to another directory.`,
    )
  }
  sweep(place)
  const workshop = join(place.home, `initdb-${randomBytes(6).toString('hex')}`)
  const data = join(workshop, 'data')
  const passwordCopy = join(workshop, 'password')
  const { uid, gid } = place.account
  try {
    mkdirSync(workshop, { mode: 0o700 })
    // initdb runs as the server's account and has to read it; that account could change the password anyway.
    writeFileSync(passwordCopy, `${password}\n`, { mode: 0o600 })
    mkdirSync(data, { mode: 0o700 })
    if (uid !== undefined && gid !== undefined)
      for (const path of [passwordCopy, data, workshop]) chownSync(path, uid, gid)
    const locale = ['-E', 'UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8']
    const access = ['-U', roleName, `--pwfile=${passwordCopy}`, '-A', 'scram-sha-256']
    await run(binaries.initdb, ['-D', data, ...locale, ...access], {
      env: serverEnvironment(),
      cwd: '/',
      maxBuffer: 1 << 22,
      ...(uid === undefined ? {} : { uid, gid }),
    })
    renameSync(data, place.cluster)
    syncDirectory(place.home)
  } catch (error) {
    throw new EmbeddedDatabaseError(`The database in ${place.home} could not be made: ${explain(error)}`)
  } finally {
    rmSync(workshop, { recursive: true, force: true, maxRetries: 3 })
  }
}

/** Takes away what killed starts left. An initdb that still runs there loses its files and ends by itself. */
function sweep(place: Place): void {
  for (const name of readdirSync(place.home)) {
    if (!name.startsWith('initdb-')) continue
    try {
      rmSync(join(place.home, name), { recursive: true, force: true, maxRetries: 3, retryDelay: 50 })
    } catch {
      // In nobody's way: the names are unique, and the next first start tries again.
    }
  }
}

function checkVersion(place: Place, binaries: Binaries): void {
  const version = readFileSync(join(place.cluster, 'PG_VERSION'), 'utf8').trim()
  if (version === binaries.major) return
  throw new EmbeddedDatabaseError(
    `The database in ${place.cluster} was made by PostgreSQL ${version}, this Holdfast brings ${binaries.major}. ` +
      'Move its content with pg_dump and psql, or set HOLDFAST_DATA_DIR to another directory.',
  )
}

/** The rename must survive a power cut just as what initdb has synced. */
function syncDirectory(dir: string): void {
  if (process.platform === 'win32') return
  const handle = openSync(dir, 'r')
  try {
    fsyncSync(handle)
  } finally {
    closeSync(handle)
  }
}

function explain(error: unknown): string {
  const text = `${(error as { stderr?: string }).stderr ?? ''}`.trim() || textOf(error)
  if (text.includes('could not look up effective user ID')) {
    return (
      `user id ${process.getuid?.()} has no entry in /etc/passwd, which PostgreSQL needs. ` +
      'Start Holdfast as a user that has one, or set DATABASE_URL to a PostgreSQL of your own.'
    )
  }
  return `${text}. If the disk is full make room on it; if the place forbids it, set HOLDFAST_DATA_DIR to another directory. Nothing half made is left.`
}
