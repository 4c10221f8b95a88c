// A disk that fills while the embedded database is made and started: a real, small file system, which only root may mount.
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, expect, it } from 'vitest'
import { processesIn } from '../src/embedded/process-table.ts'
import { EmbeddedDatabaseError, startEmbedded } from '../src/embedded/server.ts'
import { openDirectory, sweep } from './support/embedded-processes.ts'

const mounted: string[] = []

/** A file system of its own; null where this user may not have one. */
function smallDisk(size: string): string | null {
  const at = join(openDirectory(), 'disk')
  mkdirSync(at)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${size},mode=0711`, 'tmpfs', at], { stdio: 'ignore' })
  } catch {
    return null
  }
  chmodSync(at, 0o711)
  mounted.push(at)
  return at
}
const resize = (at: string, size: string) => execFileSync('mount', ['-o', `remount,size=${size}`, at])
const isMountable = process.platform === 'linux' && process.getuid?.() === 0 && smallDisk('64k') !== null

afterAll(async () => {
  for (const at of mounted) execFileSync('umount', ['-l', at])
  await sweep([])
})

/** Writes until nothing more goes in; leaves so many bytes free. */
function fill(at: string, free = 0): string {
  const filler = join(at, 'filler')
  let size = 0
  for (const bytes of [1 << 20, 1 << 16, 1 << 12])
    for (;;) {
      try {
        writeFileSync(filler, Buffer.alloc(bytes), { flag: 'a' })
        size += bytes
      } catch {
        break
      }
    }
  truncateSync(filler, Math.max(0, size - free))
  return filler
}

/** Why it does not start. What half of it left is told with it. */
async function refusal(dataDir: string): Promise<string> {
  const thrown = await startEmbedded({ dataDir }).then(
    () => null,
    (error) => error,
  )
  expect(thrown).toBeInstanceOf(EmbeddedDatabaseError)
  const half = readdirSync(dataDir).filter((name) => /^(initdb-|binaries-new|postgres\.\w+\.)/.test(name))
  expect(half).toEqual([])
  return thrown.message
}

it.skipIf(!isMountable).each(['0', '4k', '64k', '2m', '30m'])(
  'PROMISE-086: with %s free, a first start says which disk needs room, and leaves nothing half made or running; with room the next one works',
  async (free) => {
    const at = smallDisk('40m')!
    const bytes = Number.parseInt(free, 10) * (free.endsWith('k') ? 1024 : free.endsWith('m') ? 1 << 20 : 1)
    const filler = fill(at, bytes)
    const dataDir = join(at, 'data')
    mkdirSync(dataDir, { mode: 0o711 })
    const said = await refusal(dataDir)
    expect(said).toContain(at)
    expect(said).toMatch(/room|full/)
    expect(said).toContain('HOLDFAST_DATA_DIR')
    rmSync(filler)
    resize(at, '300m')
    const database = await startEmbedded({ dataDir })
    expect(database.joined).toBe(false)
    await database.stop()
  },
  120_000,
)

it.skipIf(!isMountable)(
  'PROMISE-086: a disk that has filled since: a start says so or works, and one with room works, with what was there',
  async () => {
    const at = smallDisk('300m')!
    const dataDir = join(at, 'data')
    await (await startEmbedded({ dataDir })).stop()
    for (const free of [0, 4096, 65_536]) {
      const filler = fill(at, free)
      const started = await startEmbedded({ dataDir }).catch((error: Error) => error)
      if (started instanceof Error) {
        expect(started).toBeInstanceOf(EmbeddedDatabaseError)
        expect(started.message).toContain(at)
        expect(processesIn(join(dataDir, 'postgres'), { name: 'nobody' })).toEqual([])
      } else await started.stop()
      rmSync(filler)
      const next = await startEmbedded({ dataDir })
      expect(next.joined).toBe(false)
      await next.stop()
    }
  },
  120_000,
)
