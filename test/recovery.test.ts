import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { appendIn } from '../src/event-log.ts'
import { event, type NewEvent, noUsage } from '../src/events.ts'
import { continuationIdOf, newMessageId, recoveryIdOf } from '../src/ids.ts'
import { readEvidence } from '../src/recovery/evidence.ts'
import { resolve } from '../src/recovery/resolution.ts'
import { requestOf, takeOver } from '../src/recovery/takeover.ts'
import type { Core } from '../src/runner/core.ts'
import { startCore, type TestCore } from './support/core.ts'
import {
  askedFor,
  behindTools,
  type CutOff,
  calledTool,
  cutOff,
  hasClaim,
  inconsistencies,
  inStep,
  phased,
  promoted,
  prompt,
  quiet,
  startTool,
} from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'

// What recovery decides about one claim, and that it is one append (design section 9). Nothing runs here: wakes are only counted.

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
beforeEach(() => void woken.splice(0))

const recover = ({ sessionId, executionId }: CutOff) => takeOver(core, sessionId, executionId, { kind: 'expired' })
const row = async (cut: CutOff) => core.db.recovery.findUnique({ where: { id: recoveryIdOf(cut.executionId) } })
const last = async (cut: CutOff, type: string) =>
  (await cut.events()).findLast((stored) => stored.type === type)?.payload
const statusOf = async (id: string) => (await core.db.message.findUniqueOrThrow({ where: { id } })).status

