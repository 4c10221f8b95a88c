import pg from 'pg'
import { inject } from 'vitest'
import { databaseName } from './database-names.ts'
import { type SameTables, sameTables } from './same-tables.ts'

/** A test file's own database. */
export interface TestDatabase extends Pick<SameTables, 'prove' | 'exempt'> {
  url: string
  /** Moves the database's clock by `ms` from now on (0: back to the real time). */
  shiftClock(ms: number): Promise<void>
  /** Takes it away, once all its sessions are proved to be as their logs say. Whatever writes to it has ended before. */
  drop(): Promise<void>
}

// Only has to be the same in every worker: cloning needs the template without any other connection, so one at a time.
const cloneLock = 7_201_119

/** Clones the migrated template. Drop it when the file is done; the next run sweeps what was forgotten. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const { adminUrl, template } = inject('database')
  const name = databaseName('file')
  await withClient(adminUrl, async (admin) => {
    await admin.query('SELECT pg_advisory_lock($1)', [cloneLock])
    await admin.query(`CREATE DATABASE ${name} TEMPLATE ${template}`)
    // No test crashes the server under such a database (those that do start one of their own), and nothing less than that loses a commit
    // that the disk has not confirmed. Waiting for the disk would be half of the suite's time.
    await admin.query(`ALTER DATABASE ${name} SET synchronous_commit = off`)
  })
  const at = new URL(adminUrl)
  at.pathname = `/${name}`
  const url = at.href
  const { prove, exempt, end } = sameTables(url)
  return {
    url,
    prove,
    exempt,
    async shiftClock(ms) {
      if (!Number.isSafeInteger(ms)) throw new Error(`shiftClock takes whole milliseconds, got ${ms}`)
      await withClient(url, (client) =>
        client.query(
          `CREATE OR REPLACE FUNCTION holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE
           AS $$ SELECT clock_timestamp() + interval '${ms} milliseconds' $$`,
        ),
      )
    },
    async drop() {
      try {
        await prove()
      } finally {
        await end()
        await withClient(adminUrl, (admin) => admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`))
      }
    },
  }
}

async function withClient(url: string, work: (client: pg.Client) => Promise<unknown>): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await work(client)
  } finally {
    // Also gives the lock back.
    await client.end()
  }
}
