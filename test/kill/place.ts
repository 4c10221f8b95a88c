// Where the servers of a run keep what must outlive them: a database and the file of effects.
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startEmbedded } from '../../src/embedded/server.ts'
import { createTestDatabase } from '../support/database.ts'
import { serverPid } from '../support/embedded-processes.ts'

export interface Place {
  kind: 'embedded' | 'external'
  /** For a server's environment. */
  env: Record<string, string>
  /** Opens the database beside the servers, once nothing of it is killed any more; its address. */
  open(): Promise<string>
  /** The database server's own process; undefined while there is none, or where it is not the run's to kill. */
  databasePid(): number | undefined
  /** How often each tool call took effect. */
  effects(): Map<string, number>
  close(): Promise<void>
}

export async function openPlace(): Promise<Place> {
  const dir = mkdtempSync(join(tmpdir(), 'holdfast-kill-'))
  // As root the embedded server runs as somebody else, who has to get through.
  chmodSync(dir, 0o711)
  const file = join(dir, 'effects')
  writeFileSync(file, '')
  const env = {
    EFFECTS_FILE: file,
    HOLDFAST_CONFIG: fileURLToPath(new URL('./tools.config.mjs', import.meta.url)),
  }
  const effects = () => {
    const counts = new Map<string, number>()
    for (const callId of readFileSync(file, 'utf8').split('\n'))
      if (callId !== '') counts.set(callId, (counts.get(callId) ?? 0) + 1)
    return counts
  }
  const sweep = () => rmSync(dir, { recursive: true, force: true, maxRetries: 5 })

  if (process.env.DATABASE_URL) {
    const database = await createTestDatabase()
    return {
      kind: 'external',
      env: { ...env, DATABASE_URL: database.url },
      open: async () => database.url,
      databasePid: () => undefined,
      effects,
      async close() {
        await database.drop()
        sweep()
      },
    }
  }
  const dataDir = join(dir, 'data')
  let joined: Awaited<ReturnType<typeof startEmbedded>> | undefined
  return {
    kind: 'embedded',
    env: { ...env, HOLDFAST_DATA_DIR: dataDir },
    async open() {
      joined ??= await startEmbedded({ dataDir })
      return joined.url
    },
    databasePid: () => serverPid(dataDir),
    effects,
    async close() {
      // Whoever uses it last stops it: the servers are gone.
      if (existsSync(dataDir)) {
        joined ??= await startEmbedded({ dataDir })
        await joined.stop()
      }
      sweep()
    },
  }
}
