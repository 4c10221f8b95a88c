// Faults that the database itself throws in the middle of a transaction.
import pg from 'pg'

export interface Fault {
  /** How often the database has met it. */
  fired(): Promise<number>
  /** Takes it away. */
  lift(): Promise<void>
}

export interface FaultAt {
  /** Event unless said. */
  table?: string
  /** INSERT unless said. */
  operation?: 'INSERT' | 'UPDATE' | 'DELETE'
  /** On NEW and OLD. */
  when: string
  sqlState?: string
  /** How often it is thrown before all goes well; else until it is lifted. */
  times?: number
  /** What it says. */
  message?: string
  /** Thrown when everything else of the transaction has been done. */
  atCommit?: boolean
}

let made = 0

/** Makes the database refuse what this describes. */
export async function fault(url: string, at: FaultAt): Promise<Fault> {
  const { table = 'Event', operation = 'INSERT', when, sqlState = 'P0001', times = 1_000_000, atCommit = false } = at
  const { message = 'injected fault' } = at
  const name = `fault_${++made}`
  // A sequence is the one thing that a transaction which is rolled back still moves: it counts.
  await onDatabase(
    url,
    `CREATE SEQUENCE ${name};
     CREATE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       IF nextval('${name}') <= ${times} THEN
         RAISE EXCEPTION '%', '${message.replaceAll("'", "''")}' USING ERRCODE = '${sqlState}', CONSTRAINT = 'injected';
       END IF;
       RETURN coalesce(NEW, OLD); END $$;
     CREATE ${atCommit ? 'CONSTRAINT' : ''} TRIGGER ${name} ${atCommit ? 'AFTER' : 'BEFORE'} ${operation} ON "${table}"
       ${atCommit ? 'DEFERRABLE INITIALLY DEFERRED' : ''} FOR EACH ROW WHEN (${when}) EXECUTE FUNCTION ${name}()`,
  )
  return {
    async fired() {
      const { rows } = await onDatabase(
        url,
        `SELECT CASE WHEN is_called THEN last_value::int ELSE 0 END AS n FROM ${name}`,
      )
      return rows[0].n
    },
    async lift() {
      await onDatabase(url, `DROP FUNCTION ${name}() CASCADE; DROP SEQUENCE ${name}`)
    },
  }
}

/** Statements from beside every core. */
export async function onDatabase(url: string, sql: string): Promise<pg.QueryResult> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return await client.query(sql)
  } finally {
    await client.end()
  }
}
