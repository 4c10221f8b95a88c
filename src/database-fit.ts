// Whether a database is one in which sessions can be kept: asked at each start, before anything is written.

import type { ClientBase } from 'pg'

/** What the session that asks sees, settings of the database and of the role included. */
export interface Facts {
  database: string
  version: string
  versionNumber: number
  encoding: string
  clientEncoding: string
  strings: string
  isolation: string
  readOnly: string
  dateStyle: string
  replication: string
  schema: string | null
  /** Where the tables stand, if not where this session looks. */
  elsewhere: string | null
}

const versionMin = 15

/** Reads them in one statement that any PostgreSQL of the last ten years answers. */
export async function readFacts(client: Pick<ClientBase, 'query'>): Promise<Facts> {
  const { rows } = await client.query<Facts>(`
    SELECT current_database() AS database, current_setting('server_version') AS version,
           current_setting('server_version_num')::int AS "versionNumber",
           (SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()) AS encoding,
           current_setting('client_encoding') AS "clientEncoding",
           current_setting('standard_conforming_strings') AS strings,
           current_setting('default_transaction_isolation') AS isolation,
           current_setting('default_transaction_read_only') AS "readOnly",
           current_setting('DateStyle') AS "dateStyle",
           current_setting('session_replication_role') AS replication,
           current_schema()::text AS schema,
           CASE WHEN to_regproc('holdfast_append') IS NULL THEN
             (SELECT min(n.nspname::text) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.proname = 'holdfast_append') END AS elsewhere`)
  return rows[0]!
}

/** Every rule that the database breaks, each with the way to a right one; empty if it is fit. Pure. */
export function unfitness(facts: Facts): string[] {
  const { database, version, encoding, schema, elsewhere } = facts
  const name = `"${database.replaceAll('"', '""')}"`
  const broken: string[] = []
  if (facts.versionNumber < versionMin * 10_000)
    broken.push(`PostgreSQL has to be ${versionMin} or newer, this is ${version}: use a newer server`)
  if (encoding !== 'UTF8')
    broken.push(
      `its encoding has to be UTF8, which takes every text, and is ${encoding}: make a new one with ` +
        `CREATE DATABASE holdfast ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`,
    )
  const settings = [
    ['client_encoding', facts.clientEncoding, 'UTF8', /^UTF8$/],
    ['standard_conforming_strings', facts.strings, 'on', /^on$/],
    ['default_transaction_isolation', facts.isolation, "'read committed'", /^read committed$/],
    ['default_transaction_read_only', facts.readOnly, 'off', /^off$/],
    ['DateStyle', facts.dateStyle, "'ISO'", /^ISO\b/],
    ['session_replication_role', facts.replication, 'origin', /^origin$/],
  ] as const
  for (const [setting, is, has, rule] of settings)
    if (!rule.test(is))
      broken.push(
        `${setting} has to be ${has} and is "${is}": ALTER DATABASE ${name} SET ${setting} = ${has}, or the same with ALTER ROLE where the role sets it`,
      )
  if (elsewhere !== null)
    broken.push(
      `its tables are in the schema "${elsewhere}", and search_path does not lead there: set it with ALTER ROLE … SET search_path, or use a database of its own`,
    )
  else if (schema === null)
    broken.push(
      'search_path names no schema that is there and open to this user: CREATE SCHEMA, or ALTER ROLE … SET search_path = public',
    )
  return broken
}
