import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { event, noUsage } from '../src/events.ts'
import { newMessageId, newQuarantineId } from '../src/ids.ts'
import { resolveQuarantine } from '../src/recovery/quarantine.ts'
import { setAside, takeOver } from '../src/recovery/takeover.ts'
import type { Core } from '../src/runner/core.ts'
import { createTurns } from '../src/runner/turns.ts'
import { startCore, type TestCore } from './support/core.ts'
import {
  type CutOff,
  cutOff,
  hasClaim,
  inconsistencies,
  inStep,
  phased,
  prompt,
  quiet,
  startTool,
} from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'

// Rows that were set aside, and what a person makes of them (design section 9; resolveQuarantine). Nothing runs: wakes are counted.

let database: TestDatabase
let running: TestCore
let core: Core
let woken: string[]
beforeAll(async () => {
  database = await createTestDatabase()
  running = await startCore({ url: database.url, config: { livenessGraceMs: 60_000 } })
  core = running.core
  woken = quiet(core)
})
afterAll(async () => {
  await running?.stop()
  await database?.drop()
})

const entryOf = (cut: CutOff) =>
  core.db.quarantine.findFirstOrThrow({ where: { sessionId: cut.sessionId }, orderBy: { id: 'desc' } })

/** An interrupt was accepted while a tool ran; then its owner was gone. */
async function cancelling() {
  const cut = await inStep(core)
  const { messageId, executionId, sessionId } = cut
  const text = [event('text.started', { messageId, index: 1 })]
  const asked = event('interrupt.requested', { interruptedExecutionId: executionId })
  await phased(core, cut, [...startTool(messageId, 'c1'), ...text, asked], 'CANCELLING')
  expect(await takeOver(core, sessionId, executionId, { kind: 'expired' })).toBe('quarantined')
  return { ...cut, entry: await entryOf(cut), seen: (await cut.events()).length + 1 }
}

const resolveBy = (id: string, action: 'RETRY' | 'DISCARD') => resolveQuarantine(core, 'default', { id, action })

