// What recovery looks at before it takes something over, each look alone (design section 9). Nothing runs: wakes are only counted.
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { appendIn } from '../src/event-log.ts'
import { event, noUsage } from '../src/events.ts'
import { continuationIdOf, newExecutionId, newOwnerId, recoveryIdOf } from '../src/ids.ts'
import { createLog } from '../src/log.ts'
import { readEvidence } from '../src/recovery/evidence.ts'
import { handOver } from '../src/recovery/hand-over.ts'
import { createLiveness } from '../src/recovery/liveness.ts'
import { expiredClaims } from '../src/recovery/passes.ts'
import { resolveQuarantine } from '../src/recovery/quarantine.ts'
import { resolve } from '../src/recovery/resolution.ts'
import { recoveryFault } from '../src/recovery/settle-rows.ts'
import { type Right, removeClaim, requestOf, setAside, takeOver } from '../src/recovery/takeover.ts'
import type { Core } from '../src/runner/core.ts'
import { createHold } from '../src/runner/hold.ts'
import { lockable } from './support/beside.ts'
import { startCore, type TestCore } from './support/core.ts'
import { type CutOff, cutOff, hasClaim, inconsistencies, inStep, quiet } from './support/cut-off.ts'
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

const expired: Right = { kind: 'expired' }
/** Nothing was taken: the claim and the log are as they were. */
async function untouched(cut: CutOff, seq: number) {
  expect(await cut.types(seq)).toEqual([])
  expect(await hasClaim(core, cut.sessionId)).toBe(true)
}

describe('a takeover leaves alone', () => {
  it('CLAIM-12: another execution of the session than the one it came for', async () => {
    const cut = await cutOff(core)
    expect(await takeOver(core, cut.sessionId, newExecutionId(), expired)).toBe('gone')
    await untouched(cut, 3)
  })

  it('REC-20: what was set aside', async () => {
    const cut = await cutOff(core)
    const { sessionId, executionId } = cut
    expect(await setAside(core, { sessionId, executionId, kind: 'EXECUTION', right: expired, reason: 'odd' })).toBe(
      true,
    )
    expect(await takeOver(core, sessionId, executionId, expired)).toBe('gone')
    await untouched(cut, 4)
  })

  it('CLAIM-13: a claim that lives again by a clock that was set back between the look and the append', async () => {
    const cut = await cutOff(core)
    const evidence = (await readEvidence(core.db, cut.sessionId))!
    const decision = resolve(evidence)
    if (decision.kind === 'Remove') throw new Error('unreachable')
    const { request } = requestOf(core, cut.sessionId, evidence, decision, expired)
    await database.shiftClock(-60_000)
    try {
      expect(await core.db.$transaction((tx) => appendIn(tx, request))).toEqual({ kind: 'fenced' })
    } finally {
      await database.shiftClock(0)
    }
    await untouched(cut, 3)
  })

  it('CLAIM-28: an owner whose lock this process does not hold any more', async () => {
    const cut = await cutOff(core, { leaseMs: 30_000 })
    const right: Right = { kind: 'dead', isStill: () => false }
    expect(await takeOver(core, cut.sessionId, cut.executionId, right)).toBe('gone')
    await untouched(cut, 3)
  })
})

describe('the claim of an ended execution', () => {
  it('REC-08: is removed only as it was seen: execution, owner, phase, expiry, and with its lease run out', async () => {
    const cut = await cutOff(core)
    const { sessionId } = cut
    const evidence = (await readEvidence(core.db, sessionId))!
    const remove = (seen = evidence) => core.db.$transaction((tx) => removeClaim(tx, sessionId, seen, expired))
    const as = (data: object) => core.db.claim.update({ where: { sessionId }, data })
    const before = await core.db.claim.findUniqueOrThrow({ where: { sessionId } })
    for (const change of [
      { executionId: newExecutionId() },
      { owner: 'own_.another' },
      { phase: 'SAFE' },
      { expiresAt: new Date(before.expiresAt.getTime() - 1000) },
    ]) {
      await as(change)
      expect(await remove(), JSON.stringify(change)).toBe(false)
      expect(await hasClaim(core, sessionId)).toBe(true)
      await as(before)
    }
    await as({ expiresAt: new Date(Date.now() + 600_000) })
    expect(await remove((await readEvidence(core.db, sessionId))!)).toBe(false)
    await as(before)
    expect(await remove()).toBe(true)
    await cut.append([event('execution.settled', { executionId: cut.executionId, outcome: 'CLEARED', retryAt: null })])
  })

  it('PROMISE-284: is removed while its session is locked, which keeps its order among all changes of claims, and no other is', async () => {
    const [cut, other] = [await cutOff(core), await cutOff(core)]
    const { sessionId, executionId } = cut
    const evidence = (await readEvidence(core.db, sessionId))!
    const free = (id: string) => lockable(database.url, 'session', id)
    await core.db.$transaction(async (tx) => {
      expect(await removeClaim(tx, sessionId, evidence, expired)).toBe(true)
      expect([await free(sessionId), await free(other.sessionId)]).toEqual([false, true])
    })
    await cut.append([event('execution.settled', { executionId, outcome: 'CLEARED', retryAt: null })])
  })
})

it('PROMISE-285: an execution whose step failed for good owes nothing, whatever its phase says', async () => {
  const cut = await inStep(core)
  const { sessionId, messageId } = cut
  const error = { code: 'PROVIDER_INVALID', message: 'no' } as const
  await cut.append([event('step.failed', { messageId, error, usage: noUsage, continues: false })])
  const evidence = (await readEvidence(core.db, sessionId))!
  for (const phase of ['READY', 'UNKNOWN', 'SAFE', 'CONTINUE', 'CANCELLED'])
    expect(resolve(evidence, phase), phase).toEqual({ kind: 'Clear', step: null })
})

