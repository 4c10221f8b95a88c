import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { connect, type Db, type Tx } from '../src/db.ts'
import * as passes from '../src/recovery/passes.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { explain } from './support/explain.ts'

// What a scan costs: rows and pages read in proportion to what is owed, not to the number of sessions (design section 3). The same with a
// million sessions, and in milliseconds: npm run bench:recovery

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 })

const idle = 99_000
let database: TestDatabase
let db: Db
beforeAll(async () => {
  database = await createTestDatabase()
  database.exempt('all', 'written as rows: no log stands behind them')
  db = connect(database.url, 2)
  await db.$executeRaw`
    INSERT INTO "Session" (id, tenant, model, seq, "stepOwed", "createdAt", "updatedAt")
    SELECT 'ses_' || n, 'default', 'demo/echo', 3, n % ${idle / 3} = 0, now(), now() FROM generate_series(1, ${idle}::int) n`
  await db.$executeRaw`
    INSERT INTO "Input" (id, "sessionId", kind, text, "requestedDelivery", delivery, state, "wakePending", "executionRequested", "admittedSeq",
                         "promotedSeq", "createdAt")
    SELECT 'msg_' || n, 'ses_' || n, CASE WHEN n <= 20000 THEN 'CONTINUATION' ELSE 'PROMPT' END, 'hi', 'STEER', 'STEER', 'PROMOTED', false, true, 2, 3, now() FROM generate_series(1, ${idle}::int) n`
  await db.$executeRaw`
    INSERT INTO "Recovery" (id, "sessionId", "executionId", phase, "continuationMessageId", "wakePending", "createdAt")
    SELECT 'rec_' || n, 'ses_' || n, 'exe_' || n, 'READY', 'msg_' || n, false, now() FROM generate_series(1, 20000) n`
  await db.$executeRawUnsafe('VACUUM ANALYZE')
})
afterAll(async () => {
  await db?.$disconnect()
  await database?.drop()
})

const looks: [string, (tx: Tx) => Promise<unknown>][] = [
  ['expired claims', (tx) => passes.expiredClaims(tx, null)],
  ['claims of an owner', (tx) => passes.claimsOf(tx, 'own_.gone', '')],
  ['armed recoveries', (tx) => passes.armedRecoveries(tx, null)],
  ['owed sessions', (tx) => passes.owedSessions(tx, '')],
  ['expired interactions', (tx) => passes.expiredInteractions(tx, null)],
  ['gauges', (tx) => passes.countSetAside(tx)],
]

it(`REC-25: with ${idle} idle sessions and 3 owed ones a scan reads a handful of rows by index`, async () => {
  expect((await passes.owedSessions(db, '')).filter(({ due }) => due)).toHaveLength(3)
  for (const [name, look] of looks) {
    const { nodes, pages } = await explain(db, look)
    for (const node of nodes) {
      const touched = (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops']
      expect(touched, `${name}: ${node['Node Type']} on ${node['Relation Name']}`).toBeLessThan(50)
    }
    // The table of sessions alone has more than a thousand.
    expect(pages, `${name}: pages`).toBeLessThan(60)
  }
})

it('REC-25: with 5 000 owed sessions a page of them costs a page, and the pages together name each once', async () => {
  // Each has two armed prompts; what is owed twice is still one session.
  await db.$executeRaw`
    INSERT INTO "Input" (id, "sessionId", kind, text, "requestedDelivery", delivery, state, "wakePending", "executionRequested", "admittedSeq",
                         "createdAt")
    SELECT 'msg_armed' || n || k, 'ses_' || n, 'PROMPT', 'hi', 'STEER', 'STEER', 'PENDING', true, true, 4 + k, now()
      FROM generate_series(1, 5000) n, generate_series(1, 2) k`
  await db.$executeRawUnsafe('VACUUM ANALYZE')
  const { nodes } = await explain(db, (tx) => passes.owedSessions(tx, ''))
  for (const node of nodes) {
    const touched = (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops']
    expect(touched, `${node['Node Type']} on ${node['Relation Name']}`).toBeLessThan(5 * passes.pageSize)
  }
  const seen: string[] = []
  for (let after = ''; ; after = seen.at(-1)!) {
    const page = await passes.owedSessions(db, after)
    seen.push(...page.map(({ id }) => id))
    if (page.length < passes.pageSize) break
  }
  // The three of above lie beyond the first 5 000.
  expect(seen).toHaveLength(5003)
  expect(new Set(seen).size).toBe(5003)
})