describe('an execution that was set aside', () => {
  it('REC-30: RETRY finishes the cleanup of an interrupt in one append, and the session takes prompts again', async () => {
    const cut = await cancelling()
    expect(await resolveBy(cut.entry.id, 'RETRY')).toEqual({
      type: 'ResolveQuarantinePayload',
      sessionId: cut.sessionId,
    })
    const added = (await cut.events()).filter(({ seq }) => seq >= cut.seen)
    expect(added.map(({ type }) => type)).toEqual([
      'quarantine.resolved',
      'text.ended',
      'tool.failed',
      'step.interrupted',
      'execution.settled',
    ])
    expect(new Set(added.map(({ appendId }) => appendId)).size).toBe(1)
    expect(added[2]!.payload).toMatchObject({ error: { code: 'OUTCOME_UNKNOWN' } })
    expect(added[4]!.payload).toMatchObject({ outcome: 'INTERRUPTED', executionId: cut.executionId })
    expect(await hasClaim(core, cut.sessionId)).toBe(false)
    expect(woken).toContain(cut.sessionId)
    woken.length = 0
    await cut.append([prompt(newMessageId())])
    await running.recovery.scan()
    expect(woken).toEqual([cut.sessionId])
  })

  it('REC-30, REC-45: DISCARD settles what is open, gives the execution its end and continues nothing; repeated it writes nothing', async () => {
    const cut = await cancelling()
    const payload = { type: 'ResolveQuarantinePayload', sessionId: cut.sessionId }
    expect(await resolveBy(cut.entry.id, 'DISCARD')).toEqual(payload)
    const { length } = await cut.events()
    expect(await Promise.all([resolveBy(cut.entry.id, 'DISCARD'), resolveBy(cut.entry.id, 'DISCARD')])).toEqual([
      payload,
      payload,
    ])
    expect(await cut.events()).toHaveLength(length)
    const added = (await cut.events()).filter(({ seq }) => seq >= cut.seen)
    expect(added.map(({ type }) => type)).toEqual([
      'quarantine.resolved',
      'text.ended',
      'tool.failed',
      'step.failed',
      'execution.settled',
    ])
    expect(added[3]!.payload).toMatchObject({ continues: false })
    expect(added[4]!.payload).toMatchObject({ outcome: 'CLEARED' })
    expect(await core.db.session.findUnique({ where: { id: cut.sessionId } })).toMatchObject({ stepOwed: false })
    expect(await core.db.recovery.count({ where: { sessionId: cut.sessionId } })).toBe(0)
    // The other action finds nothing open under this id.
    expect(await resolveBy(cut.entry.id, 'RETRY')).toMatchObject({ type: 'QuarantineNotFoundError', id: cut.entry.id })
  })

  it('REC-45: two people at once, two processes: one resolution, one end', async () => {
    const cut = await cancelling()
    const other = await startCore({ url: database.url, config: { livenessGraceMs: 60_000 } })
    quiet(other.core)
    const { id } = cut.entry
    const answers = await Promise.all([
      ...Array.from({ length: 4 }, () => resolveBy(id, 'DISCARD')),
      ...Array.from({ length: 4 }, () => resolveQuarantine(other.core, 'default', { id, action: 'DISCARD' })),
    ])
    expect(new Set(answers.map(({ type }) => type))).toEqual(new Set(['ResolveQuarantinePayload']))
    const types = await cut.types()
    expect(types.filter((type) => type === 'quarantine.resolved')).toHaveLength(1)
    expect(types.filter((type) => type === 'execution.settled')).toHaveLength(1)
    await other.stop()
  })

  it('REC-45: resolved by somebody else between the look and the append: the same answer, nothing written twice', async () => {
    const cut = await cancelling()
    const { id } = cut.entry
    let raced = false
    const db = new Proxy(core.db, {
      get(target, property) {
        if (property !== '$transaction') return Reflect.get(target, property)
        return async (work: Parameters<typeof core.db.$transaction>[0]) => {
          if (!raced) {
            raced = true
            // In another process: in this one they would take turns.
            await resolveQuarantine({ ...core, turns: createTurns() }, 'default', { id, action: 'DISCARD' })
          }
          return target.$transaction(work)
        }
      },
    })
    expect(await resolveQuarantine({ ...core, db }, 'default', { id, action: 'DISCARD' })).toEqual({
      type: 'ResolveQuarantinePayload',
      sessionId: cut.sessionId,
    })
    expect(raced).toBe(true)
    expect((await cut.types()).filter((type) => type === 'quarantine.resolved')).toHaveLength(1)
  })

  it('REC-30: RETRY of a phase that could not be decoded takes the outcome as unknown', async () => {
    const cut = await inStep(core)
    await core.db.$executeRaw`ALTER TABLE "Claim" DROP CONSTRAINT "Claim_phase_check"`
    await phased(core, cut, startTool(cut.messageId, 'c1'), 'DREAMING')
    expect(await takeOver(core, cut.sessionId, cut.executionId, { kind: 'expired' })).toBe('quarantined')
    const before = (await cut.events()).length
    expect(await resolveBy((await entryOf(cut)).id, 'RETRY')).toMatchObject({ type: 'ResolveQuarantinePayload' })
    expect(await cut.types(before)).toEqual(['quarantine.resolved', 'tool.failed', 'step.failed', 'step.recovered'])
    expect((await cut.events()).at(-1)!.payload).toMatchObject({ phase: 'UNKNOWN', assistantMessageId: cut.messageId })
  })

  it('REC-30: DISCARD where a step is owed and none is open: nothing continues', async () => {
    const cut = await inStep(core)
    await phased(
      core,
      cut,
      [event('step.ended', { messageId: cut.messageId, finish: 'tool-calls', usage: noUsage, continues: true })],
      'DREAMING',
    )
    await takeOver(core, cut.sessionId, cut.executionId, { kind: 'expired' })
    expect(await resolveBy((await entryOf(cut)).id, 'DISCARD')).toMatchObject({ type: 'ResolveQuarantinePayload' })
    woken.length = 0
    await running.recovery.scan()
    expect(woken).not.toContain(cut.sessionId)
    expect(await core.db.session.findUnique({ where: { id: cut.sessionId } })).toMatchObject({ stepOwed: false })
  })

  it('an entry whose claim cannot be read, or is gone, can be resolved too', async () => {
    const unreadable = await inStep(core)
    await core.db.$executeRaw`UPDATE "Claim" SET "expiresAt" = '-infinity' WHERE "sessionId" = ${unreadable.sessionId}`
    const gone = await inStep(core)
    for (const { sessionId, executionId } of [unreadable, gone])
      expect(
        await setAside(core, { sessionId, executionId, kind: 'EXECUTION', right: { kind: 'expired' }, reason: 'odd' }),
      ).toBe(true)
    await core.db.claim.delete({ where: { sessionId: gone.sessionId } })
    for (const [cut, action] of [
      [unreadable, 'RETRY'],
      [gone, 'DISCARD'],
    ] as const) {
      expect(await resolveBy((await entryOf(cut)).id, action)).toMatchObject({ type: 'ResolveQuarantinePayload' })
      expect((await cut.types()).slice(-3)).toEqual(['quarantine.resolved', 'step.failed', 'execution.settled'])
      expect(await hasClaim(core, cut.sessionId)).toBe(false)
    }
  })

  it('REC-30: an unknown id, or one of another tenant, is not found', async () => {
    const unknown = newQuarantineId()
    expect(await resolveBy(unknown, 'RETRY')).toMatchObject({ type: 'QuarantineNotFoundError', id: unknown })
    const cut = await cancelling()
    expect(await resolveQuarantine(core, 'stranger', { id: cut.entry.id, action: 'DISCARD' })).toMatchObject({
      type: 'QuarantineNotFoundError',
    })
    expect(await entryOf(cut)).toMatchObject({ resolvedAt: null })
    await resolveBy(cut.entry.id, 'DISCARD')
  })
})

it('a recovery row: RETRY lets the scan look again, DISCARD makes it pass over', async () => {
  const cut = await cutOff(core)
  await running.recovery.scan()
  const row = await core.db.recovery.findFirstOrThrow({ where: { sessionId: cut.sessionId } })
  await core.db.recovery.update({ where: { id: row.id }, data: { id: `${row.id}x` } })
  expect(await running.recovery.scan()).toMatchObject({ quarantined: 1 })
  await resolveBy((await entryOf(cut)).id, 'RETRY')
  expect(await running.recovery.scan()).toMatchObject({ quarantined: 1 })
  await resolveBy((await entryOf(cut)).id, 'DISCARD')
  expect(await running.recovery.scan()).toMatchObject({ quarantined: 0 })
  await core.db.recovery.update({ where: { id: `${row.id}x` }, data: { id: row.id } })
})

it('REC-31, and every session of this file is consistent with its log: what is resolved stays resolved on replay', async () => {
  expect(await inconsistencies(core.db)).toEqual([])
})
