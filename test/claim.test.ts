import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Renewed, renewClaims } from '../src/claim.ts'
import type { ClaimMove } from '../src/event-log.ts'
import { type ExecutionPhase, event, type NewEvent } from '../src/events.ts'
import { newExecutionId, newMessageId } from '../src/ids.ts'
import type { Core } from '../src/runner/core.ts'
import { type Beside, beside } from './support/beside.ts'
import { startCore, type TestCore } from './support/core.ts'
import { type CutOff, cutOff, inconsistencies, prompt, quiet } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { statementsDuring } from './support/statements.ts'

// The claim and its fence at the door (design sections 1, 3 and 9). Appends are made by hand; nothing runs.

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

const claimOf = (sessionId: string) => core.db.claim.findUnique({ where: { sessionId } })

const bySession = (a: CutOff, b: CutOff) => (a.sessionId < b.sessionId ? -1 : 1)

/** Locks a claim's row as a renewal does, unless another transaction has; whether it did. */
const lockClaim = async ({ query }: Beside, { sessionId }: CutOff) =>
  (await query('SELECT 1 FROM "Claim" WHERE "sessionId" = $1 FOR NO KEY UPDATE SKIP LOCKED', [sessionId])).length === 1

const acquire = (sessionId: string, owner: string, leaseMs = 30_000) => {
  const executionId = newExecutionId()
  return core.eventLog.append({
    sessionId,
    events: [event('execution.started', { executionId })],
    claim: { kind: 'acquire', executionId, owner, leaseMs },
  })
}

/** An append by the claim's owner, fenced as the runner fences. */
const own = (
  { sessionId, executionId }: { sessionId: string; executionId: string },
  owner: string,
  phases: ExecutionPhase[],
  claim?: ClaimMove,
  events: NewEvent[] = [event('synthetic.appended', { messageId: newMessageId(), text: 'x', hidden: true })],
) => core.eventLog.append({ sessionId, events, fence: { executionId, owner, phases }, ...(claim && { claim }) })

it('CLAIM-01: acquiring gives one row with phase READY and a lease by the database clock, and arms what is pending, in one commit', async () => {
  const cut = await cutOff(core)
  await core.db.claim.delete({ where: { sessionId: cut.sessionId } })
  await cut.append([event('execution.settled', { executionId: cut.executionId, outcome: 'CLEARED', retryAt: null })])
  const id = newMessageId()
  await cut.append([prompt(id, false)])
  await database.shiftClock(3_600_000)
  try {
    const outcome = await acquire(cut.sessionId, 'own_.one')
    expect(outcome.kind).toBe('appended')
    const claim = (await claimOf(cut.sessionId))!
    expect(claim).toMatchObject({ owner: 'own_.one', phase: 'READY', messageId: null })
    expect(claim.expiresAt.getTime() - claim.startedAt.getTime()).toBe(30_000)
    expect(claim.startedAt.getTime()).toBeGreaterThan(Date.now() + 3_500_000)
  } finally {
    await database.shiftClock(0)
  }
  expect(await core.db.input.findUnique({ where: { id } })).toMatchObject({ wakePending: true })
})

it('CLAIM-02, CLAIM-03: ordinary acquisition replaces no claim, live or expired; the row is unchanged', async () => {
  for (const leaseMs of [30_000, -1000]) {
    const cut = await cutOff(core, { leaseMs })
    const before = await claimOf(cut.sessionId)
    expect(await acquire(cut.sessionId, 'own_.second')).toEqual({ kind: 'claimed' })
    expect(await claimOf(cut.sessionId)).toEqual(before)
    expect(await cut.types(3)).toEqual([])
  }
})

it('CLAIM-04: the database refuses a second claim of a session', async () => {
  const { sessionId } = await cutOff(core)
  const second = {
    sessionId,
    executionId: newExecutionId(),
    owner: 'own_.x',
    phase: 'READY',
    startedAt: new Date(),
    expiresAt: new Date(),
  }
  await expect(core.db.claim.create({ data: second })).rejects.toThrow(/[Uu]nique/)
})

it('CLAIM-05, CLAIM-06, CLAIM-21: a renewal of 500 claims is one statement; expired and foreign claims are not renewed, and the session does not move', async () => {
  // In a database of its own: the last test of this file reads every session of the other one.
  const alone = await createTestDatabase()
  const { core, stop } = await startCore({ url: alone.url, config: { livenessGraceMs: 60_000 } })
  quiet(core)
  try {
    const mine = await Promise.all(
      Array.from({ length: 500 }, () => cutOff(core, { owner: 'own_.renewing', leaseMs: 60_000 })),
    )
    const expired = await cutOff(core, { owner: 'own_.renewing', leaseMs: -1 })
    const foreign = await cutOff(core, { owner: 'own_.foreign', leaseMs: 60_000 })
    const all = [...mine, expired, foreign]
    const sessions = () => core.db.session.findMany({ orderBy: { id: 'asc' }, select: { seq: true, updatedAt: true } })
    const before = await sessions()
    expect(before).toHaveLength(502)
    let renewed: Renewed[] = []
    const statements = await statementsDuring(new URL(alone.url).pathname.slice(1), async () => {
      const ids = all.map(({ executionId }) => executionId)
      renewed = await renewClaims(core.db, 'own_.renewing', ids, 600_000)
    })
    expect(statements.filter((sql) => /holdfast_renew|"Claim"/.test(sql))).toHaveLength(1)
    expect(new Set(renewed.map(({ executionId }) => executionId))).toEqual(
      new Set(mine.map(({ executionId }) => executionId)),
    )
    const later = Date.now() + 500_000
    const claims = await core.db.claim.findMany()
    const after = new Map(claims.map(({ sessionId, expiresAt }) => [sessionId, expiresAt.getTime()]))
    for (const { sessionId } of mine) expect(after.get(sessionId)).toBeGreaterThan(later)
    for (const { sessionId } of [expired, foreign]) expect(after.get(sessionId)).toBeLessThan(later)
    expect(await sessions()).toEqual(before)
  } finally {
    await stop()
    await alone.drop()
  }
})

