import { execFile } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { findBinaries, serverEnvironment } from './binaries.ts'
import { codeOf } from './error.ts'
import type { Place } from './place.ts'
import { isOurs, readPidFile } from './postmaster.ts'
import { birthOf, isAlive, type Process } from './process-table.ts'

const fastMsMax = 60_000
const immediateMsMax = 20_000

/**
 * Stops the server of a place and returns when its process is gone; does nothing when none runs. SIGINT ends the
 * clients' sessions and writes a checkpoint (SIGTERM would wait for the clients for ever); should a disk take longer
 * than a minute for that, SIGQUIT ends it without, and the next start replays the log. Call it under the launch lock.
 */
export async function stopServer(place: Place, log: (line: string) => void): Promise<void> {
  const file = readPidFile(place)
  if (file.state === 'absent' || file.pid === 0) return
  if (process.platform === 'win32') {
    const { pgCtl } = findBinaries(place, log)
    await promisify(execFile)(pgCtl, ['stop', '-D', place.cluster, '-m', 'fast', '-w'], { env: serverEnvironment() })
    return
  }
  // Never signal a process that merely got the server's old number.
  if (isOurs(place, file.pid) === false) return
  if (await endWith(file.pid, 'SIGINT', fastMsMax)) return
  log(`The database server (process ${file.pid}) did not stop within ${fastMsMax / 1000} s; ending it at once`)
  await endWith(file.pid, 'SIGQUIT', immediateMsMax)
}

/** Ends a server whose directory is not known any more; does nothing if that process is gone. */
export async function stopProcess({ pid, birth }: Process): Promise<void> {
  if (process.platform === 'win32' || !isAlive(pid) || birthOf(pid) !== birth) return
  if (await endWith(pid, 'SIGINT', fastMsMax)) return
  await endWith(pid, 'SIGQUIT', immediateMsMax)
}

async function endWith(pid: number, signal: NodeJS.Signals, msMax: number): Promise<boolean> {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if (codeOf(error) === 'ESRCH') return true
    throw error
  }
  const deadline = Date.now() + msMax
  while (isAlive(pid)) {
    if (Date.now() > deadline) return false
    await sleep(5)
  }
  return true
}
