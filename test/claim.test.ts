import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Renewed, renewClaims } from '../src/claim.ts'
import type { ClaimMove } from '../src/event-log.ts'
import { type EventType, type ExecutionPhase, event, eventTypes, type NewEvent, noUsage } from '../src/events.ts'
import { newExecutionId, newMessageId } from '../src/ids.ts'
import type { Core } from '../src/runner/core.ts'
import { createHold, HoldEnded } from '../src/runner/hold.ts'
import { startCore, type TestCore } from './support/core.ts'
import { calledTool, cutOff, inconsistencies, promoted, prompt, quiet, startTool } from './support/cut-off.ts'
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

it('CLAIM-26: under CANCELLING the owner can append nothing of any kind, write no chunk, dispatch nothing and move nowhere, but for the one cleanup', async () => {
  const cut = await cutOff(core, { owner: core.owner, leaseMs: 600_000 })
  const { sessionId, executionId, promptId } = cut
  const messageId = newMessageId()
  const interactionId = `req_.${executionId.slice(5)}`
  const call = { messageId, callId: 'c0' }
  await cut.append([
    promoted(promptId),
    event('step.started', { messageId, model: 'm', executionId }),
    event('text.started', { messageId, index: 0 }),
    ...calledTool(messageId, 'c0', 1),
    ...startTool(messageId, 'c1', 2),
    event('reasoning.started', { messageId, index: 3 }),
    ...calledTool(messageId, 'c2', 4),
    event('interaction.requested', {
      ...{ interactionId, kind: 'APPROVAL', messageId, callId: 'c2', name: 'work', toolInput: {} },
      ...{ prompt: 'May it run?', options: [], expiresAt: null },
    }),
    prompt(newMessageId()),
    event('interrupt.requested', { interruptedExecutionId: executionId }),
  ])
  await core.db.claim.update({ where: { sessionId }, data: { phase: 'CANCELLING', messageId } })
  const { length } = await cut.events()
  const error = { code: 'ABORTED', message: 'interrupted' } as const
  const other = newMessageId()
  const pending = await core.db.input.findFirstOrThrow({ where: { sessionId, state: 'PENDING' } })
  // Whatever a drain writes, each as it would be taken but for the phase.
  const kinds: Partial<Record<EventType, NewEvent[]>> = {
    'prompt.promoted': [promoted(pending.id)],
    'step.started': [event('step.started', { messageId: other, model: 'm', executionId })],
    'step.retry_scheduled': [
      event('step.retry_scheduled', { messageId, attempt: 2, retryAt: new Date().toISOString(), error }),
    ],
    'text.started': [event('text.started', { messageId, index: 5 })],
    'text.ended': [event('text.ended', { messageId, index: 0, text: 'late' })],
    'reasoning.started': [event('reasoning.started', { messageId, index: 5 })],
    'reasoning.ended': [event('reasoning.ended', { messageId, index: 3, text: 'late' })],
    'tool.input_started': [event('tool.input_started', { messageId, index: 5, callId: 'c5', name: 'work' })],
    'tool.called': calledTool(messageId, 'c5', 5),
    'tool.started': [event('tool.started', call)],
    'tool.succeeded': [event('tool.succeeded', { messageId, callId: 'c1', output: 'late' })],
    'tool.failed': [event('tool.failed', { ...call, error })],
    'interaction.requested': [
      ...calledTool(messageId, 'c5', 5),
      event('interaction.requested', {
        ...{
          interactionId: `${interactionId}x`,
          kind: 'QUESTION',
          messageId,
          callId: 'c5',
          name: 'ask',
          toolInput: {},
        },
        ...{ prompt: 'What?', options: [], expiresAt: null },
      }),
    ],
    'interaction.settled': [
      event('interaction.settled', {
        ...{ interactionId, state: 'CANCELLED', answer: null, feedback: null, editedInput: null, remember: false },
      }),
    ],
    'step.streamed': [event('step.streamed', { messageId })],
    'step.ended': [event('step.ended', { messageId, finish: 'stop', usage: noUsage, continues: false })],
    'step.failed': [event('step.failed', { messageId, error, usage: noUsage, continues: false })],
    'step.interrupted': [event('step.interrupted', { messageId, error, usage: noUsage })],
    'compaction.started': [event('compaction.started', { messageId: other, automatic: true })],
    'compaction.ended': [
      event('compaction.started', { messageId: other, automatic: true }),
      event('compaction.ended', { messageId: other, summary: 's', usage: noUsage }),
    ],
    'compaction.failed': [
      event('compaction.started', { messageId: other, automatic: true }),
      event('compaction.failed', { messageId: other, error, usage: noUsage }),
    ],
    'synthetic.appended': [event('synthetic.appended', { messageId: other, text: 'x', hidden: true })],
    'session.parked': [event('session.parked', { reason: 'late' })],
    'execution.settled': [event('execution.settled', { executionId, outcome: 'SUCCEEDED', retryAt: null })],
  }
  // What a drain never writes under its claim: what people ask for, and what recovery decides.
  const others: EventType[] = [
    ...(['session.created', 'session.updated', 'prompt.admitted', 'prompt.execution_requested'] as const),
    ...(['prompt.delivery_changed', 'prompt.withdrawn', 'interrupt.requested', 'execution.started'] as const),
    ...(['step.recovered', 'quarantine.opened', 'quarantine.resolved', 'session.resume_requested'] as const),
  ]
  expect([...Object.keys(kinds), ...others].toSorted()).toEqual(eventTypes.toSorted())
  const all: ExecutionPhase[] = ['READY', 'UNKNOWN', 'SAFE', 'CONTINUE']
  const moves: (ClaimMove | undefined)[] = [undefined, { kind: 'move', to: 'SAFE' }, { kind: 'remove' }]
  for (const [kind, events] of Object.entries(kinds))
    for (const move of moves) expect(await own(cut, core.owner, all, move, events), kind).toEqual({ kind: 'fenced' })
  core.live.begin({ sessionId, messageId, index: 0, kind: 'TEXT', callId: null }, executionId)
  core.live.add(sessionId, messageId, 0, 'late')
  await core.live.flush()
  await core.live.drop(sessionId)
  expect(await core.db.chunk.count({ where: { sessionId } })).toBe(0)

  // A dispatch: its hold knows by then, from any append that was refused or its next renewal.
  for (const learn of ['examine', 'renewNow'] as const) {
    const hold = createHold(sessionId, executionId, core.owner)
    core.leases.add(hold, performance.now())
    expect(await core.leases.mayStart(hold)).toBe(true)
    await (learn === 'examine' ? core.leases.examine(hold) : core.leases.renewNow())
    expect(hold.ended).toBe('cancelled')
    expect(await core.leases.mayStart(hold)).toBe(false)
    await expect(core.leases.mustStart(hold)).rejects.toBeInstanceOf(HoldEnded)
    core.leases.remove(hold)
  }
  expect(await cut.events()).toHaveLength(length)
  expect(await claimOf(sessionId)).toMatchObject({ phase: 'CANCELLING' })

  const cleanup = [
    event('text.ended', { messageId, index: 0, text: '' }),
    event('reasoning.ended', { messageId, index: 3, text: '' }),
    ...kinds['interaction.settled']!,
    ...['c0', 'c1', 'c2'].map((callId) => event('tool.failed', { messageId, callId, error })),
    event('step.interrupted', { messageId, error, usage: noUsage }),
    event('execution.settled', { executionId, outcome: 'INTERRUPTED', retryAt: null }),
  ]
  expect(await own(cut, core.owner, ['CANCELLING'], { kind: 'remove' }, cleanup)).toMatchObject({ kind: 'appended' })
  expect(await claimOf(sessionId)).toBeNull()
})

it('every session of this file is consistent with its log', async () => {
  expect(await inconsistencies(core.db)).toEqual([])
})