describe('what becomes of a cut-off execution', () => {
  it('REC-01, REC-13: READY leaves the input pending, and continuation, recovery row and the end of the claim are one commit', async () => {
    const cut = await cutOff(core)
    expect(await recover(cut)).toBe('recovered')
    const added = (await cut.events()).slice(3)
    expect(added).toMatchObject([
      {
        type: 'step.recovered',
        payload: {
          phase: 'READY',
          handover: false,
          assistantMessageId: null,
          executionId: cut.executionId,
          continuationMessageId: continuationIdOf(cut.executionId),
        },
      },
    ])
    expect(await row(cut)).toMatchObject({ phase: 'READY', wakePending: true, error: null })
    expect(
      await core.db.input.findMany({ where: { sessionId: cut.sessionId }, orderBy: { admittedSeq: 'asc' } }),
    ).toMatchObject([
      { id: cut.promptId, state: 'PENDING', wakePending: true },
      {
        id: continuationIdOf(cut.executionId),
        kind: 'CONTINUATION',
        text: 'continue',
        delivery: 'QUEUE',
        state: 'PENDING',
        wakePending: true,
      },
    ])
    expect(await hasClaim(core, cut.sessionId)).toBe(false)
  })

  it('REC-02: after the promotion, before the request: the step fails OUTCOME_UNKNOWN and no message stays RUNNING', async () => {
    const cut = await inStep(core)
    expect(await recover(cut)).toBe('recovered')
    const added = (await cut.events()).slice(5)
    expect(added.map(({ type }) => type)).toEqual(['step.failed', 'step.recovered'])
    expect(new Set(added.map(({ appendId }) => appendId)).size).toBe(1)
    expect(added[0]!.payload).toMatchObject({
      messageId: cut.messageId,
      continues: false,
      error: { code: 'OUTCOME_UNKNOWN' },
    })
    expect(added[1]!.payload).toMatchObject({ phase: 'UNKNOWN', assistantMessageId: cut.messageId })
    expect(await core.db.message.count({ where: { sessionId: cut.sessionId, status: 'RUNNING' } })).toBe(0)
    expect((await cut.types()).filter((type) => type === 'prompt.promoted')).toHaveLength(1)
  })

  it('REC-03: in the stream: the text that was kept ends its part', async () => {
    const cut = await inStep(core)
    const { messageId, sessionId } = cut
    await cut.append([
      event('text.started', { messageId, index: 0 }),
      event('reasoning.started', { messageId, index: 1 }),
    ])
    await core.db.chunk.createMany({
      data: [
        { sessionId, messageId, index: 0, offset: 4, text: 'tial' },
        { sessionId, messageId, index: 0, offset: 0, text: 'par-' },
      ],
    })
    expect(await recover(cut)).toBe('recovered')
    expect(await cut.types(7)).toEqual(['text.ended', 'reasoning.ended', 'step.failed', 'step.recovered'])
    expect(await core.db.part.findMany({ where: { sessionId }, orderBy: { index: 'asc' } })).toMatchObject([
      { text: 'par-tial', complete: true },
      { text: '', complete: true },
    ])
    expect(await core.db.chunk.count({ where: { sessionId } })).toBe(0)
  })

  it('REC-04: a started tool fails OUTCOME_UNKNOWN, one that was not started NOT_STARTED, a declined one DECLINED; open questions are cancelled', async () => {
    const cut = await inStep(core)
    const { messageId, sessionId } = cut
    const asked = (callId: string, interactionId: string) => askedFor(messageId, callId, interactionId)
    const decide = (interactionId: string, state: 'DECLINED' | 'APPROVED', feedback: string | null) =>
      event('interaction.settled', { interactionId, state, answer: null, feedback, editedInput: null, remember: false })
    await cut.append([
      ...startTool(messageId, 'started', 0),
      event('tool.input_started', { messageId, index: 1, callId: 'streaming', name: 'work' }),
      ...calledTool(messageId, 'asked', 2),
      asked('asked', `req_.asked${cut.executionId.slice(5)}`),
      ...calledTool(messageId, 'declined', 3),
      asked('declined', `req_.declined${cut.executionId.slice(5)}`),
      ...calledTool(messageId, 'approved', 4),
      asked('approved', `req_.approved${cut.executionId.slice(5)}`),
    ])
    await cut.append([
      decide(`req_.declined${cut.executionId.slice(5)}`, 'DECLINED', 'too loud'),
      decide(`req_.approved${cut.executionId.slice(5)}`, 'APPROVED', null),
    ])
    expect(await recover(cut)).toBe('recovered')
    const calls = await core.db.toolCall.findMany({ where: { sessionId }, orderBy: { index: 'asc' } })
    expect(calls.map(({ callId, errorCode }) => [callId, errorCode])).toEqual([
      ['started', 'OUTCOME_UNKNOWN'],
      ['streaming', 'NOT_STARTED'],
      ['asked', 'NOT_STARTED'],
      ['declined', 'DECLINED'],
      ['approved', 'NOT_STARTED'],
    ])
    expect(calls[3]!.errorMessage).toContain('too loud')
    const interactions = await core.db.interaction.findMany({ where: { sessionId }, orderBy: { id: 'asc' } })
    expect(interactions.map(({ callId, state, wakePending }) => [callId, state, wakePending])).toEqual([
      ['approved', 'APPROVED', false],
      ['asked', 'CANCELLED', false],
      ['declined', 'DECLINED', false],
    ])
    const types = await cut.types(5)
    expect(types.slice(-2)).toEqual(['step.failed', 'step.recovered'])
  })

  it('REC-05: after a step that continues: its message stays ENDED, the next step is owed, and the continuation is a hidden one', async () => {
    const cut = await inStep(core)
    const { messageId } = cut
    const ended = event('step.ended', { messageId, finish: 'tool-calls', usage: noUsage, continues: true })
    await phased(
      core,
      cut,
      [...startTool(messageId, 'c1'), event('tool.succeeded', { messageId, callId: 'c1', output: 'ok' }), ended],
      'CONTINUE',
    )
    expect(await recover(cut)).toBe('recovered')
    expect(await last(cut, 'step.recovered')).toMatchObject({ phase: 'CONTINUE', assistantMessageId: messageId })
    expect(await statusOf(messageId)).toBe('ENDED')
    expect(await core.db.session.findUnique({ where: { id: cut.sessionId } })).toMatchObject({ stepOwed: true })
  })

  it('a back-off: the open step fails with what it failed with, and is still owed', async () => {
    const cut = await inStep(core)
    const { messageId } = cut
    const error = { code: 'PROVIDER_RATE_LIMIT', message: 'slow down' } as const
    await phased(
      core,
      cut,
      [event('step.retry_scheduled', { messageId, attempt: 2, retryAt: new Date().toISOString(), error })],
      'CONTINUE',
    )
    expect(await recover(cut)).toBe('recovered')
    expect(await last(cut, 'step.failed')).toMatchObject({ messageId, error, continues: true })
    expect(await last(cut, 'step.recovered')).toMatchObject({ phase: 'CONTINUE', assistantMessageId: messageId })
    expect(await core.db.session.findUnique({ where: { id: cut.sessionId } })).toMatchObject({ stepOwed: true })
  })

  it('REC-06, REC-40: CONTINUE after an automatic compaction, without any assistant message: null is recovered, the input stays pending', async () => {
    const cut = await cutOff(core)
    const compaction = newMessageId()
    await phased(
      core,
      cut,
      [
        event('compaction.started', { messageId: compaction, automatic: true }),
        event('compaction.ended', { messageId: compaction, summary: 's', usage: noUsage }),
      ],
      'CONTINUE',
      compaction,
    )
    expect(await recover(cut)).toBe('recovered')
    expect(await row(cut)).toMatchObject({ phase: 'CONTINUE', assistantMessageId: null })
    expect(await core.db.input.findUnique({ where: { id: cut.promptId } })).toMatchObject({
      state: 'PENDING',
      wakePending: true,
    })
  })

  it('COMP: an open compaction fails OUTCOME_UNKNOWN: a manual one is cleared, an automatic one goes on', async () => {
    for (const automatic of [false, true]) {
      const cut = await cutOff(core)
      const messageId = newMessageId()
      await core.eventLog.append({
        sessionId: cut.sessionId,
        events: [event('prompt.withdrawn', { messageId: cut.promptId })],
      })
      if (!automatic)
        await cut.append([
          event('prompt.admitted', {
            messageId,
            inputKind: 'COMPACTION',
            text: '',
            attachments: [],
            delivery: 'STEER',
            requestExecution: true,
          }),
          event('prompt.promoted', { messageId, inputKind: 'COMPACTION', text: '', attachments: [], hidden: false }),
        ])
      await phased(core, cut, [event('compaction.started', { messageId, automatic })], 'UNKNOWN', messageId)
      expect(await recover(cut)).toBe(automatic ? 'recovered' : 'cleared')
      expect(await last(cut, 'compaction.failed')).toMatchObject({ error: { code: 'OUTCOME_UNKNOWN' } })
      if (automatic)
        expect(await last(cut, 'step.recovered')).toMatchObject({ phase: 'CONTINUE', assistantMessageId: null })
      else expect(await last(cut, 'execution.settled')).toMatchObject({ outcome: 'CLEARED' })
    }
  })

  it('REC-07: SAFE is cleared, with no continuation and no recovery row', async () => {
    const cut = await inStep(core)
    await phased(
      core,
      cut,
      [event('step.ended', { messageId: cut.messageId, finish: 'stop', usage: noUsage, continues: false })],
      'SAFE',
    )
    expect(await recover(cut)).toBe('cleared')
    expect(await cut.types(6)).toEqual(['execution.settled'])
    expect(await last(cut, 'execution.settled')).toEqual({
      executionId: cut.executionId,
      outcome: 'CLEARED',
      retryAt: null,
    })
    expect(await row(cut)).toBeNull()
    expect(await hasClaim(core, cut.sessionId)).toBe(false)
  })

  it('REC-08: a claim whose execution has its end in the log is removed, without a second end', async () => {
    for (const phase of ['CANCELLED', 'UNKNOWN', 'SAFE']) {
      const cut = await cutOff(core)
      const end = event('execution.settled', { executionId: cut.executionId, outcome: 'INTERRUPTED', retryAt: null })
      await phased(core, cut, [event('interrupt.requested', { interruptedExecutionId: cut.executionId }), end], phase)
      expect(await recover(cut)).toBe('removed')
      expect(await cut.types(5)).toEqual([])
      expect(await hasClaim(core, cut.sessionId)).toBe(false)
    }
    const unended = await cutOff(core)
    await phased(
      core,
      unended,
      [event('interrupt.requested', { interruptedExecutionId: unended.executionId })],
      'CANCELLED',
    )
    expect(await recover(unended)).toBe('cleared')
    expect(await row(unended)).toBeNull()
  })

  it('REC-09, INT-16: CANCELLING is set aside: the claim stays, the execution has no end, nothing is armed by it', async () => {
    const cut = await inStep(core)
    const { messageId, executionId, sessionId } = cut
    await phased(
      core,
      cut,
      [...startTool(messageId, 'c1'), event('interrupt.requested', { interruptedExecutionId: executionId })],
      'CANCELLING',
    )
    expect(await recover(cut)).toBe('quarantined')
    expect(await cut.types(9)).toEqual(['quarantine.opened'])
    expect(await core.db.quarantine.findMany({ where: { sessionId } })).toMatchObject([
      { kind: 'EXECUTION', executionId, resolvedAt: null, action: null },
    ])
    expect(await hasClaim(core, sessionId)).toBe(true)
    expect(await recover(cut)).toBe('gone')
  })

  it('REC-10: of a failed step the unresolved tools fail, and nothing continues', async () => {
    const cut = await inStep(core)
    const { messageId } = cut
    const failed = event('step.failed', {
      messageId,
      error: { code: 'PROVIDER_INVALID', message: 'no' },
      usage: noUsage,
      continues: false,
    })
    await cut.append([...calledTool(messageId, 'c1', 0), ...startTool(messageId, 'c2', 1)])
    await behindTools(core, cut.sessionId, () => cut.append([failed]))
    expect(await recover(cut)).toBe('cleared')
    expect(await cut.types(11)).toEqual(['tool.failed', 'tool.failed', 'execution.settled'])
    expect((await cut.types()).filter((type) => type.startsWith('step.') && type !== 'step.started')).toEqual([
      'step.failed',
    ])
    expect(await row(cut)).toBeNull()
  })

  it('REC-11: a newer assistant message clears, also when it appears between the look and the append', async () => {
    const supersede = (cut: CutOff) => {
      const messageId = newMessageId()
      return cut.append([
        event('step.started', { messageId, model: 'compatible/scripted', executionId: 'exe_.other' }),
        event('step.ended', { messageId, finish: 'stop', usage: noUsage, continues: false }),
      ])
    }
    const seen = await inStep(core)
    await supersede(seen)
    expect(await recover(seen)).toBe('cleared')
    expect(await row(seen)).toBeNull()
    expect(await statusOf(seen.messageId)).toBe('FAILED')

    const raced = await inStep(core)
    const evidence = (await readEvidence(core.db, raced.sessionId))!
    const decision = resolve(evidence)
    expect(decision.kind).toBe('Recover')
    if (decision.kind === 'Remove') throw new Error('unreachable')
    await supersede(raced)
    const { request } = requestOf(core, raced.sessionId, evidence, decision, { kind: 'expired' })
    expect(await core.db.$transaction((tx) => appendIn(tx, request))).toEqual({ kind: 'stale' })
    expect(await recover(raced)).toBe('cleared')
  })

  it('REC-35: READY over a step that waited for a person keeps the step open for its answer', async () => {
    const cut = await inStep(core)
    const { messageId, executionId, sessionId } = cut
    const interactionId = `req_.${executionId.slice(5)}`
    await cut.append([
      ...calledTool(messageId, 'c1'),
      askedFor(messageId, 'c1', interactionId),
      event('step.streamed', { messageId }),
      event('interaction.settled', {
        interactionId,
        state: 'APPROVED',
        answer: null,
        feedback: null,
        editedInput: null,
        remember: false,
      }),
    ])
    await phased(core, cut, [], 'READY')
    expect(await recover(cut)).toBe('recovered')
    expect(await last(cut, 'step.recovered')).toMatchObject({ phase: 'READY', assistantMessageId: messageId })
    expect(await statusOf(messageId)).toBe('RUNNING')
    expect(await core.db.interaction.findUnique({ where: { id: interactionId } })).toMatchObject({
      state: 'APPROVED',
      wakePending: true,
    })
    expect(await core.db.toolCall.findFirst({ where: { sessionId } })).toMatchObject({ settledAt: null })
  })
})

