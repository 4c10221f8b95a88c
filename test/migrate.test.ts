import { spawn, spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath, pathToFileURL } from 'node:url'
import pg from 'pg'
import { afterAll, afterEach, beforeEach, describe, expect, inject, it } from 'vitest'
import { migrate, migrationsDir, readMigrations } from '../src/migrate.ts'
import { databaseName } from './support/database-names.ts'

const projectDir = dirname(dirname(fileURLToPath(import.meta.url)))
const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href
const work = mkdtempSync(join(tmpdir(), 'holdfast-migrate-'))

let admin: pg.Client
let url: string
let name: string
let dir: string
let clients: pg.Client[] = []

beforeEach(async () => {
  name = databaseName('file')
  admin = new pg.Client({ connectionString: inject('database').adminUrl })
  await admin.connect()
  await admin.query(`CREATE DATABASE ${name}`)
  const at = new URL(inject('database').adminUrl)
  at.pathname = `/${name}`
  url = at.href
  dir = mkdtempSync(join(work, 'migrations-'))
})

afterEach(async () => {
  for (const client of clients) await client.end()
  clients = []
  await admin.query(`DROP DATABASE ${name} WITH (FORCE)`)
  await admin.end()
})

afterAll(() => rmSync(work, { recursive: true, force: true }))

async function connect(to = url): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: to })
  client.on('error', () => {})
  await client.connect()
  clients.push(client)
  return client
}

function write(migration: string, sql: string): void {
  mkdirSync(join(dir, migration), { recursive: true })
  writeFileSync(join(dir, migration, 'migration.sql'), sql)
}

async function tables(): Promise<string[]> {
  const client = await connect()
  const { rows } = await client.query(`SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename`)
  return rows.map((row) => row.tablename)
}

async function books(): Promise<Record<string, unknown>[]> {
  const client = await connect()
  return (await client.query('SELECT * FROM _prisma_migrations ORDER BY migration_name')).rows
}

/** The same database as one who may only read: a refusal that comes through has not tried to write. */
async function readOnly(): Promise<string> {
  const client = await connect()
  const role = `reader_${process.pid}`
  const { rowCount } = await client.query('SELECT 1 FROM pg_roles WHERE rolname = $1', [role])
  if (rowCount === 0) await client.query(`CREATE ROLE ${role}`)
  await client.query(`GRANT SELECT ON ALL TABLES IN SCHEMA public TO ${role}`)
  const at = new URL(url)
  at.searchParams.set('options', `-c role=${role}`)
  return at.href
}

