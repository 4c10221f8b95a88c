import { createHash, randomUUID } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { boundWire } from './bounded-session.ts'
import { readFacts, unfitness } from './database-fit.ts'
import { asError } from './errors.ts'

/**
 * Brings a database to this binary's schema at start (design section 3). Prisma's own `migrate` needs an engine that is
 * downloaded; this keeps the same books (`_prisma_migrations`, same checksums, same advisory lock), so that its tools
 * agree where somebody has them.
 */

/** Why a database was left as it is. */
export class MigrationError extends Error {
  override readonly name = 'MigrationError'
  /** EDITED: an applied file differs. UNKNOWN: a newer schema. UNFINISHED: Prisma's tool failed in it. FAILED: its SQL. INVALID: its file. UNFIT: the database itself. */
  readonly code: 'EDITED' | 'UNKNOWN' | 'UNFINISHED' | 'FAILED' | 'INVALID' | 'UNFIT'

  constructor(code: MigrationError['code'], message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

/** One file; `checksum` is the SHA-256 of its bytes in hex, as Prisma writes it. */
export type Migration = { name: string; sql: string; checksum: string }

type Applied = { migration_name: string; checksum: string; finished_at: Date | null }

export const migrationsDir = fileURLToPath(new URL('../prisma/migrations', import.meta.url))

// The key that Prisma's migrate takes, so that the two never run beside each other.
const lockKey = 72707369
const lockWaitMinutesMax = 10
const stillMinutesMax = 1

// Prisma's table, column by column.
const createBooks = `CREATE TABLE IF NOT EXISTS _prisma_migrations (
  id varchar(36) PRIMARY KEY NOT NULL,
  checksum varchar(64) NOT NULL,
  finished_at timestamptz,
  migration_name varchar(255) NOT NULL,
  logs text,
  rolled_back_at timestamptz,
  started_at timestamptz NOT NULL DEFAULT now(),
  applied_steps_count integer NOT NULL DEFAULT 0
)`

/**
 * Applies what is missing, in the order of the names, each migration in one transaction together with its row in
 * `_prisma_migrations`; returns the names applied by this call. Any number of processes may call it at once: one works,
 * the others wait for it. A kill in the middle leaves the migration undone as a whole, the next call does it.
 *
 * @param dir where the `<stamp>_<name>/migration.sql` are; default is what came with this binary.
 * @throws MigrationError before anything is written, when an applied file was edited, the database is newer than this binary, or breaks a rule of
 *   database-fit.ts.
 */
export async function migrate(options: {
  url: string
  dir?: string
  log?: (line: string) => void
}): Promise<{ applied: string[] }> {
  const migrations = readMigrations(options.dir ?? migrationsDir)
  const client = new pg.Client({ connectionString: options.url, application_name: 'holdfast-migrate' })
  // The failing query reports a lost connection; a second report without a listener would end the process.
  client.on('error', () => {})
  await client.connect()
  try {
    await boundWire(client)
    await mustFit(client)
    // One that stands still inside of a migration lets the next one do it.
    await client.query(`SET idle_in_transaction_session_timeout = '${stillMinutesMax}min'`)
    // A migrating process that is killed frees the lock at once. Not every server's system can watch its clients.
    await client.query(`SET client_connection_check_interval = '200ms'`).catch(() => {})
    await client.query(`SET lock_timeout = '${lockWaitMinutesMax}min'`)
    // What a role or a database allows its users is meant for other work: cut off there, a long migration would never come to its end.
    // PostgreSQL has transaction_timeout from 17 on.
    await client.query(
      `SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout')`,
    )
    const applied: string[] = []
    for (;;) {
      const name = await applyNext(client, migrations)
      if (name === undefined) return { applied }
      options.log?.(`Applied migration ${name}`)
      applied.push(name)
    }
  } finally {
    await client.end().catch(() => {})
  }
}

/** Before anything is written: another database is easier to make than to mend. */
async function mustFit(client: pg.Client): Promise<void> {
  const broken = unfitness(await readFacts(client))
  if (broken.length === 0) return
  const list = broken.map((rule) => `\n- ${rule}`).join('')
  throw new MigrationError(
    'UNFIT',
    `DATABASE_URL: sessions cannot be kept in this database. Nothing was written.${list}`,
  )
}

/** One transaction: lock, look, judge, apply the first missing one, book it. Undefined when none is missing. */
async function applyNext(client: pg.Client, migrations: Migration[]): Promise<string | undefined> {
  await client.query('BEGIN')
  try {
    // Bound to the transaction: the books are read under it, so no two processes find the same one missing.
    await client.query('SELECT pg_advisory_xact_lock($1)', [lockKey])
    const next = nextMissing(migrations, await readBooks(client))
    if (next) await apply(client, next)
    await client.query(next ? 'COMMIT' : 'ROLLBACK')
    return next?.name
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {})
    throw error
  }
}

async function readBooks(client: pg.Client): Promise<Applied[]> {
  const { rows } = await client.query(`SELECT to_regclass('_prisma_migrations') IS NOT NULL AS present`)
  if (!rows[0].present) return []
  const books = await client.query<Applied>(
    'SELECT migration_name, checksum, finished_at FROM _prisma_migrations WHERE rolled_back_at IS NULL ORDER BY migration_name',
  )
  return books.rows
}

/** Pure: what to apply next, or the reason why nothing may be written. */
function nextMissing(migrations: Migration[], applied: Applied[]): Migration | undefined {
  const byName = new Map(migrations.map((migration) => [migration.name, migration]))
  const unknown = applied.filter((row) => !byName.has(row.migration_name)).map((row) => row.migration_name)
  if (unknown.length > 0) {
    throw new MigrationError(
      'UNKNOWN',
      `This database has a newer schema than this Holdfast: it holds the migration ${unknown.join(', ')}, which this version ` +
        'does not know. Nothing was written. Start the newer version again, or restore a backup from before the upgrade.',
    )
  }
  for (const row of applied) {
    if (row.finished_at === null) {
      throw new MigrationError(
        'UNFINISHED',
        `The migration ${row.migration_name} was begun by another tool and did not finish. Nothing was written. ` +
          'Settle it with "prisma migrate resolve", then start again.',
      )
    }
    if (!checksumsOf(byName.get(row.migration_name)!).includes(row.checksum)) {
      throw new MigrationError(
        'EDITED',
        `The migration ${row.migration_name} was edited after this database had applied it (checksum ${row.checksum.slice(0, 12)}… ` +
          'in _prisma_migrations). Nothing was written. Restore the file and put the change into a new migration.',
      )
    }
  }
  const done = new Set(applied.map((row) => row.migration_name))
  return migrations.find((migration) => !done.has(migration.name))
}

/** Line ends are not a change: a checkout on Windows may have turned them, and Prisma accepts both as well. */
function checksumsOf({ sql, checksum }: Migration): string[] {
  const unix = sql.replace(/\r\n/g, '\n')
  return [checksum, sha256(unix), sha256(unix.replace(/\n/g, '\r\n'))]
}

async function apply(client: pg.Client, { name, sql, checksum }: Migration): Promise<void> {
  // It would end our transaction, and a kill behind it would leave half a migration.
  if (/^\s*(BEGIN|COMMIT|ROLLBACK|START TRANSACTION)(\s+(WORK|TRANSACTION))?\s*;/im.test(withoutBodies(sql))) {
    throw new MigrationError('INVALID', `The migration ${name} begins or ends a transaction itself; take that out`)
  }
  try {
    await client.query(createBooks)
    await client.query(sql)
    // A migration may have set either for itself.
    await client.query('RESET search_path; RESET role')
    await client.query(
      `INSERT INTO _prisma_migrations (id, checksum, migration_name, started_at, finished_at, applied_steps_count)
       VALUES ($1, $2, $3, now(), clock_timestamp(), 1)`,
      [randomUUID(), checksum, name],
    )
  } catch (error) {
    const { message, detail } = asError(error) as Error & { detail?: string }
    // The detail names the row that a new rule refuses.
    const text = detail === undefined ? message : `${message}: ${detail}`
    throw new MigrationError('FAILED', `The migration ${name} failed and was undone as a whole: ${text}`, {
      cause: error,
    })
  }
}

/** Dollar-quoted function bodies have their own BEGIN and END. */
function withoutBodies(sql: string): string {
  return sql.replace(/(\$\w*\$)[\s\S]*?\1/g, `''`).replace(/--.*$/gm, '')
}

/** Reads the migrations of a directory in the order of their names; none when the directory does not exist. */
export function readMigrations(dir: string): Migration[] {
  if (!existsSync(dir)) return []
  return readdirSync(dir, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort()
    .map((name) => {
      const file = join(dir, name, 'migration.sql')
      if (!existsSync(file)) throw new MigrationError('INVALID', `The migration ${name} has no file ${file}`)
      const bytes = readFileSync(file)
      return { name, sql: bytes.toString('utf8'), checksum: sha256(bytes) }
    })
}

function sha256(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}
