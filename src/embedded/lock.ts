import { createHash } from 'node:crypto'
import { closeSync, constants, openSync, statSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { codeOf, EmbeddedDatabaseError } from './error.ts'

/**
 * The launch lock: at most one process looks for, makes, starts or stops the server of one data directory. The kernel
 * holds it, so it is free the instant its holder dies, kill -9 included, and there is no stale lock file to judge:
 * on Linux a listening abstract socket named after the directory's device and inode, elsewhere a file opened with
 * the exclusive-lock flag.
 */
const waitMsMax = 300_000
const sayMs = 5_000

/**
 * Runs `work` alone among all processes that use `dir`, and gives the lock back however it ends.
 * @throws EmbeddedDatabaseError when another process held the lock for five minutes.
 */
export async function withLaunchLock<T>(dir: string, log: (line: string) => void, work: () => Promise<T>): Promise<T> {
  const deadline = Date.now() + waitMsMax
  let sayAt = Date.now() + sayMs
  let release = await acquire(dir)
  while (!release) {
    if (Date.now() > deadline) {
      throw new EmbeddedDatabaseError(
        `Another process has been starting or stopping the database in ${dir} for ${waitMsMax / 1000} seconds. ` +
          'End that process, or set HOLDFAST_DATA_DIR to another directory.',
      )
    }
    if (Date.now() > sayAt) {
      sayAt = Number.POSITIVE_INFINITY
      log(`Waiting for another process that starts or stops the database in ${dir}`)
    }
    await sleep(10 + Math.random() * 20)
    release = await acquire(dir)
  }
  try {
    return await work()
  } finally {
    await release()
  }
}

type Release = () => Promise<void>

async function acquire(dir: string): Promise<Release | undefined> {
  return process.platform === 'linux' ? acquireSocket(dir) : acquireFile(dir)
}

/** The inode names the directory through every symlink and mount; the hash only keeps the name short. */
function acquireSocket(dir: string): Promise<Release | undefined> {
  const { dev, ino } = statSync(dir, { bigint: true })
  const name = `\0holdfast-${createHash('sha256').update(`${dev}:${ino}`).digest('hex').slice(0, 32)}`
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy())
    server.once('error', (error) => (codeOf(error) === 'EADDRINUSE' ? resolve(undefined) : reject(error)))
    server.listen(name, () => resolve(() => new Promise((closed) => server.close(() => closed()))))
  })
}

// UV_FS_O_EXLOCK: libuv's documented flag, absent from node's constants. With O_NONBLOCK macOS answers EAGAIN at once.
const exclusive = process.platform === 'win32' ? 0x10000000 : 0x20

async function acquireFile(dir: string): Promise<Release | undefined> {
  try {
    const flags = constants.O_CREAT | constants.O_RDWR | exclusive | (constants.O_NONBLOCK ?? 0)
    const file = openSync(join(dir, 'launch.lock'), flags, 0o600)
    return async () => closeSync(file)
  } catch (error) {
    if (['EAGAIN', 'EWOULDBLOCK', 'EBUSY'].includes(codeOf(error) ?? '')) return undefined
    throw error
  }
}