describe('migrating', () => {
  it("applies this binary's migrations to an empty database, and nothing the second time", async () => {
    const names = readMigrations(migrationsDir).map((migration) => migration.name)
    expect(await migrate({ url })).toEqual({ applied: names })
    expect(await migrate({ url })).toEqual({ applied: [] })
    expect(await migrate({ url: await readOnly() })).toEqual({ applied: [] })
  })

  it("keeps Prisma's books: its columns, and the checksum of the file", async () => {
    write('20260101000000_one', 'CREATE TABLE one ();')
    const log: string[] = []
    await migrate({ url, dir, log: (line) => log.push(line) })
    expect(log).toEqual(['Applied migration 20260101000000_one'])
    const [row] = await books()
    expect(row).toMatchObject({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      // echo -n 'CREATE TABLE one ();' | sha256sum
      checksum: '7a320e02f52602845c729238769ead5bb5bf6874041d464cbfcfa8f410b9396a',
      migration_name: '20260101000000_one',
      logs: null,
      rolled_back_at: null,
      applied_steps_count: 1,
    })
    expect(row!.finished_at).toBeInstanceOf(Date)
    const client = await connect()
    const { rows } = await client.query(
      `SELECT column_name AS c, udt_name AS t, character_maximum_length AS n, is_nullable AS nullable
       FROM information_schema.columns WHERE table_name = '_prisma_migrations' ORDER BY ordinal_position`,
    )
    expect(
      rows.map(({ c, t, n, nullable }) => `${c} ${t}${n ? `(${n})` : ''}${nullable === 'NO' ? ' not null' : ''}`),
    ).toEqual([
      'id varchar(36) not null',
      'checksum varchar(64) not null',
      'finished_at timestamptz',
      'migration_name varchar(255) not null',
      'logs text',
      'rolled_back_at timestamptz',
      'started_at timestamptz not null',
      'applied_steps_count int4 not null',
    ])
  })

  it('DB-08: several processes that start at once apply each migration once', async () => {
    write('20260101000000_one', 'CREATE TABLE one ();')
    write('20260102000000_two', 'CREATE TABLE two ();')
    const results = await Promise.all(Array.from({ length: 6 }, () => migrate({ url, dir })))
    expect(results.flatMap((result) => result.applied).sort()).toEqual(['20260101000000_one', '20260102000000_two'])
    expect(await books()).toHaveLength(2)
  })

  it('DB-08: killed in the middle of a migration, nothing of it is there and the next start completes it', async () => {
    write('20260102000000_two', 'CREATE TABLE half (); LOCK TABLE gate; CREATE TABLE whole ();')
    const keeper = await connect()
    await keeper.query('CREATE TABLE gate ()')
    await keeper.query('BEGIN')
    await keeper.query('LOCK TABLE gate')
    const child = spawn(
      process.execPath,
      ['--import', tsx, join(projectDir, 'test/support/migrate-child.ts'), url, dir],
      {
        stdio: 'inherit',
      },
    )
    const gone = new Promise((resolve) => child.once('exit', resolve))
    const waiting = `SELECT pid FROM pg_stat_activity WHERE datname = '${name}' AND wait_event_type = 'Lock'`
    for (let n = 0; (await admin.query(waiting)).rows.length === 0; n++) {
      if (n > 1000) throw new Error('the migration never reached the gate')
      await sleep(10)
    }
    child.kill('SIGKILL')
    await gone
    // Holding the gate: what the killed process has begun cannot go on, and must not hold up the next start for ever.
    const next = migrate({ url, dir })
    for (
      let n = 0;
      n < 1000 && (await admin.query(`${waiting} AND application_name = 'holdfast-migrate'`)).rows.length > 1;
      n++
    ) {
      await sleep(10)
    }
    const seen = await connect()
    expect((await seen.query(`SELECT to_regclass('half') AS half`)).rows).toEqual([{ half: null }])
    await keeper.query('COMMIT')
    expect(await next).toEqual({ applied: ['20260102000000_two'] })
    expect(await tables()).toEqual(['_prisma_migrations', 'gate', 'half', 'whole'])
  })

  it('PROMISE-1510: limits of time that the database gives to statements and transactions do not end a migration', async () => {
    const limits = `SELECT name, setting FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout')`
    const names = (await admin.query<{ name: string }>(limits)).rows.map((row) => row.name)
    for (const limit of names) await admin.query(`ALTER DATABASE ${name} SET ${limit} = '30s'`)
    write('20260101000000_one', `CREATE TABLE one AS ${limits};`)
    expect(await migrate({ url, dir })).toEqual({ applied: ['20260101000000_one'] })
    const { rows } = await (await connect()).query('SELECT * FROM one ORDER BY name')
    expect(rows).toEqual(names.toSorted().map((limit) => ({ name: limit, setting: '0' })))
  })

  it('DB-08: a migration whose SQL fails is undone as a whole, and named', async () => {
    write('20260101000000_one', 'CREATE TABLE one ();')
    write('20260102000000_two', 'CREATE TABLE two (); SELECT 1/0;')
    await expect(migrate({ url, dir })).rejects.toMatchObject({
      code: 'FAILED',
      message: expect.stringMatching(/20260102000000_two.*division by zero/),
    })
    expect(await tables()).toEqual(['_prisma_migrations', 'one'])
    write('20260102000000_two', 'CREATE TABLE two ();')
    expect(await migrate({ url, dir })).toEqual({ applied: ['20260102000000_two'] })
  })

  it('DB-08: a migration that would end the transaction itself is refused, function bodies are not mistaken for that', async () => {
    write('20260101000000_one', 'CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$\nBEGIN\n  RETURN;\nEND;\n$$;')
    write('20260102000000_two', 'CREATE TABLE two ();\nCOMMIT;\nSELECT 1/0;')
    await expect(migrate({ url, dir })).rejects.toMatchObject({ code: 'INVALID' })
    expect(await tables()).toEqual(['_prisma_migrations'])
    expect((await books()).map((row) => row.migration_name)).toEqual(['20260101000000_one'])
  })
})

