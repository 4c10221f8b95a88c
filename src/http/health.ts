import type { Db } from '../db.ts'
import { migrationsDir, readMigrations } from '../migrate.ts'
import type { Core } from '../runner/core.ts'

const answerMsMax = 3000
/** The lock's proof is renewed some times a second: one that is late by a moment is waited for. */
const livenessMsMax = 1000

/**
 * Why this process cannot serve at the moment, in words that name no secret; null if it can. Asks the database, which has to answer
 * within three seconds and to know the migrations that came with this version. Without its liveness lock a process runs nothing.
 */
export async function whyNotReady({
  db,
  stopping,
  leases,
}: Pick<Core, 'db' | 'stopping' | 'leases'>): Promise<string | null> {
  const reason = await whyNotServed(db, stopping)
  if (reason !== null || (await leases.whenAlive(AbortSignal.timeout(livenessMsMax)))) return reason
  return 'the liveness lock is not held: prompts are admitted and nothing is run until it is'
}

async function whyNotServed(db: Db, stopping: AbortSignal): Promise<string | null> {
  if (stopping.aborted) return 'the server is stopping'
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), answerMsMax)
  })
  try {
    const applied = await Promise.race([appliedMigrations(db), late])
    if (applied === null) return `the database has not answered for ${answerMsMax} ms`
    const missing = readMigrations(migrationsDir).filter(({ name }) => !applied.has(name))
    return missing.length === 0 ? null : `migrations are missing: ${missing.map(({ name }) => name).join(', ')}`
  } catch {
    // The cause may name hosts and users; the log of whatever else uses the database has it.
    return 'the database cannot be reached'
  } finally {
    clearTimeout(timer)
  }
}

async function appliedMigrations(db: Db): Promise<Set<string>> {
  const [books] = await db.$queryRaw<
    { there: boolean }[]
  >`SELECT to_regclass('_prisma_migrations') IS NOT NULL AS there`
  if (!books?.there) return new Set()
  const rows = await db.$queryRaw<{ migration_name: string }[]>`
    SELECT migration_name FROM _prisma_migrations WHERE finished_at IS NOT NULL AND rolled_back_at IS NULL`
  return new Set(rows.map((row) => row.migration_name))
}
