import { hasCluster } from './cluster.ts'
import { textOf } from './error.ts'
import { launch } from './launch.ts'
import { withLaunchLock } from './lock.ts'
import type { Place } from './place.ts'
import { readPidFile } from './postmaster.ts'

const checkMs = 1_000

/**
 * Looks once a second whether the server of a place still has a process, and starts it again if not: a server that the
 * system's memory killer took must not leave every session stuck until somebody restarts Holdfast. Does not keep this
 * process alive. `end` returns when no launch is under way any more.
 */
export function keepRunning(dataDir: string, place: Place, log: (line: string) => void): { end(): Promise<void> } {
  let busy: Promise<void> | undefined
  const timer = setInterval(() => {
    if (busy || readPidFile(place).state === 'present') return
    // A directory that was deleted under us is not to be made again.
    if (!hasCluster(place)) return clearInterval(timer)
    busy = restart().finally(() => {
      busy = undefined
    })
  }, checkMs)
  timer.unref()

  async function restart(): Promise<void> {
    try {
      log(`The database server of ${place.cluster} is gone: starting it again`)
      await withLaunchLock(dataDir, log, () => launch(place, log))
    } catch (error) {
      log(`The database server could not be started again, trying again: ${textOf(error)}`)
    }
  }

  return {
    async end() {
      clearInterval(timer)
      await busy
    },
  }
}