describe('refusing', () => {
  it('DB-09: a database with a migration that this binary does not know is refused, and nothing is written', async () => {
    write('20260101000000_one', 'CREATE TABLE one ();')
    write('20260102000000_newer', 'CREATE TABLE newer ();')
    await migrate({ url, dir })
    rmSync(join(dir, '20260102000000_newer'), { recursive: true })
    write('20260103000000_pending', 'CREATE TABLE pending ();')
    const before = [await tables(), await books()]
    const refusal = {
      code: 'UNKNOWN',
      message: expect.stringMatching(/newer schema.*20260102000000_newer.*Nothing was written/),
    }
    await expect(migrate({ url, dir })).rejects.toMatchObject(refusal)
    await expect(migrate({ url: await readOnly(), dir })).rejects.toMatchObject(refusal)
    expect([await tables(), await books()]).toEqual(before)
  })

  it('DB-07: a database whose applied migration was edited since is refused, and nothing is written', async () => {
    write('20260101000000_one', 'CREATE TABLE one ();\n')
    await migrate({ url, dir })
    write('20260102000000_two', 'CREATE TABLE two ();\n')
    write('20260101000000_one', 'CREATE TABLE one (n int);\n')
    const refusal = { code: 'EDITED', message: expect.stringMatching(/20260101000000_one was edited.*new migration/) }
    await expect(migrate({ url: await readOnly(), dir })).rejects.toMatchObject(refusal)
    await expect(migrate({ url, dir })).rejects.toMatchObject(refusal)
    expect(await tables()).toEqual(['_prisma_migrations', 'one'])
    // Other line ends are the same migration.
    write('20260101000000_one', 'CREATE TABLE one ();\r\n')
    expect(await migrate({ url, dir })).toEqual({ applied: ['20260102000000_two'] })
  })

  it("DB-08: a migration that Prisma's own tool left unfinished is refused until it is resolved", async () => {
    write('20260101000000_one', 'CREATE TABLE one ();')
    await migrate({ url, dir })
    const client = await connect()
    await client.query('UPDATE _prisma_migrations SET finished_at = NULL')
    await expect(migrate({ url: await readOnly(), dir })).rejects.toMatchObject({ code: 'UNFINISHED' })
    await client.query('UPDATE _prisma_migrations SET rolled_back_at = now(); DROP TABLE one')
    expect(await migrate({ url, dir })).toEqual({ applied: ['20260101000000_one'] })
  })
})

describe('the files', () => {
  const seal = (...args: string[]) =>
    spawnSync(process.execPath, [join(projectDir, 'scripts/seal-migrations.mjs'), ...args], { encoding: 'utf8' })

  it('DB-07: every migration of this repository is sealed and unchanged', () => {
    expect(seal('--check')).toMatchObject({ stderr: '', status: 0 })
  })

  it('DB-07: the check goes red when a sealed migration is edited, removed, or a new one is not sealed', () => {
    cpSync(migrationsDir, dir, { recursive: true })
    rmSync(join(dir, 'checksums.json'), { force: true })
    write('20990101000000_last', 'CREATE TABLE last ();')
    expect(seal(dir, '--check').status).toBe(1)
    expect(seal(dir).status).toBe(0)
    expect(seal(dir, '--check').status).toBe(0)
    write('20990101000000_last', 'CREATE TABLE last (n int);')
    expect(seal(dir, '--check')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('20990101000000_last was edited'),
    })
    expect(seal(dir).status).toBe(1)
    rmSync(join(dir, '20990101000000_last'), { recursive: true })
    expect(seal(dir, '--check').status).toBe(1)
  })
})
