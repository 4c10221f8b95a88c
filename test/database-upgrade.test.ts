import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, it } from 'vitest'
import { migrate, migrationsDir, readMigrations } from '../src/migrate.ts'
import { resolveQuarantine } from '../src/recovery/quarantine.ts'
import { admitPrompt } from '../src/runner/admit.ts'
import { verifySession } from '../src/verify.ts'
import { approve, guarded, said } from './support/asking.ts'
import { type Beside, beside } from './support/beside.ts'
import { eventually, startCore, type TestCore } from './support/core.ts'
import { inconsistencies } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { type Provider, startProvider } from './support/provider.ts'
import { type RecordedDatabase, tables } from './support/record-database.ts'
import { tenant } from './support/stage.ts'

// The database of every released schema, with sessions in every state, taken through all later migrations.

const fixtures = fileURLToPath(new URL('./fixtures/', import.meta.url))
const names = readdirSync(fixtures).filter((name) => /^schema-\d+\.json$/.test(name))

let database: TestDatabase | undefined
let raw: Beside | undefined
let running: TestCore | undefined
let provider: Provider | undefined
afterEach(async () => {
  await provider?.close()
  await running?.stop()
  await raw?.close()
  await database?.drop()
  database = raw = running = provider = undefined
})

/** An empty database, then as the release left it: its migrations only, and its rows. */
async function restore({ migrations, rows }: RecordedDatabase): Promise<string> {
  database = await createTestDatabase()
  raw = await beside(database.url)
  await raw.query('DROP SCHEMA public CASCADE; CREATE SCHEMA public')
  const dir = mkdtempSync(join(tmpdir(), 'holdfast-release-'))
  for (const name of migrations) cpSync(join(migrationsDir, name), join(dir, name), { recursive: true })
  try {
    expect((await migrate({ url: database.url, dir })).applied).toEqual(migrations)
  } finally {
    rmSync(dir, { recursive: true })
  }
  for (const table of tables)
    await raw.query(`INSERT INTO "${table}" SELECT * FROM jsonb_populate_recordset(NULL::"${table}", $1)`, [
      JSON.stringify(rows[table] ?? []),
    ])
  return database.url
}

describe.each(names)('DB-06: %s', (name) => {
  it(`DB-06: ${name} is upgraded: every row is there, admission, recovery, approvals and quarantine work, the log gives the rows`, async () => {
    const recorded = JSON.parse(readFileSync(join(fixtures, name), 'utf8')) as RecordedDatabase
    const { sessions, rows, migrations } = recorded
    const url = await restore(recorded)
    const later = readMigrations(migrationsDir).filter((each) => !migrations.includes(each.name))
    expect((await migrate({ url })).applied).toEqual(later.map((each) => each.name))

    for (const table of tables) {
      const found = await raw!.query(`SELECT to_jsonb(t) AS row FROM "${table}" t ORDER BY to_jsonb(t)::text`)
      expect(rows[table]!.length, table).toBeGreaterThan(0)
      expect(found, table).toHaveLength(rows[table]!.length)
      for (const row of rows[table]!) expect(found, table).toContainEqual({ row: expect.objectContaining(row) })
    }

    provider = await startProvider()
    // One for each session that has something to ask the model, in whatever order they come.
    provider.script(...Array.from({ length: 5 }, () => said('fine')))
    const { tool, ran } = guarded('deploy')
    running = await startCore({
      url,
      tools: [tool],
      models: { compatible: { baseUrl: provider.baseUrl } },
      // The record is as old as it is.
      config: { livenessGraceMs: 60_000, recoveryMaxAgeMs: 100 * 365 * 86_400_000 },
    })
    const { core, recovery } = running
    for (const id of Object.values(sessions))
      expect(await verifySession(core.db, id), id).toMatchObject({ consistent: true, differences: [] })

    const typesOf = async (id: string) => (await core.eventLog.read(id, 0, 1000)).map(({ type }) => type)
    const report = await recovery.scan()
    expect(report).toMatchObject({ taken: 2, failed: 0 })
    for (const id of [sessions.streaming, sessions.ready, sessions.recovering]) {
      expect(await typesOf(id)).toContain('step.recovered')
      await eventually(`${id} to go on`, async () => (await typesOf(id)).at(-1) === 'execution.settled')
      expect(await core.db.claim.findUnique({ where: { sessionId: id } })).toBeNull()
    }
    expect(await core.db.part.findMany({ where: { sessionId: sessions.streaming }, take: 1 })).toMatchObject([
      { text: 'So far', complete: true },
    ])

    expect(await approve(core, 'req_.waiting1')).toMatchObject({ type: 'InteractionPayload' })
    await eventually('the tool', async () => (await typesOf(sessions.waiting)).at(-1) === 'execution.settled')
    expect(ran).toEqual([{ to: 'production' }])

    const admission = { sessionId: sessions.finished, messageId: 'msg_after-upgrade', text: 'still there?' }
    expect(await admitPrompt(core, tenant, admission)).toMatchObject({ outcome: 'ADMITTED' })
    // An honest retry from before the upgrade.
    const old = { sessionId: sessions.unarmed, messageId: 'msg_unarmed-one', text: 'Hello', resume: false }
    expect(await admitPrompt(core, tenant, old)).toMatchObject({ outcome: 'ALREADY_ADMITTED' })
    await eventually('the answer', async () => (await typesOf(sessions.finished)).at(-1) === 'execution.settled')

    const [entry] = await core.db.quarantine.findMany({ where: { sessionId: sessions.quarantined } })
    await resolveQuarantine(core, tenant, { id: entry!.id, action: 'DISCARD' })
    expect(await typesOf(sessions.quarantined)).toContain('quarantine.resolved')
    expect(await inconsistencies(core.db)).toEqual([])
  })
})

it('DB-06: there is a record of the first schema', () => {
  expect(names).toContain('schema-0001.json')
})
