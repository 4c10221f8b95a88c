import { spawn } from 'node:child_process'
import {
  closeSync,
  existsSync,
  fstatSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Binaries, serverEnvironment } from './binaries.ts'
import { codeOf, textOf } from './error.ts'
import { type Place, writeWhole } from './place.ts'
import { readPidFile } from './postmaster.ts'

/** `retry`: the failure may pass (a dying server still holds the directory, the port was taken meanwhile). */
export type StartOutcome = { started: true; port: number } | { started: false; reason: string; retry: boolean }

const recoveryMsMax = 600_000
const logBytesMax = 4 << 20

/**
 * Starts a server process that outlives this one (own process group, no pipe to us) and does not keep it alive, and
 * waits until it says it is ready or has ended. Call it under the launch lock, when none runs.
 */
export async function startServer(place: Place, binaries: Binaries): Promise<StartOutcome> {
  const port = await choosePort(place)
  const log = openLog(place)
  const logStart = fstatSync(log).size
  const { uid, gid } = place.account
  const child = spawn(binaries.postgres, ['-D', place.cluster, ...settings(port)], {
    detached: true,
    stdio: ['ignore', log, log],
    env: serverEnvironment(),
    cwd: '/',
    windowsHide: true,
    ...(uid === undefined ? {} : { uid, gid }),
  })
  closeSync(log)
  child.unref()
  let ended: string | undefined
  child.once('error', (error) => {
    ended = textOf(error)
  })
  child.once('exit', (code, signal) => {
    ended ??= `ended with ${signal ?? `code ${code}`}`
  })
  const deadline = Date.now() + recoveryMsMax
  while (ended === undefined && Date.now() < deadline) {
    const file = readPidFile(place)
    if (file.state === 'present' && file.pid === child.pid && file.status === 'ready') {
      try {
        writeWhole(place.portFile, `${port}\n`)
      } catch {
        // Only a hint for the next start, which takes another port without it.
      }
      return { started: true, port }
    }
    await sleep(10)
  }
  return { started: false, ...explain(readFileSync(place.logFile).subarray(logStart).toString(), ended) }
}

/** Given on the command line at each start, so that a newer Holdfast's settings reach old clusters and no file overrides them. */
function settings(port: number): string[] {
  const values: Record<string, string> = {
    listen_addresses: '127.0.0.1',
    port: String(port),
    // A socket path over 107 bytes would be fatal, and a socket is one more door.
    unix_socket_directories: '',
    fsync: 'on',
    synchronous_commit: 'on',
    full_page_writes: 'on',
    max_connections: '200',
    // Without it the advisory locks of a process killed in the middle of a query live until that query ends.
    client_connection_check_interval: process.platform === 'win32' ? '0' : '200ms',
    password_encryption: 'scram-sha-256',
    timezone: 'UTC',
    log_timezone: 'UTC',
    jit: 'off',
    logging_collector: 'off',
    log_checkpoints: 'off',
    // Statements and row values are the users' conversations: the log keeps server events only.
    log_min_messages: 'log',
    log_min_error_statement: 'panic',
    log_error_verbosity: 'terse',
  }
  if (isSharedMemoryTiny()) values.dynamic_shared_memory_type = 'mmap'
  return Object.entries(values).flatMap(([name, value]) => ['-c', `${name}=${value}`])
}

/** Containers often have 64 MB in /dev/shm, or none; parallel queries then fail at random. */
function isSharedMemoryTiny(): boolean {
  if (process.platform !== 'linux') return false
  try {
    const { blocks, bsize } = statfsSync('/dev/shm')
    return blocks * bsize < 256 << 20 || (statSync('/dev/shm').mode & 0o002) === 0
  } catch {
    return true
  }
}

/** The port of last time if it is free, so that other processes' pools find the server again after it was restarted. */
async function choosePort(place: Place): Promise<number> {
  const last = existsSync(place.portFile) ? Number(readFileSync(place.portFile, 'utf8')) : 0
  if (last > 0) {
    const port = await listenOnce(last)
    if (port !== undefined) return port
  }
  return (await listenOnce(0)) ?? 0
}

function listenOnce(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(undefined))
    server.listen(port, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' && address ? address.port : undefined))
    })
  })
}

/** Opened by us, so the server's account needs no right to it; one older log is kept. */
function openLog(place: Place): number {
  const open = () => openSync(place.logFile, 'a', 0o600)
  try {
    const file = open()
    if (fstatSync(file).size < logBytesMax) return file
    closeSync(file)
    renameSync(place.logFile, `${place.logFile}.old`)
  } catch (error) {
    // Left by a start as root: the directory is ours, so the name can be taken again.
    if (codeOf(error) !== 'EACCES') throw error
    rmSync(place.logFile, { force: true })
  }
  return open()
}

function explain(text: string, ended: string | undefined): { reason: string; retry: boolean } {
  const lines = text.trim().split('\n').filter(Boolean)
  const telling = lines.find((line) => /FATAL|PANIC|could not/.test(line)) ?? lines.at(-1)
  const reason = (telling ?? ended ?? 'it did not become ready').replace(/^.*?(FATAL|PANIC|LOG|WARNING): */, '')
  const passing = /lock file|shared memory block|already in use|could not (bind|create any TCP)/i.test(text)
  return { reason, retry: passing }
}
