import { afterAll, beforeAll, expect, it } from 'vitest'
import { connect, type Db } from '../src/db.ts'
import { createDoorbell } from '../src/doorbell.ts'
import { createEventLog, type EventLog } from '../src/event-log.ts'
import { event } from '../src/events.ts'
import { rebuildSession } from '../src/rebuild.ts'
import { verifySession } from '../src/verify.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { randomHistory, tour } from './support/random-history.ts'

let database: TestDatabase
let db: Db
let log: EventLog
let doorbell: ReturnType<typeof createDoorbell>
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url, 4)
  doorbell = createDoorbell({ db, url: null, origin: 'own_.rebuild', pollMs: 10_000 })
  log = createEventLog({ db, doorbell, origin: 'own_.rebuild' })
})
afterAll(async () => {
  await doorbell.close()
  await db.$disconnect()
  await database.drop()
})

/** A session in whose log every event type stands; a claim of it is there too. */
async function everything(sessionId: string): Promise<string> {
  const created = { tenant: 'default', title: 'all', instructions: null, model: 'demo/echo' }
  const first = await log.append({ sessionId, events: [event('session.created', created)] })
  if (first.kind !== 'appended') throw new Error(first.kind)
  const history = randomHistory(sessionId.slice(4))
  for (const [n, op] of tour.entries()) {
    const events = history.choose(op, n * 7 + 6)
    if (events === null) continue
    const outcome = await log.append({ sessionId, events })
    if (outcome.kind !== 'appended') throw new Error(`${op}: ${outcome.kind}`)
    history.appended(outcome.at)
  }
  await db.$executeRaw`
    INSERT INTO "Claim" ("sessionId", "executionId", owner, phase, "startedAt", "expiresAt")
    VALUES (${sessionId}, ${`exe_${sessionId}`}, 'own_.rebuild', 'SAFE', now(), now() + interval '1 hour')`
  return sessionId
}

const tables = ['Quarantine', 'Recovery', 'Interaction', 'ToolCall', 'Part', 'Message', 'Input'] as const

it('LOG-07, REC-16, REC-31: emptied tables come back from the log as they were, and nothing operational is touched', async () => {
  const sessionId = await everything('ses_rebuild-all')
  expect(await verifySession(db, sessionId)).toMatchObject({ consistent: true })
  const count = async () => {
    const counts: Record<string, number> = {}
    for (const table of tables) {
      const rows = await db.$queryRawUnsafe<{ n: number }[]>(`SELECT count(*)::int AS n FROM "${table}"`)
      counts[table] = rows[0]!.n
    }
    return counts
  }
  const before = await count()
  for (const table of tables) expect(before[table], table).toBeGreaterThan(0)
  const claims = await db.claim.findMany()
  for (const table of tables) await db.$executeRawUnsafe(`DELETE FROM "${table}" WHERE "sessionId" = '${sessionId}'`)
  await db.$executeRaw`UPDATE "Session" SET "inputTokens" = 0, title = 'wrong', "stepOwed" = NOT "stepOwed" WHERE id = ${sessionId}`
  let rung = 0
  const deaf = doorbell.listenAll(() => rung++)
  const rebuilt = await rebuildSession(db, sessionId)
  deaf()
  expect(rebuilt?.consistent).toBe(false)
  expect(rebuilt?.differences.length).toBeGreaterThan(tables.length)
  expect(await count()).toEqual(before)
  expect(await db.claim.findMany()).toEqual(claims)
  expect(rung).toBe(0)
  expect(await verifySession(db, sessionId)).toMatchObject({ consistent: true, differences: [] })
  expect(await rebuildSession(db, sessionId)).toMatchObject({ consistent: true })
})

it('LOG-10: an altered cell, a row too many and a row too few are named and mended', async () => {
  const sessionId = await everything('ses_rebuild-few')
  await db.$executeRaw`UPDATE "Message" SET text = 'altered' WHERE "sessionId" = ${sessionId} AND kind = 'USER'`
  await db.$executeRaw`DELETE FROM "Quarantine" WHERE "sessionId" = ${sessionId}`
  await db.$executeRaw`
    INSERT INTO "Message" (id, "sessionId", kind, seq, "createdAt", text) VALUES ('msg_.stray', ${sessionId}, 'SYNTHETIC', 100000, now(), 'stray')`
  const found = await rebuildSession(db, sessionId)
  const said = found!.differences.join('\n')
  expect(said).toMatch(/Message .*\.text/)
  expect(said).toContain('Message msg_.stray: the table has a row that the log does not give')
  expect(said).toMatch(/Quarantine .*: the log gives a row that the table lacks/)
  expect(await verifySession(db, sessionId)).toMatchObject({ consistent: true })
})
