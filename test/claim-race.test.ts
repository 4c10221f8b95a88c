import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { event } from '../src/events.ts'
import { interruptSession } from '../src/runner/interrupt.ts'
import { beside } from './support/beside.ts'
import { startCore, type TestCore } from './support/core.ts'
import { type CutOff, cutOff, inconsistencies, inStep, phased, quiet, startTool } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'

// A renewal that began while the lease still ran, and commits after it ran out. Whoever takes the claim over has seen it expired, waits for
// its row, and finds another one: it has to let the owner be.

let database: TestDatabase
let running: TestCore
beforeAll(async () => {
  database = await createTestDatabase()
  running = await startCore({ url: database.url, config: { livenessGraceMs: 60_000 } })
  quiet(running.core)
})
afterAll(async () => {
  await running?.stop()
  await database?.drop()
})

/** Runs `work` while the renewal of these claims is under way, which commits once `work` waits for it. */
async function whileRenewed<T>(cuts: readonly CutOff[], work: () => Promise<T>): Promise<T> {
  const owner = await beside(database.url)
  try {
    await owner.query('BEGIN')
    await owner.query(
      `UPDATE "Claim" SET "expiresAt" = now() + interval '1 hour' WHERE "sessionId" = ANY ($1) AND "expiresAt" < now()`,
      [cuts.map(({ sessionId }) => sessionId)],
    )
    const done = work()
    await owner.blocked()
    await owner.query('COMMIT')
    return await done
  } finally {
    await owner.close()
  }
}

/** Its owner goes on as if nothing had been. */
async function expectUntouched(cut: CutOff, seen: number) {
  expect(await cut.types(seen)).toEqual([])
  const claim = await running.core.db.claim.findUnique({ where: { sessionId: cut.sessionId } })
  expect(claim).toMatchObject({ executionId: cut.executionId, owner: 'own_.gone' })
  expect(claim!.expiresAt.getTime()).toBeGreaterThan(Date.now())
  expect(await running.core.db.quarantine.count({ where: { sessionId: cut.sessionId } })).toBe(0)
}

describe('CLAIM-17: a renewal that commits under a takeover', () => {
  it('CLAIM-17: of one claim: the scan lets it be, sets nothing aside and reports no failure', async () => {
    const cut = await inStep(running.core)
    const seen = (await cut.events()).length
    expect(await whileRenewed([cut], () => running.recovery.scan())).toMatchObject({
      taken: 0,
      quarantined: 0,
      failed: 0,
    })
    await expectUntouched(cut, seen)
  })

  it('CLAIM-17: of one among many: the others are taken over', async () => {
    const cut = await inStep(running.core)
    const others = await Promise.all(Array.from({ length: 5 }, () => cutOff(running.core)))
    const seen = (await cut.events()).length
    expect(await whileRenewed([cut], () => running.recovery.scan())).toMatchObject({
      taken: 5,
      quarantined: 0,
      failed: 0,
    })
    await expectUntouched(cut, seen)
    for (const each of others) expect(await each.types(3)).toEqual(['step.recovered'])
  })

  it('CLAIM-17: of one whose cleanup is under way: it is not set aside', async () => {
    const cut = await inStep(running.core)
    const asked = event('interrupt.requested', { interruptedExecutionId: cut.executionId })
    await phased(running.core, cut, [...startTool(cut.messageId, 'c1'), asked], 'CANCELLING')
    const seen = (await cut.events()).length
    expect(await whileRenewed([cut], () => running.recovery.scan())).toMatchObject({
      taken: 0,
      quarantined: 0,
      failed: 0,
    })
    await expectUntouched(cut, seen)
  })

  it('CLAIM-17, INT-15: an interrupt that took its owner for gone asks it to stop instead', async () => {
    const cut = await inStep(running.core)
    const seen = (await cut.events()).length
    const asked = whileRenewed([cut], async () => {
      const answer = interruptSession(running.core, 'default', { sessionId: cut.sessionId })
      answer.catch(() => {})
      return { answer }
    })
    const { answer } = await asked
    await expect.poll(async () => (await cut.types(seen)).length, { timeout: 20_000 }).toBe(1)
    expect(await cut.types(seen)).toEqual(['interrupt.requested'])
    const claim = await running.core.db.claim.findUnique({ where: { sessionId: cut.sessionId } })
    expect(claim).toMatchObject({ phase: 'CANCELLING', owner: 'own_.gone' })
    // Its owner ends it; then the answer comes.
    await running.core.db.claim.update({ where: { sessionId: cut.sessionId }, data: { expiresAt: new Date(0) } })
    expect(await answer).toMatchObject({ type: 'InterruptSessionPayload', interrupted: true })
  })

  it('all of it is what the logs say', async () => {
    expect(await inconsistencies(running.core.db)).toEqual([])
  })
})
