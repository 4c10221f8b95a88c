import { hasCluster } from './cluster.ts'
import { textOf } from './error.ts'
import type { Followed } from './followed.ts'
import { launch } from './launch.ts'
import { withLaunchLock } from './lock.ts'
import type { Place } from './place.ts'
import { readPidFile } from './postmaster.ts'
import { birthOf, type Process } from './process-table.ts'

const checkMs = 1_000
/** So often in a row the directory is missed before it counts as gone: somebody may put it back. */
const missedMax = 3

export interface Keeper {
  /** The server as last seen. */
  server(): Process | undefined
  /** Returns when no launch is under way any more. */
  end(): Promise<void>
}

/**
 * Looks once a second whether the server of a place still has a process, and starts it again if not: a server that the
 * system's memory killer took must not leave every session stuck until somebody restarts Holdfast. Does not keep this
 * process alive. `gone` is told once when the directory is not there any more: then it keeps nothing running, as what it would start in its
 * place had other data.
 */
export function keepRunning(
  dataDir: string,
  place: Place,
  followed: Followed,
  log: (line: string) => void,
  gone: (why: string) => void,
): Keeper {
  let busy: Promise<void> | undefined
  let missed = 0
  let seen: Process | undefined
  const timer = setInterval(() => {
    if (busy) return
    if (!followed.isHere() || !hasCluster(place)) {
      if (++missed < missedMax) return
      clearInterval(timer)
      return gone(whyGone(dataDir, followed))
    }
    missed = 0
    if (look()) return
    busy = restart().finally(() => {
      busy = undefined
    })
  }, checkMs)
  timer.unref()

  /** Is a server there? */
  function look(): boolean {
    const file = readPidFile(place)
    if (file.state === 'present' && file.pid !== 0 && file.pid !== seen?.pid)
      seen = { pid: file.pid, birth: birthOf(file.pid) }
    return file.state === 'present'
  }
  look()

  async function restart(): Promise<void> {
    try {
      log(`The database server of ${place.cluster} is gone: starting it again`)
      await withLaunchLock(dataDir, log, () => launch(place, log))
    } catch (error) {
      log(`The database server could not be started again, trying again: ${textOf(error)}`)
    }
  }

  return {
    server: () => seen,
    async end() {
      clearInterval(timer)
      await busy
    },
  }
}

function whyGone(dataDir: string, followed: Followed): string {
  const now = followed.where()
  if (now === dataDir) return `The database in ${dataDir} was removed while it was in use; what it held is lost.`
  if (now !== undefined)
    return `The data directory ${dataDir} was moved to ${now} while it was in use. All that was acknowledged is there: start Holdfast in the new place.`
  return `The data directory ${dataDir} was moved or removed while it was in use. If it was moved, all that was acknowledged is in its new place: start Holdfast there.`
}