it('CLAIM-05: a renewal locks the claims in the order of their sessions, whatever order they are named in', async () => {
  const made = await Promise.all([1, 2, 3].map(() => cutOff(core, { owner: 'own_.ordered', leaseMs: 30_000 })))
  const [a, b, c] = made.toSorted(bySession) as [CutOff, CutOff, CutOff]
  // The table and each index that finds them have them the other way round, so that none of these orders passes for the sessions'.
  const ids = made.map(({ executionId }) => executionId).toSorted()
  const where = { sessionId: { in: made.map(({ sessionId }) => sessionId) } }
  const rows = await core.db.claim.findMany({ where, orderBy: { sessionId: 'desc' } })
  await core.db.claim.deleteMany({ where })
  for (const [n, row] of rows.entries()) await core.db.claim.create({ data: { ...row, executionId: ids[n]! } })
  const outside = await beside(database.url)
  try {
    await outside.query('BEGIN')
    expect(await lockClaim(outside, b)).toBe(true)
    const called = renewClaims(core.db, 'own_.ordered', ids, 60_000)
    await outside.blocked()
    // It waits at b: what comes before is locked, what comes after is not.
    const lockable = async (cut: CutOff) => {
      const other = await beside(database.url)
      await other.query('BEGIN')
      const got = await lockClaim(other, cut)
      await other.close()
      return got
    }
    expect([await lockable(a), await lockable(c)]).toEqual([false, true])
    await outside.query('COMMIT')
    expect(await called).toHaveLength(3)
  } finally {
    await outside.close()
  }
})

it('CLAIM-10, CLAIM-12: an append is refused for another session, execution, owner, phase, or after the lease', async () => {
  const cut = await cutOff(core, { owner: 'own_.me', leaseMs: 30_000 })
  const other = await cutOff(core, { owner: 'own_.me', leaseMs: 30_000 })
  const refused = { kind: 'fenced' }
  expect(await own({ ...cut, sessionId: other.sessionId }, 'own_.me', ['READY'])).toEqual(refused)
  expect(await own({ ...cut, executionId: newExecutionId() }, 'own_.me', ['READY'])).toEqual(refused)
  expect(await own(cut, 'own_.you', ['READY'])).toEqual(refused)
  expect(await own(cut, 'own_.me', ['UNKNOWN', 'SAFE'])).toEqual(refused)
  await database.shiftClock(31_000)
  expect(await own(cut, 'own_.me', ['READY'])).toEqual(refused)
  await database.shiftClock(0)
  expect(await cut.types(3)).toEqual([])
  expect(await own(cut, 'own_.me', ['READY'])).toMatchObject({ kind: 'appended' })
})

it('CLAIM-25: a claim move from another phase than expected refuses the whole append, events included', async () => {
  const cut = await cutOff(core, { owner: 'own_.me', leaseMs: 30_000 })
  expect(await own(cut, 'own_.me', ['UNKNOWN'], { kind: 'move', to: 'SAFE' })).toEqual({ kind: 'fenced' })
  expect(await cut.types(3)).toEqual([])
  expect(await claimOf(cut.sessionId)).toMatchObject({ phase: 'READY' })
})

it('CLAIM-26: under CANCELLING the owner can append nothing, write no chunk and move nowhere, but for the one cleanup', async () => {
  const cut = await cutOff(core, { owner: core.owner, leaseMs: 30_000 })
  const { sessionId, executionId } = cut
  const messageId = newMessageId()
  await cut.append([
    event('step.started', { messageId, model: 'm', executionId }),
    event('text.started', { messageId, index: 0 }),
    event('interrupt.requested', { interruptedExecutionId: executionId }),
  ])
  await core.db.claim.update({ where: { sessionId }, data: { phase: 'CANCELLING' } })
  const all: ExecutionPhase[] = ['READY', 'UNKNOWN', 'SAFE', 'CONTINUE']
  expect(await own(cut, core.owner, all)).toEqual({ kind: 'fenced' })
  expect(await own(cut, core.owner, all, { kind: 'move', to: 'SAFE' })).toEqual({ kind: 'fenced' })
  expect(await own(cut, core.owner, all, { kind: 'remove' })).toEqual({ kind: 'fenced' })
  core.live.begin({ sessionId, messageId, index: 0, kind: 'TEXT', callId: null }, executionId)
  core.live.add(sessionId, messageId, 0, 'late')
  await core.live.flush()
  await core.live.drop(sessionId)
  expect(await core.db.chunk.count({ where: { sessionId } })).toBe(0)
  const cleanup = [
    event('text.ended', { messageId, index: 0, text: '' }),
    event('step.interrupted', {
      messageId,
      error: { code: 'ABORTED', message: 'interrupted' },
      usage: { inputTokens: 0, outputTokens: 0, reasoningTokens: 0, cachedInputTokens: 0 },
    }),
    event('execution.settled', { executionId, outcome: 'INTERRUPTED', retryAt: null }),
  ]
  expect(await own(cut, core.owner, ['CANCELLING'], { kind: 'remove' }, cleanup)).toMatchObject({ kind: 'appended' })
  expect(await claimOf(sessionId)).toBeNull()
})

it('every session of this file is consistent with its log', async () => {
  expect(await inconsistencies(core.db)).toEqual([])
})