describe('the takeover is a compare-and-swap', () => {
  const decided = async (cut: CutOff) => {
    const evidence = (await readEvidence(core.db, cut.sessionId))!
    const decision = resolve(evidence)
    if (decision.kind === 'Remove') throw new Error('unreachable')
    const { request } = requestOf(core, cut.sessionId, evidence, decision, { kind: 'expired' })
    return () => core.db.$transaction((tx) => appendIn(tx, request))
  }

  it('CLAIM-12, CLAIM-17: refused when execution, owner, expiry or phase is another than was decided on', async () => {
    const changes = [
      { executionId: 'exe_.another' },
      { owner: 'own_.another' },
      { expiresAt: new Date(Date.now() - 500_000) },
      { phase: 'SAFE' },
    ]
    for (const [n, change] of changes.entries()) {
      const cut = await cutOff(core)
      const append = await decided(cut)
      const { sessionId } = cut
      const before = await core.db.claim.findUniqueOrThrow({ where: { sessionId } })
      const data = 'executionId' in change ? { executionId: `${change.executionId}${n}` } : change
      await core.db.claim.update({ where: { sessionId }, data })
      expect(await append(), JSON.stringify(change)).toEqual({ kind: 'fenced' })
      expect(await cut.types(3)).toEqual([])
      await core.db.claim.update({ where: { sessionId }, data: before })
      expect(await append()).toMatchObject({ kind: 'appended' })
    }
  })

  it('CLAIM-17: refused when the owner renewed in between', async () => {
    const cut = await cutOff(core)
    const append = await decided(cut)
    await core.db
      .$executeRaw`UPDATE "Claim" SET "expiresAt" = holdfast_now() + interval '30 s' WHERE "sessionId" = ${cut.sessionId}`
    expect(await append()).toEqual({ kind: 'fenced' })
    expect(await recover(cut)).toBe('gone')
    await core.db
      .$executeRaw`UPDATE "Claim" SET "expiresAt" = holdfast_now() - interval '1 s' WHERE "sessionId" = ${cut.sessionId}`
    expect(await recover(cut)).toBe('recovered')
  })

  it('CLAIM-16: of ten workers that take one expired claim over exactly one succeeds', async () => {
    const cut = await inStep(core)
    const taken = await Promise.all(Array.from({ length: 10 }, () => recover(cut)))
    expect(taken.filter((what) => what === 'recovered')).toHaveLength(1)
    expect(taken.filter((what) => what === 'gone')).toHaveLength(9)
    expect((await cut.types()).filter((type) => type === 'step.recovered')).toHaveLength(1)
  })

  it('CLAIM-13, CLAIM-29: the database judges expiry and age; its shifted clock is followed', async () => {
    const cut = await cutOff(core, { leaseMs: 30_000 })
    expect(await recover(cut)).toBe('gone')
    await database.shiftClock(29_000)
    expect(await recover(cut)).toBe('gone')
    await database.shiftClock(25 * 3_600_000)
    try {
      expect(await recover(cut)).toBe('parked')
    } finally {
      await database.shiftClock(0)
    }
  })
})

