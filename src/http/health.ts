import { isTransientState, whyNotWritten } from '../database-fault.ts'
import { type Db, sqlStateOf } from '../db.ts'
import { migrationsDir, readMigrations } from '../migrate.ts'
import type { Core } from '../runner/core.ts'
import type { Writes } from '../writes.ts'

const answerMsMax = 3000
/** The lock's proof is renewed some times a second: one that is late by a moment is waited for. */
const livenessMsMax = 1000

let own: readonly string[] | undefined
/** The migrations that came with this version, read once: the files may be moved or replaced under a server that runs. */
export const ownMigrations = () => (own ??= readMigrations(migrationsDir).map(({ name }) => name))

/**
 * Why this process cannot serve at the moment, in words that name no secret; null if it can. Asks the database, which has to answer
 * within three seconds, to know the migrations that came with this version, and to take writes. Without its liveness lock a process runs nothing.
 */
export async function whyNotReady({
  db,
  stopping,
  leases,
  writes,
}: Pick<Core, 'db' | 'stopping' | 'leases' | 'writes'>): Promise<string | null> {
  const reason = await whyNotServed(db, stopping, writes)
  if (reason !== null || (await leases.whenAlive(AbortSignal.timeout(livenessMsMax)))) return reason
  return 'the liveness lock is not held: prompts are admitted and nothing is run until it is'
}

const asked = new WeakMap<Db, { at: number; isForTrouble: boolean; answer: Promise<string | null> }>()
/** Anybody may ask, as often as they like: what is asked of the database stands before everybody's appends, and the look at writes writes a megabyte. */
const lookAgainMs = 250

function whyNotServed(db: Db, stopping: AbortSignal, writes: Writes | null): Promise<string | null> {
  if (stopping.aborted)
    return Promise.resolve(typeof stopping.reason === 'string' ? stopping.reason : 'the server is stopping')
  const isForTrouble = writes !== null && writes.trouble() !== null
  const last = asked.get(db)
  if (last !== undefined && last.isForTrouble === isForTrouble && performance.now() - last.at < lookAgainMs)
    return last.answer
  const answer = askDatabase(db, writes)
  asked.set(db, { at: performance.now(), isForTrouble, answer })
  return answer
}

async function askDatabase(db: Db, writes: Writes | null): Promise<string | null> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(() => resolve(`the database has not answered for ${answerMsMax} ms`), answerMsMax)
  })
  try {
    return await Promise.race([whyUnusable(db, writes), late])
  } catch (thrown) {
    // The cause may name hosts, users and paths; the log of whatever else uses the database has it.
    const state = sqlStateOf(thrown)
    return state !== null && isTransientState(state) && !/^(08|28|3D|57)/.test(state)
      ? whyNotWritten(state)
      : 'the database cannot be reached'
  } finally {
    clearTimeout(timer)
  }
}

async function whyUnusable(db: Db, writes: Writes | null): Promise<string | null> {
  const applied = await appliedMigrations(db)
  const missing = ownMigrations().filter((name) => !applied.has(name))
  if (missing.length > 0) return `migrations are missing: ${missing.join(', ')}`
  return whyNotWriting(db, writes)
}

/** Looks whether the database takes writes; after an append that it did not take, whether it would take one now. */
async function whyNotWriting(db: Db, writes: Writes | null): Promise<string | null> {
  const isForTrouble = writes !== null && writes.trouble() !== null
  const [row] = await db.$queryRaw<{ state: string | null }[]>`SELECT holdfast_write_fault(${isForTrouble}) AS state`
  const state = row?.state ?? null
  if (state !== null) return whyNotWritten(state)
  if (isForTrouble) writes.succeeded()
  return null
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
