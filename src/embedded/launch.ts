import { setTimeout as sleep } from 'node:timers/promises'
import { findBinaries } from './binaries.ts'
import { ensureCluster, hasCluster, passwordOf } from './cluster.ts'
import { probe, urlOf } from './connect.ts'
import { EmbeddedDatabaseError } from './error.ts'
import type { Place } from './place.ts'
import { isOurs, type PidFile, readPidFile, removeForeignPidFile } from './postmaster.ts'
import { startServer } from './spawn.ts'

// A dying server is gone within seconds; one that replays its log after a crash may take minutes, and says so.
const stuckMsMax = 20_000
const recoveryMsMax = 600_000
const politeMsMax = 10_000

/**
 * Finds the running server of a place or starts one; returns its address once it takes connections. Call it under the
 * launch lock. `joined` tells that it was running already.
 *
 * Each round looks anew, because what it saw may change meanwhile: a server killed a moment ago still has its file, one
 * that stops still answers, one whose launcher was killed has no file yet.
 */
export async function launch(place: Place, log: (line: string) => void): Promise<{ url: string; joined: boolean }> {
  const password = passwordOf(place)
  const begun = Date.now()
  let lastMovement = begun
  let stoppingSince = 0
  let reason = ''
  while (Date.now() < Math.min(lastMovement + stuckMsMax, begun + recoveryMsMax)) {
    const file = readPidFile(place)
    if (file.state === 'absent') {
      const binaries = findBinaries(place, log)
      if (!hasCluster(place)) log(`Making the database in ${place.cluster}`)
      await ensureCluster(place, binaries, password)
      // A slow disk may have taken long over that; it is no sign of being stuck.
      lastMovement = Date.now()
      const outcome = await startServer(place, binaries)
      if (outcome.started) {
        if ((await probe(place, outcome.port, password)) === 'serving') {
          return { url: urlOf(outcome.port, password), joined: false }
        }
      } else {
        reason = outcome.reason
        if (!outcome.retry) break
      }
    } else {
      const answer =
        file.port === 0 ? 'silent' : await probe(place, file.port, password, () => isOurs(place, file.pid) === true)
      if (answer === 'serving') return { url: urlOf(file.port, password), joined: true }
      if (isMoving(place, file)) lastMovement = Date.now()
      if (file.status === 'stopping') {
        stoppingSince ||= Date.now()
        // Told to stop with SIGTERM it waits for its clients, perhaps for ever. It is on its way out: SIGINT sends them off.
        if (Date.now() - stoppingSince > politeMsMax && isOurs(place, file.pid)) interruptServer(file.pid)
      }
      reason = `process ${file.pid}, named in postmaster.pid, does not answer as this database (${answer})`
      // Only now, as the file's process is no server of this cluster and does not answer as one.
      if (answer !== 'busy' && isOurs(place, file.pid) === false && removeForeignPidFile(place, file.text)) {
        log(`Removed ${place.cluster}/postmaster.pid: process ${file.pid} is another program and no server runs there`)
        continue
      }
    }
    await sleep(50)
  }
  throw new EmbeddedDatabaseError(
    `The database in ${place.cluster} could not be started: ${reason || 'it did not become ready'}. See ${place.logFile}; ` +
      (/No space left|Disk quota/i.test(reason) ? `make room on the disk of ${place.home}, ` : '') +
      'end a process that holds the directory, or set HOLDFAST_DATA_DIR to another one.',
  )
}

function isMoving(place: Place, file: PidFile & { state: 'present' }): boolean {
  return (file.status === 'starting' || file.status === 'stopping') && isOurs(place, file.pid) !== false
}

function interruptServer(pid: number): void {
  try {
    process.kill(pid, 'SIGINT')
  } catch {
    // Gone meanwhile.
  }
}