describe('bounds', () => {
  const again = async (cut: CutOff, n: number) => {
    const executionId = `exe_.again${n}${cut.executionId.slice(5)}`
    const outcome = await core.eventLog.append({
      sessionId: cut.sessionId,
      events: [event('execution.started', { executionId })],
      claim: { kind: 'acquire', executionId, owner: 'own_.gone', leaseMs: -1000 },
    })
    expect(outcome.kind).toBe('appended')
    return { ...cut, executionId }
  }

  it('REC-26, REC-28: the fourth recovery in a row parks in the same append and disarms; a new armed prompt unparks and counts anew', async () => {
    const cut = await cutOff(core)
    expect(await recover(cut)).toBe('recovered')
    expect(await recover(await again(cut, 2))).toBe('recovered')
    expect(await recover(await again(cut, 3))).toBe('recovered')
    const before = (await cut.events()).length + 1
    expect(await recover(await again(cut, 4))).toBe('parked')
    const added = (await cut.events()).slice(before)
    expect(added.map(({ type }) => type)).toEqual(['step.recovered', 'session.parked'])
    expect(added[0]!.appendId).toBe(added[1]!.appendId)
    const { sessionId } = cut
    expect((await core.db.session.findUniqueOrThrow({ where: { id: sessionId } })).parkedReason).toContain(
      '3 recoveries',
    )
    expect(await core.db.input.count({ where: { sessionId, wakePending: true } })).toBe(0)
    expect(await core.db.recovery.count({ where: { sessionId, wakePending: true } })).toBe(0)
    expect(await core.db.input.count({ where: { sessionId, state: 'PENDING' } })).toBe(5)
    await running.recovery.scan()
    expect(woken).not.toContain(sessionId)

    await cut.append([prompt(`msg_unpark${sessionId.slice(4)}`)])
    expect(await core.db.session.findUnique({ where: { id: sessionId } })).toMatchObject({
      parkedReason: null,
      recoveries: 0,
    })
  })

  const cleanStep = (cut: CutOff): NewEvent[] => {
    const messageId = newMessageId()
    return [
      event('step.started', { messageId, model: 'compatible/scripted', executionId: cut.executionId }),
      event('step.ended', { messageId, finish: 'stop', usage: noUsage, continues: false }),
    ]
  }
  const continued = (executionId: string, hidden: boolean) =>
    event('prompt.promoted', {
      messageId: continuationIdOf(executionId),
      inputKind: 'CONTINUATION',
      text: 'continue',
      attachments: [],
      hidden,
    })

  it.each([
    ['a step that ended clean', cleanStep],
    ["a user's promotion", (cut: CutOff) => [promoted(cut.promptId)]],
  ])('REC-39: %s starts the count again: three more recoveries, then it parks', async (_, events) => {
    const cut = await cutOff(core)
    await recover(cut)
    for (const n of [2, 3]) expect(await recover(await again(cut, n))).toBe('recovered')
    await cut.append(events(cut))
    for (const n of [4, 5, 6]) expect(await recover(await again(cut, n))).toBe('recovered')
    expect(await recover(await again(cut, 7))).toBe('parked')
  })

  it.each([
    ['hidden ones', true],
    ['ones that the model sees', false],
  ])('REC-26, REC-39: the promotion of continuations alone does not start the count again: %s', async (_, hidden) => {
    const cut = await cutOff(core)
    expect(await recover(cut)).toBe('recovered')
    let { executionId } = cut
    for (const n of [2, 3, 4]) {
      const next = await again(cut, n)
      await cut.append([continued(executionId, hidden)])
      const state = await core.db.input.findUnique({ where: { id: continuationIdOf(executionId) } })
      expect(state).toMatchObject({ kind: 'CONTINUATION', state: 'PROMOTED' })
      expect(await recover(next)).toBe(n === 4 ? 'parked' : 'recovered')
      executionId = next.executionId
    }
  })

  it('REC-27: a claim that expired more than a day ago parks; one that expired just under a day ago goes on', async () => {
    const hour = 3_600_000
    expect(await recover(await cutOff(core, { leaseMs: -25 * hour }))).toBe('parked')
    expect(await recover(await cutOff(core, { leaseMs: -23 * hour }))).toBe('recovered')
  })
})

it('every session of this file is consistent with its log', async () => {
  expect(await inconsistencies(core.db)).toEqual([])
})
