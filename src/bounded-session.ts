// What the server of the database bounds of a session of ours. Whoever is gone without a word (no FIN, a machine that stands still) leaves
// a session behind there, with its locks: advisory ones, rows of a hundred claims, a place in the queue of notifications. The server's own
// keepalive would find that out after two hours, and a transaction that nobody ends lasts as long as its connection.
//
// They are set by statements, not as parameters of the connection: poolers refuse those that they do not know.

import type { ClientBase } from 'pg'

/** For how long a wire may leave unanswered what the server sends or asks on it. Not shorter: a machine may stand still for as long as a lease. */
const wireSilentMs = 30_000

const wire = `
  SELECT set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
         set_config('tcp_keepalives_count', '4', false), set_config('tcp_user_timeout', '${wireSilentMs}', false);
  -- Not every server's system can watch its clients while it works for them.
  DO $$ BEGIN PERFORM set_config('client_connection_check_interval', '${wireSilentMs / 3}', false);
        EXCEPTION WHEN OTHERS THEN NULL; END $$`

/** Lets the server notice that nobody is at the other end any more. Over a socket file there is no wire, and the settings do nothing there. */
export async function boundWire(client: Pick<ClientBase, 'query'>): Promise<void> {
  await client.query(wire)
}

/**
 * The same for a session that writes, and more. `silentMs` is when its client gives an answer up: a statement that goes on beyond that works
 * for nobody. A wait for a lock ends long before, so that it is no silence. A transaction in which nothing is asked has lost whoever began
 * it; its locks have to be free before others stop waiting for them. The longest of ours takes minutes (a rebuild), so a whole one has
 * twenty times as long.
 */
export async function boundSession(client: Pick<ClientBase, 'query'>, silentMs: number): Promise<void> {
  const ms = (share: number) => `'${Math.max(1, Math.round(share * silentMs))}'`
  await client.query(`${wire};
  SELECT set_config('statement_timeout', ${ms(1)}, false), set_config('lock_timeout', ${ms(1 / 6)}, false),
         set_config('idle_in_transaction_session_timeout', ${ms(1 / 3)}, false),
         -- Since PostgreSQL 17.
         CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
              THEN set_config('transaction_timeout', ${ms(20)}, false) END`)
}
