// Connections beside the code under test: they hold locks, watch who waits for one, and see what a commit has written.
import pg from 'pg'
import { eventually } from './core.ts'

export interface Beside {
  client: pg.Client
  // biome-ignore lint/suspicious/noExplicitAny: rows are whatever the test asked for
  query(sql: string, values?: unknown[]): Promise<any[]>
  /** Locks a session's row as an append does, in a transaction that stays open until `query('COMMIT')` or `'ROLLBACK'`. */
  lock(...sessionIds: string[]): Promise<void>
  /** Resolves once this many backends of the database wait for a lock, by the server's own word. */
  blocked(count?: number): Promise<void>
  close(): Promise<void>
}

export async function beside(url: string): Promise<Beside> {
  const client = new pg.Client({ connectionString: url, application_name: 'beside' })
  client.on('error', () => {})
  await client.connect()
  // What is asked here must not wait in a transaction that a test holds open.
  const watcher = new pg.Client({ connectionString: url, application_name: 'beside watching' })
  watcher.on('error', () => {})
  await watcher.connect()
  const query = async (sql: string, values: unknown[] = []) => (await client.query(sql, values)).rows
  return {
    client,
    query,
    async lock(...sessionIds) {
      await query('BEGIN')
      for (const id of sessionIds) {
        const rows = await query(locking.session, [id])
        if (rows.length !== 1) throw new Error(`there is no session ${id} to lock`)
      }
    },
    async blocked(count = 1) {
      await eventually(`${count} backends that wait for a lock`, async () => {
        const { rows } = await watcher.query(`
          SELECT count(DISTINCT l.pid)::int AS n FROM pg_locks l JOIN pg_stat_activity a USING (pid)
           WHERE NOT l.granted AND a.datname = current_database()`)
        return rows[0].n >= count
      })
    },
    async close() {
      await client.end()
      await watcher.end()
    },
  }
}

/** Lock the row of the session $1, or of its claim, as the code under test does. */
export const locking = {
  session: 'SELECT id FROM "Session" WHERE id = $1 FOR NO KEY UPDATE',
  claim: 'SELECT "sessionId" FROM "Claim" WHERE "sessionId" = $1 FOR NO KEY UPDATE',
} as const

/** Could somebody else lock this row right now? */
export async function lockable(url: string, what: keyof typeof locking, sessionId: string): Promise<boolean> {
  const other = await beside(url)
  try {
    return (await other.query(`${locking[what]} SKIP LOCKED`, [sessionId])).length === 1
  } finally {
    await other.close()
  }
}