describe('setting aside', () => {
  it('REC-42: nothing is set aside twice, nor for an execution that has no claim any more', async () => {
    const cut = await cutOff(core)
    const { sessionId, executionId } = cut
    const aside = (id: string) =>
      setAside(core, { sessionId, executionId: id, kind: 'EXECUTION', right: expired, reason: 'odd' })
    expect(await aside(newExecutionId())).toBe(false)
    expect([await aside(executionId), await aside(executionId)]).toEqual([true, false])
    expect(await cut.types(3)).toEqual(['quarantine.opened'])
  })

  it('REC-42: nor what is alive after all: its lease was renewed, or its owner is back, since somebody failed to decide on it', async () => {
    const cut = await cutOff(core)
    const { sessionId, executionId } = cut
    const aside = (right: Right) => setAside(core, { sessionId, executionId, kind: 'EXECUTION', right, reason: 'odd' })
    const renew = (ms: number) =>
      core.db.claim.update({ where: { sessionId }, data: { expiresAt: new Date(Date.now() + ms) } })
    await renew(600_000)
    expect(await aside(expired)).toBe(false)
    expect(await aside({ kind: 'dead', isStill: () => false })).toBe(false)
    await untouched(cut, 3)
    await renew(-1000)
    expect(await aside(expired)).toBe(true)
  })

  it('REC-45: a resolution whose session moved while it was written is decided again', async () => {
    const cut = await inStep(core)
    const { sessionId, executionId } = cut
    await setAside(core, { sessionId, executionId, kind: 'EXECUTION', right: expired, reason: 'odd' })
    const { id } = await core.db.quarantine.findFirstOrThrow({ where: { sessionId } })
    let appends = 0
    const moved = event('session.updated', { title: 'x', instructions: null, model: 'demo/echo', archived: false })
    const db = new Proxy(core.db, {
      get(target, property) {
        if (property !== '$transaction') return Reflect.get(target, property)
        return (work: (tx: object) => unknown) =>
          target.$transaction((tx) => {
            const racing = new Proxy(tx, {
              get(inner, name) {
                if (name !== '$queryRaw') return Reflect.get(inner, name)
                return async (...sql: Parameters<typeof inner.$queryRaw>) => {
                  const isAppend = (sql[0] as TemplateStringsArray).join('').includes('holdfast_append')
                  if (isAppend && ++appends === 1) await cut.append([moved])
                  return inner.$queryRaw(...sql)
                }
              },
            })
            return work(racing) as Promise<unknown>
          })
      },
    })
    const resolved = await resolveQuarantine({ ...core, db } as Core, 'default', { id, action: 'DISCARD' })
    expect(resolved).toMatchObject({ type: 'ResolveQuarantinePayload' })
    expect(appends).toBe(2)
    expect((await cut.types()).filter((type) => type === 'quarantine.resolved')).toHaveLength(1)
  })
})

it('REC-41: a leaving owner hands over neither what is being cancelled nor what is not its own any more', async () => {
  const leaving = await startCore({ url: database.url, config: { livenessGraceMs: 60_000 } })
  try {
    for (const end of ['cancelled', 'lost'] as const) {
      const cut = await cutOff(core, { owner: leaving.core.owner, leaseMs: 30_000 })
      const hold = createHold(cut.sessionId, cut.executionId, leaving.core.owner)
      hold.end(end)
      await handOver(leaving.core, [hold])
      await untouched(cut, 3)
    }
  } finally {
    await leaving.stop()
  }
})

it('CLAIM-23: a process that has no proof of its lock for three quarters of the grace does not believe in it', async () => {
  let time = 0
  const log = createLog('silent')
  const liveness = createLiveness({ url: database.url, owner: newOwnerId(), graceMs: 60_000, log, now: () => time })
  try {
    await liveness.whenHeld()
    time = 45_000
    expect(liveness.isHeld()).toBe(true)
    time = 45_001
    expect(liveness.isHeld()).toBe(false)
  } finally {
    await liveness.close()
  }
})

it('REC-24: the page of expired claims holds none that lives', async () => {
  const dead = await cutOff(core)
  const lives = await cutOff(core, { leaseMs: 30_000 })
  const found = (await expiredClaims(core.db, null)).map(({ sessionId }) => sessionId)
  expect(found).toContain(dead.sessionId)
  expect(found).not.toContain(lives.sessionId)
})

it('REC-19: a recovery row is followed only if it and its continuation follow from its execution', () => {
  const executionId = newExecutionId()
  const row = {
    id: recoveryIdOf(executionId),
    sessionId: 'ses_x',
    executionId,
    continuationMessageId: continuationIdOf(executionId),
    inputKind: 'CONTINUATION',
    inputState: 'PENDING',
    claimed: false,
  }
  expect(recoveryFault(row)).toBeNull()
  const other = newExecutionId()
  expect(recoveryFault({ ...row, continuationMessageId: continuationIdOf(other) })).toMatch(/not the continuation/)
  expect(recoveryFault({ ...row, id: recoveryIdOf(other) })).toMatch(/does not follow/)
  expect(recoveryFault({ ...row, inputKind: 'PROMPT' })).toMatch(/is a PROMPT/)
  expect(recoveryFault({ ...row, inputKind: null })).toMatch(/has no input/)
})

it('every session of this file is consistent with its log', async () => {
  expect(await inconsistencies(core.db)).toEqual([])
})
