// A database in which sessions cannot be kept is refused at start, in words that help, and left as it is.
import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { afterEach, describe, expect, inject, it } from 'vitest'
import { type Facts, unfitness } from '../src/database-fit.ts'
import { MigrationError, migrate } from '../src/migrate.ts'
import { startupProblem } from '../src/startup-problem.ts'
import { onDatabase } from './support/faults.ts'

const { adminUrl } = inject('database')
const made: string[] = []

/** A new database with these words behind CREATE DATABASE. */
async function make(how = ''): Promise<{ name: string; url: string }> {
  const name = `holdfast_fit_${randomBytes(6).toString('hex')}`
  made.push(name)
  await onDatabase(adminUrl, `CREATE DATABASE ${name} TEMPLATE template0 ${how}`)
  const at = new URL(adminUrl)
  at.pathname = `/${name}`
  return { name, url: at.href }
}
afterEach(async () => {
  for (const name of made.splice(0)) await onDatabase(adminUrl, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
})

const refusalOf = (url: string) =>
  migrate({ url }).then(
    () => 'taken',
    (thrown) => {
      expect(thrown).toBeInstanceOf(MigrationError)
      expect(thrown.code).toBe('UNFIT')
      return startupProblem(thrown, { host: '', port: 0, databaseUrl: url })
    },
  )

async function tables(url: string): Promise<string[]> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const { rows } = await client.query(
    `SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')`,
  )
  await client.end()
  return rows.map(({ relname }) => relname)
}

describe('a database', () => {
  const plain = `LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C'`
  it.each(['LATIN1', 'SQL_ASCII', 'EUC_JP'])(
    'PROMISE-155: whose encoding is %s is refused with the rule and the way to a right one, and nothing is written',
    async (encoding) => {
      const { url } = await make(`ENCODING '${encoding}' ${plain}`)
      const said = await refusalOf(url)
      expect(said).toMatch(
        new RegExp(
          `^DATABASE_URL: .*Nothing was written.*encoding has to be UTF8.* is ${encoding}: .*CREATE DATABASE holdfast ENCODING 'UTF8'`,
          's',
        ),
      )
      expect(await tables(url)).toEqual([])
      // What it says can be done.
      const right = await make(/ENCODING .*'C'/.exec(said)![0])
      expect((await migrate({ url: right.url })).applied.length).toBeGreaterThan(0)
    },
  )

  it.each([
    [
      'default_transaction_read_only',
      'on',
      /default_transaction_read_only has to be off and is "on": ALTER DATABASE "/,
    ],
    ['standard_conforming_strings', 'off', /standard_conforming_strings has to be on/],
    [
      'default_transaction_isolation',
      `'repeatable read'`,
      /default_transaction_isolation has to be 'read committed' and is "repeatable read"/,
    ],
    ['DateStyle', `'German'`, /DateStyle has to be 'ISO'/],
    ['session_replication_role', 'replica', /session_replication_role has to be origin/],
    ['search_path', 'nowhere', /search_path names no schema/],
  ])(
    'PROMISE-156: that sets %s to %s is refused with the setting, also when it was migrated before',
    async (setting, value, rule) => {
      const { name, url } = await make(`ENCODING 'UTF8' ${plain}`)
      await onDatabase(adminUrl, `ALTER DATABASE ${name} SET ${setting} = ${value}`)
      expect(await refusalOf(url)).toMatch(rule)
      expect(await tables(url)).toEqual([])
      await onDatabase(adminUrl, `ALTER DATABASE ${name} RESET ${setting}`)
      expect((await migrate({ url })).applied.length).toBeGreaterThan(0)
      if (setting === 'search_path') return
      await onDatabase(adminUrl, `ALTER DATABASE ${name} SET ${setting} = ${value}`)
      expect(await refusalOf(url)).toMatch(rule)
    },
  )

  it('PROMISE-157: whose tables stand where search_path does not lead is refused, instead of being begun anew beside them', async () => {
    const { name, url } = await make(`ENCODING 'UTF8' ${plain}`)
    await migrate({ url })
    await onDatabase(url, 'CREATE SCHEMA other')
    await onDatabase(adminUrl, `ALTER DATABASE ${name} SET search_path = other`)
    expect(await refusalOf(url)).toMatch(/its tables are in the schema "public", and search_path does not lead there/)
    expect(await migrate({ url }).catch(() => null)).toBeNull()
    await onDatabase(adminUrl, `ALTER DATABASE ${name} SET search_path = other, public`)
    expect(await migrate({ url })).toEqual({ applied: [] })
  })

  it('PROMISE-158: whose role or database asks for another client encoding is taken: a session of ours says its own', async () => {
    const { name, url } = await make(`ENCODING 'UTF8' ${plain}`)
    await onDatabase(adminUrl, `ALTER DATABASE ${name} SET client_encoding = 'LATIN1'`)
    expect((await migrate({ url })).applied.length).toBeGreaterThan(0)
    expect((await onDatabase(url, `SELECT 'Grüße 日本 🙂' AS said`)).rows).toEqual([{ said: 'Grüße 日本 🙂' }])
  })
})

it('PROMISE-159: every rule that is broken is told at once; a server that is too old, and a wire that turns texts, are among them', () => {
  const fit: Facts = {
    database: 'a"b',
    version: '15.4',
    versionNumber: 150004,
    encoding: 'UTF8',
    clientEncoding: 'UTF8',
    strings: 'on',
    isolation: 'read committed',
    readOnly: 'off',
    dateStyle: 'ISO, DMY',
    replication: 'origin',
    schema: 'public',
    elsewhere: null,
  }
  expect(unfitness(fit)).toEqual([])
  expect(unfitness({ ...fit, version: '14.11', versionNumber: 140011 })).toEqual([
    'PostgreSQL has to be 15 or newer, this is 14.11: use a newer server',
  ])
  expect(unfitness({ ...fit, clientEncoding: 'SQL_ASCII', encoding: 'LATIN1', readOnly: 'on' })).toMatchObject(
    [
      /encoding has to be UTF8/,
      /client_encoding has to be UTF8 and is "SQL_ASCII": ALTER DATABASE "a""b" SET/,
      /read_only/,
    ].map((rule) => expect.stringMatching(rule)),
  )
})
