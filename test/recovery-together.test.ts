import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import type { Db, Tx } from '../src/db.ts'
import { continuationIdOf } from '../src/ids.ts'
import type { Core } from '../src/runner/core.ts'
import { beside } from './support/beside.ts'
import { startCore, type TestCore } from './support/core.ts'
import { type CutOff, cutOff, hasClaim, inconsistencies, inStep, phased, prompt, quiet } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'

// A page of claims is taken over in one transaction (src/recovery/takeover-together.ts): each of them by its own fence, and none is held up
// or decided otherwise because of another. Wakes are only counted.

let database: TestDatabase
let running: TestCore
let core: Core
let db: Db
beforeAll(async () => {
  database = await createTestDatabase()
  running = await startCore({ url: database.url, config: { livenessGraceMs: 60_000 } })
  core = running.core
  db = core.db
  quiet(core)
})
beforeEach(() => {
  core.db = db
})
afterAll(async () => {
  await running?.stop()
  await database?.drop()
})

const many = <T>(count: number, make: () => Promise<T>) => Promise.all(Array.from({ length: count }, make))
const recovered = async (cut: CutOff) => (await cut.types()).includes('step.recovered')

/** Counts transactions; runs `before` each time the append of a page is about to be sent. */
function watched(before: () => Promise<void> = async () => {}) {
  const seen = { transactions: 0 }
  const isAppend = (sql: unknown) => String((sql as string[])[0]).includes('holdfast_append')
  const watching = (tx: Tx) =>
    new Proxy(tx, {
      get(target, property) {
        if (property !== '$queryRaw') return Reflect.get(target, property)
        return async (sql: TemplateStringsArray, ...values: unknown[]) => {
          if (isAppend(sql) && seen.transactions === 1) await before()
          return target.$queryRaw(sql, ...values)
        }
      },
    })
  core.db = new Proxy(db, {
    get(target, property) {
      if (property !== '$transaction') return Reflect.get(target, property)
      return (work: (tx: Tx) => Promise<unknown>) => {
        seen.transactions++
        return target.$transaction((tx) => work(watching(tx)))
      }
    },
  })
  return seen
}

it('REC-13: forty claims in different phases are taken over in one transaction, each by an append of its own with its own outcome', async () => {
  const ready = await many(20, () => cutOff(core))
  const unknown = await many(10, () => inStep(core))
  const safe = await many(10, () => cutOff(core))
  for (const cut of safe) await phased(core, cut, [], 'SAFE')
  const seen = watched()
  expect(await running.recovery.scan()).toMatchObject({ taken: 40, failed: 0, quarantined: 0 })
  expect(seen.transactions).toBe(1)
  const ends: [CutOff, string[]][] = [
    ...ready.map((cut): [CutOff, string[]] => [cut, ['step.recovered']]),
    ...unknown.map((cut): [CutOff, string[]] => [cut, ['step.failed', 'step.recovered']]),
    ...safe.map((cut): [CutOff, string[]] => [cut, ['execution.settled']]),
  ]
  const appendIds = new Set<string>()
  for (const [cut, types] of ends) {
    const added = (await cut.events()).slice(-types.length)
    expect(added.map(({ type }) => type)).toEqual(types)
    expect(new Set(added.map(({ appendId }) => appendId)).size).toBe(1)
    appendIds.add(added[0]!.appendId)
    expect(await hasClaim(core, cut.sessionId)).toBe(false)
  }
  expect(appendIds.size).toBe(40)
})

it('REC-11, REC-24: what moves between the look and the append saves itself: a renewed claim, another phase, a new event; the others go on', async () => {
  const others = await many(5, () => cutOff(core))
  const renewed = await cutOff(core)
  const moved = await inStep(core)
  const busy = await cutOff(core)
  let happened = 0
  const seen = watched(async () => {
    await db.$executeRaw`UPDATE "Claim" SET "expiresAt" = now() + interval '1 hour' WHERE "sessionId" = ${renewed.sessionId}`
    await db.$executeRaw`UPDATE "Claim" SET phase = 'CANCELLING' WHERE "sessionId" = ${moved.sessionId}`
    await busy.append([prompt(`msg_busy${busy.sessionId.slice(-12)}`)])
    happened++
  })
  // Looked at once more, alone: the renewed one is let be, CANCELLING is set aside, the busy one is decided anew.
  expect(await running.recovery.scan()).toMatchObject({ taken: 6, quarantined: 1, failed: 0 })
  expect(happened).toBe(1)
  expect(seen.transactions).toBeGreaterThan(3)
  for (const cut of [...others, busy]) expect(await recovered(cut)).toBe(true)
  expect(await recovered(renewed)).toBe(false)
  expect(await hasClaim(core, renewed.sessionId)).toBe(true)
  expect((await moved.types()).slice(-1)).toEqual(['quarantine.opened'])
})

it('REC-20: one that the database refuses makes the page be looked at one by one: it alone is set aside', async () => {
  const good = await many(6, () => inStep(core))
  const bad = await inStep(core)
  // The id of its continuation is taken, in another session.
  const thief = await cutOff(core, { leaseMs: 3_600_000 })
  await thief.append([prompt(continuationIdOf(bad.executionId))])
  const worse = await inStep(core)
  await db.$executeRawUnsafe(
    `ALTER TABLE "Recovery" ADD CONSTRAINT injected CHECK ("sessionId" <> '${worse.sessionId}') NOT VALID`,
  )
  try {
    const seen = watched()
    expect(await running.recovery.scan()).toMatchObject({ taken: 6, quarantined: 2, failed: 0 })
    expect(seen.transactions).toBeGreaterThan(8)
  } finally {
    await db.$executeRawUnsafe('ALTER TABLE "Recovery" DROP CONSTRAINT injected')
  }
  for (const cut of good) expect(await recovered(cut)).toBe(true)
  for (const cut of [bad, worse]) {
    expect((await cut.types()).slice(-1)).toEqual(['quarantine.opened'])
    expect(await hasClaim(core, cut.sessionId)).toBe(true)
  }
})

it('REC-20: one whose session somebody holds locked keeps no other waiting', async () => {
  const good = await many(6, () => inStep(core))
  const held = await inStep(core)
  const holder = await beside(database.url)
  try {
    await holder.lock(held.sessionId)
    const scan = running.recovery.scan()
    await holder.blocked()
    for (const cut of good) expect(await recovered(cut)).toBe(true)
    expect(await recovered(held)).toBe(false)
    await holder.query('COMMIT')
    expect(await scan).toMatchObject({ taken: 7, failed: 0 })
    expect(await recovered(held)).toBe(true)
  } finally {
    await holder.close()
  }
})

it('all of it is what the logs say', async () => {
  expect(await inconsistencies(db)).toEqual([])
})
