// The pages that a scan reads: each holds what owes something, once, whatever stands in the way in another session.
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Tx } from '../src/db.ts'
import { event } from '../src/events.ts'
import { newInteractionId, newQuarantineId } from '../src/ids.ts'
import * as passes from '../src/recovery/passes.ts'
import { takeOver } from '../src/recovery/takeover.ts'
import type { Core } from '../src/runner/core.ts'
import { startCore, type TestCore } from './support/core.ts'
import { askedFor, type CutOff, calledTool, cutOff, inStep, quiet } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'

let database: TestDatabase
let running: TestCore
let core: Core
beforeAll(async () => {
  database = await createTestDatabase()
  running = await startCore({ url: database.url, config: { livenessGraceMs: 60_000 } })
  core = running.core
  quiet(core)
})
afterAll(async () => {
  await running?.stop()
  await database?.drop()
})

const alive = { leaseMs: 600_000 }
const past = () => new Date(Date.now() - 60_000).toISOString()

async function ask(cut: CutOff & { messageId: string }, expiresAt: string | null): Promise<string> {
  const { messageId } = cut
  const interactionId = newInteractionId()
  await cut.append([...calledTool(messageId, 'call_q'), askedFor(messageId, 'call_q', interactionId, expiresAt)])
  return interactionId
}

/** Recovered: its continuation waits, and so does the session. */
async function recovered(): Promise<CutOff> {
  const cut = await cutOff(core)
  expect(await takeOver(core, cut.sessionId, cut.executionId, { kind: 'expired' })).toBe('recovered')
  return cut
}

async function asksTooLong(): Promise<CutOff> {
  const cut = await inStep(core, alive)
  await ask(cut, past())
  return cut
}

type Row = { sessionId: string }
interface Pass<T extends Row> {
  /** A session that the page has to hold. */
  make(): Promise<CutOff>
  page(db: Tx, after: T | null): Promise<T[]>
}
const pass = <T extends Row>(name: string, make: Pass<T>['make'], page: Pass<T>['page']) =>
  [name, { make, page } as unknown as Pass<Row>] as const

const all = [
  pass('expired claims', () => cutOff(core), passes.expiredClaims),
  pass<passes.ClaimKey>(
    'claims of an owner',
    () => cutOff(core, { ...alive, owner: 'own_.dead' }),
    (db, after) => passes.claimsOf(db, 'own_.dead', after?.sessionId ?? ''),
  ),
  pass('armed recoveries', recovered, passes.armedRecoveries),
  pass('owed sessions', recovered, async (db, after) =>
    (await passes.owedSessions(db, after?.sessionId ?? ''))
      .filter(({ due }) => due)
      .map(({ id }) => ({ sessionId: id })),
  ),
  pass('questions that expire', asksTooLong, passes.expiredInteractions),
]

describe('PROMISE-28: what a scan looks for', () => {
  it.each(all)(
    'PROMISE-282: %s: a page begins behind the row at which the one before it was cut',
    async (_name, of) => {
      const made = [await of.make(), await of.make(), await of.make()].map(({ sessionId }) => sessionId)
      const whole = await of.page(core.db, null)
      expect(whole.map(({ sessionId }) => sessionId)).toEqual(expect.arrayContaining(made))
      for (const [n, row] of whole.entries())
        expect(await of.page(core.db, row), `behind row ${n}`).toEqual(whole.slice(n + 1))
    },
  )

  it.each(all)(
    'PROMISE-283: %s: a session that is set aside, claimed, asked or cleaned up hides no other',
    async (_name, of) => {
      const { sessionId } = await of.make()
      const stands = await inStep(core, alive)
      await ask(stands, null)
      const { executionId } = stands
      const quarantine = { executionId, reason: 'odd' } as const
      for (const quarantineKind of ['EXECUTION', 'RECOVERY'] as const)
        await stands.append([
          event('quarantine.opened', { quarantineId: newQuarantineId(), quarantineKind, ...quarantine }),
        ])
      await core.db.claim.update({ where: { sessionId: stands.sessionId }, data: { phase: 'CANCELLING' } })
      const found = (await of.page(core.db, null)).map((row) => row.sessionId)
      expect(found).toContain(sessionId)
      expect(found).not.toContain(stands.sessionId)
    },
  )

  it('PROMISE-287: a session that waits for nobody any more is due, whatever it has asked before', async () => {
    const cut = await inStep(core)
    const { sessionId } = cut
    const interactionId = await ask(cut, null)
    const answer = { answer: null, feedback: null, editedInput: null, remember: false }
    await cut.append([event('interaction.settled', { interactionId, state: 'CANCELLED', ...answer })])
    expect(await takeOver(core, sessionId, cut.executionId, { kind: 'expired' })).toBe('recovered')
    expect(await passes.owedSessions(core.db, '')).toContainEqual({ id: sessionId, due: true })
  })
})
