import { readFileSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { EmbeddedDatabaseError } from './error.ts'

/**
 * The system account the database server runs under. `uid` and `gid` are set only when they differ from this
 * process's own, that is when this process is root: PostgreSQL refuses to run as root.
 */
export type Account = { name: string; uid?: number; gid?: number }

type PasswdEntry = { name: string; uid: number; gid: number }

function passwd(): PasswdEntry[] {
  let text: string
  try {
    text = readFileSync('/etc/passwd', 'utf8')
  } catch {
    return []
  }
  return text
    .split('\n')
    .map((line) => line.split(':'))
    .filter((fields) => fields.length >= 4 && fields[0] && !fields[0].startsWith('#'))
    .map((fields) => ({ name: fields[0]!, uid: Number(fields[2]), gid: Number(fields[3]) }))
}

/** True when this process may and must hand the server to another account. */
export function isRoot(): boolean {
  return process.getuid?.() === 0
}

/**
 * Chooses the account for a cluster in `clusterDir` (which may not exist yet): as root the owner of an existing
 * cluster, else `nobody`; as anyone else this very user. PostgreSQL insists that the owner of the files runs it.
 */
export function accountFor(clusterDir: string): Account {
  const owner = ownerOf(clusterDir)
  const self = process.getuid?.()
  if (self === undefined) return { name: 'this user' }
  if (self !== 0) {
    if (owner !== undefined && owner !== self) {
      throw new EmbeddedDatabaseError(
        `The database in ${clusterDir} belongs to user id ${owner}, but this process runs as user id ${self}. ` +
          'Start Holdfast as that user (or as root), or set HOLDFAST_DATA_DIR to another directory.',
      )
    }
    return { name: `user id ${self}` }
  }
  const entries = passwd()
  // A uid without a passwd entry cannot run initdb, so a foreign owner without one falls through to `nobody`.
  const entry = entries.find((e) => owner !== undefined && owner !== 0 && e.uid === owner)
  const chosen = entry ?? entries.find((e) => e.name === 'nobody')
  if (!chosen) {
    throw new EmbeddedDatabaseError(
      'PostgreSQL does not run as root and this system has no account "nobody" to run it under. ' +
        'Start Holdfast as an ordinary user, or set DATABASE_URL to a PostgreSQL of your own.',
    )
  }
  return { name: chosen.name, uid: chosen.uid, gid: chosen.gid }
}

/**
 * True when the account may walk down to `dir`: each directory above it and itself grants search permission. Judged
 * by mode bits; an access list that says otherwise only leads to the other place, not to harm.
 */
export function canReach(account: Account, dir: string): boolean {
  if (account.uid === undefined) return true
  for (let at = dir; ; at = dirname(at)) {
    const info = statSync(at)
    const bit = info.uid === account.uid ? 0o100 : info.gid === account.gid ? 0o010 : 0o001
    if ((info.mode & bit) === 0) return false
    if (dirname(at) === at) return true
  }
}

function ownerOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.uid
}
