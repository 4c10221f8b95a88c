import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { connect, type Db, type Tx } from '../src/db.ts'
import * as passes from '../src/recovery/passes.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'

// What a scan costs: rows read in proportion to what is owed, not to the number of sessions (design section 3).

vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 })

const idle = 99_000
let database: TestDatabase
let db: Db
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url, 2)
  await db.$executeRaw`
    INSERT INTO "Session" (id, tenant, model, seq, "stepOwed", "createdAt", "updatedAt")
    SELECT 'ses_' || n, 'default', 'demo/echo', 3, n % ${idle / 3} = 0, now(), now() FROM generate_series(1, ${idle}::int) n`
  await db.$executeRaw`
    INSERT INTO "Input" (id, "sessionId", kind, text, "requestedDelivery", delivery, state, "wakePending", "executionRequested", "admittedSeq",
                         "promotedSeq", "createdAt")
    SELECT 'msg_' || n, 'ses_' || n, 'PROMPT', 'hi', 'STEER', 'STEER', 'PROMOTED', false, true, 2, 3, now() FROM generate_series(1, ${idle}::int) n`
  await db.$executeRaw`
    INSERT INTO "Recovery" (id, "sessionId", "executionId", phase, "continuationMessageId", "wakePending", "createdAt")
    SELECT 'rec_' || n, 'ses_' || n, 'exe_' || n, 'READY', 'msg_' || n, false, now() FROM generate_series(1, 20000) n`
  await db.$executeRawUnsafe('VACUUM ANALYZE')
})
afterAll(async () => {
  await db?.$disconnect()
  await database?.drop()
})

interface Plan {
  'Node Type': string
  'Relation Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  Plans?: Plan[]
}

/** Runs a pass under EXPLAIN and returns every node of its plan. */
async function planOf(run: (tx: Tx) => Promise<unknown>): Promise<Plan[]> {
  const nodes: Plan[] = []
  const explaining = {
    async $queryRaw(sql: TemplateStringsArray, ...values: unknown[]) {
      const text = sql.reduce((before, part, n) => `${before}$${n}${part}`)
      const rows = await db.$queryRawUnsafe<{ 'QUERY PLAN': { Plan: Plan }[] }[]>(
        `EXPLAIN (ANALYZE, FORMAT JSON) ${text}`,
        ...values,
      )
      const walk = (node: Plan) => {
        nodes.push(node)
        node.Plans?.forEach(walk)
      }
      walk(rows[0]!['QUERY PLAN'][0]!.Plan)
      return []
    },
  }
  await run(explaining as unknown as Tx)
  return nodes
}

const looks: [string, (tx: Tx) => Promise<unknown>][] = [
  ['expired claims', (tx) => passes.expiredClaims(tx, null)],
  ['claims of an owner', (tx) => passes.claimsOf(tx, 'own_.gone', '')],
  ['armed recoveries', (tx) => passes.armedRecoveries(tx, null)],
  ['owed sessions', (tx) => passes.owedSessions(tx, '')],
  ['expired interactions', (tx) => passes.expiredInteractions(tx, null)],
]

it(`REC-25: with ${idle} idle sessions and 3 owed ones a scan reads a handful of rows by index`, async () => {
  expect((await passes.owedSessions(db, '')).length).toBe(3)
  for (const [name, look] of looks) {
    const nodes = await planOf(look)
    expect(nodes.length, name).toBeGreaterThan(0)
    for (const node of nodes) {
      const touched = (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops']
      expect(touched, `${name}: ${node['Node Type']} on ${node['Relation Name']}`).toBeLessThan(50)
    }
  }
})
