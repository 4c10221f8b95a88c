// Single conditions of queries and projections whose loss no other test would notice: whose row it is, and which of several siblings.
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { watchActivity } from '../src/activity-hub.ts'
import { activityStream } from '../src/activity-stream.ts'
import type { Db } from '../src/db.ts'
import { type EventPayloads, event, noUsage } from '../src/events.ts'
import {
  continuationIdOf,
  newExecutionId,
  newInteractionId,
  newMessageId,
  newQuarantineId,
  recoveryIdOf,
} from '../src/ids.ts'
import { armedRecoveries, expiredInteractions } from '../src/recovery/passes.ts'
import { setAside, takeOver } from '../src/recovery/takeover.ts'
import type { Core } from '../src/runner/core.ts'
import { answerQuestion, decideApproval, dismissQuestion } from '../src/runner/decide.ts'
import { interruptSession } from '../src/runner/interrupt.ts'
import { storedRows } from '../src/verify.ts'
import { atAppend, hasEvent } from './support/at-append.ts'
import { eventually, startCore, type TestCore } from './support/core.ts'
import { askedFor, type CutOff, calledTool, cutOff, inconsistencies, inStep, prompt, quiet } from './support/cut-off.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { createSession, type StreamProcess, streamProcess } from './support/stream-process.ts'

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

const created = (tenant: string) =>
  event('session.created', { tenant, title: null, instructions: null, model: 'demo/echo' })

describe('of one tenant another hears nothing:', () => {
  it('PROMISE-260: whether an execution was interrupted is told of its own session alone', async () => {
    const executionId = newExecutionId()
    const interrupted = event('interrupt.requested', { interruptedExecutionId: executionId })
    await core.eventLog.append({ sessionId: 'ses_theirs00', events: [created('theirs'), interrupted] })
    await core.eventLog.append({ sessionId: 'ses_mine0000', events: [created('mine')] })
    const ask = (tenant: string, sessionId: string) => interruptSession(core, tenant, { sessionId, executionId })
    expect(await ask('theirs', 'ses_theirs00')).toMatchObject({ interrupted: true })
    expect(await ask('mine', 'ses_mine0000')).toMatchObject({ interrupted: false })
    expect(await ask('mine', 'ses_theirs00')).toMatchObject({ type: 'SessionNotFoundError' })
  })

  describe('the poll behind activity streams', () => {
    let here: StreamProcess
    beforeAll(() => {
      here = streamProcess(database.url, { deaf: true, pollMs: 30 })
    })
    afterAll(() => here.close())

    it('PROMISE-261: tells each tenant of its own sessions alone, when several listen in one process', async () => {
      const heard = { mine: [] as string[], theirs: [] as string[] }
      const streams = (['mine', 'theirs'] as const).map((tenant) => {
        const stream = activityStream(here, { tenant })
        const reading = (async () => {
          for await (const { sessionId } of stream) heard[tenant].push(sessionId)
        })()
        return { stream, reading }
      })
      const beside = streamProcess(database.url, { deaf: true })
      const [mine, theirs] = [await createSession(beside, 'mine'), await createSession(beside, 'theirs')]
      await eventually('both polled', async () => heard.mine.includes(mine) && heard.theirs.includes(theirs))
      expect(heard).toEqual({ mine: [mine], theirs: [theirs] })
      for (const { stream, reading } of streams) {
        await stream.return!()
        await reading
      }
      await beside.close()
    })

    it('PROMISE-262: reads no row of a tenant to whom nobody listens, so that a busy one cannot fill its page', async () => {
      const read = new Set<string>()
      const db = new Proxy(here.db, {
        get: (target, property) =>
          property !== '$queryRaw'
            ? Reflect.get(target, property)
            : async (...sql: Parameters<Db['$queryRaw']>) => {
                const rows = await target.$queryRaw<{ tenant: string }[]>(...sql)
                for (const { tenant } of rows) read.add(tenant)
                return rows
              },
      }) as Db
      const moved: string[] = []
      const { stop } = watchActivity({ ...here, db }, 'mine', {
        moved: ({ sessionId }) => void moved.push(sessionId),
        failed() {},
      })
      const beside = streamProcess(database.url, { deaf: true })
      const theirs = await createSession(beside, 'theirs')
      const mine = await createSession(beside, 'mine')
      await beside.close()
      await eventually('the poll', async () => moved.includes(mine))
      stop()
      expect(moved).not.toContain(theirs)
      expect([...read]).toEqual(['mine'])
    })
  })
})

/** A person has approved these tools of a step; none has started. */
async function approved(cut: CutOff & { messageId: string }, ...callIds: string[]): Promise<string[]> {
  const { messageId } = cut
  const ids = callIds.map(newInteractionId)
  const settled = { state: 'APPROVED', answer: null, feedback: null, editedInput: null, remember: false } as const
  await cut.append(callIds.flatMap((callId, n) => calledTool(messageId, callId, n)))
  await cut.append(callIds.map((callId, n) => askedFor(messageId, callId, ids[n]!)))
  await cut.append(ids.map((interactionId) => event('interaction.settled', { interactionId, ...settled })))
  return ids
}

/** Two executions of one session were cut off one after the other; both continuations wait. */
async function twiceCutOff() {
  const cut = await cutOff(core)
  const { sessionId, executionId: first } = cut
  expect(await takeOver(core, sessionId, first, { kind: 'expired' })).toBe('recovered')
  const second = newExecutionId()
  await core.eventLog.append({
    sessionId,
    events: [event('execution.started', { executionId: second })],
    claim: { kind: 'acquire', executionId: second, owner: 'own_.gone', leaseMs: -1000 },
  })
  expect(await takeOver(core, sessionId, second, { kind: 'expired' })).toBe('recovered')
  return { cut, sessionId, first, second }
}

describe('of siblings one alone is meant:', () => {
  it('PROMISE-263: a tool that starts or ends disarms its own decision, not that of another call or step', async () => {
    const cut = await inStep(core)
    const { sessionId, messageId, executionId } = cut
    const asked = await approved(cut, 'call_a', 'call_b', 'call_c', 'call_d')
    const laterStep = { ...cut, messageId: newMessageId() }
    await cut.append([
      event('step.started', { messageId: laterStep.messageId, model: 'compatible/scripted', executionId }),
    ])
    const later = await approved(laterStep, 'call_a', 'call_b', 'call_c')
    const armed = async () => {
      const rows = await core.db.interaction.findMany({ where: { sessionId, wakePending: true } })
      return rows.map(({ id }) => id).sort()
    }
    const error = { code: 'TOOL_ERROR', message: 'it failed' } as const
    expect(await armed()).toEqual([...asked, ...later].sort())
    await cut.append([event('tool.started', { messageId, callId: 'call_a' })])
    expect(await armed()).toEqual([...asked.slice(1), ...later].sort())
    await cut.append([event('tool.failed', { messageId, callId: 'call_b', error })])
    expect(await armed()).toEqual([...asked.slice(2), ...later].sort())
    await cut.append([event('tool.succeeded', { messageId, callId: 'call_c', output: 'done' })])
    expect(await armed()).toEqual([asked[3]!, ...later].sort())
  })

  const armedOf = async (sessionId: string) =>
    (await armedRecoveries(core.db, null)).filter((row) => row.sessionId === sessionId).map(({ id }) => id)

  it('PROMISE-264: a continuation that is promoted settles its own recovery, not that of another execution', async () => {
    const { cut, sessionId, first, second } = await twiceCutOff()
    expect(await armedOf(sessionId)).toEqual([recoveryIdOf(first), recoveryIdOf(second)].sort())
    const messageId = continuationIdOf(first)
    await cut.append([
      event('prompt.promoted', {
        messageId,
        inputKind: 'CONTINUATION',
        text: 'continue',
        attachments: [],
        hidden: true,
      }),
    ])
    expect(await armedOf(sessionId)).toEqual([recoveryIdOf(second)])
  })

  it('PROMISE-265: a recovery that was set aside or discarded hides no other, and one that is tried again is seen', async () => {
    const { sessionId, first, second } = await twiceCutOff()
    expect(await setAside(core, { sessionId, executionId: first, kind: 'RECOVERY', reason: 'odd' })).toBe(true)
    expect(await armedOf(sessionId)).toEqual([recoveryIdOf(second)])
    const resolve = async (action: 'RETRY' | 'DISCARD') => {
      const { id } = await core.db.quarantine.findFirstOrThrow({ where: { sessionId, resolvedAt: null } })
      await core.eventLog.append({ sessionId, events: [event('quarantine.resolved', { quarantineId: id, action })] })
    }
    await resolve('RETRY')
    expect(await armedOf(sessionId)).toEqual([recoveryIdOf(first), recoveryIdOf(second)].sort())
    await setAside(core, { sessionId, executionId: first, kind: 'RECOVERY', reason: 'odd' })
    await resolve('DISCARD')
    expect(await armedOf(sessionId)).toEqual([recoveryIdOf(second)])
  })

  it('PROMISE-289: what a person or the time decided arms the session; what was dismissed, cancelled or stops does not', async () => {
    const cut = await inStep(core)
    const { sessionId, messageId } = cut
    const answer = { answer: null, feedback: null, editedInput: null, remember: false }
    const all = ['APPROVED', 'DECLINED', 'ANSWERED', 'EXPIRED', 'DISMISSED', 'CANCELLED', 'DECLINED'] as const
    const settled = all.map((state, n) => ({ state, interactionId: newInteractionId(), ...answer, stops: n === 6 }))
    for (const [n, { interactionId }] of settled.entries())
      await cut.append([...calledTool(messageId, `call_${n}`, n), askedFor(messageId, `call_${n}`, interactionId)])
    await cut.append(settled.map((payload) => event('interaction.settled', payload)))
    const armed = new Set(
      (await core.db.interaction.findMany({ where: { sessionId, wakePending: true } })).map(({ id }) => id),
    )
    expect(settled.map(({ interactionId }) => armed.has(interactionId))).toEqual(all.map((_, n) => n < 4))
  })

  it('PROMISE-288: an interrupt settles for an owner whose own execution is set aside, not for one that lives beside such an entry', async () => {
    const { sessionId, executionId, append, types } = await cutOff(core, { leaseMs: 600_000 })
    const opened = { executionId: newExecutionId(), quarantineKind: 'EXECUTION', reason: 'odd' } as const
    await append([event('quarantine.opened', { quarantineId: newQuarantineId(), ...opened })])
    const { length } = await types()
    const answer = interruptSession(core, 'default', { sessionId })
    const claim = () => core.db.claim.findUnique({ where: { sessionId } })
    await eventually('the interrupt', async () => (await claim())?.phase !== 'READY')
    expect(await claim()).toMatchObject({ executionId, phase: 'CANCELLING' })
    await core.eventLog.append({
      sessionId,
      events: [event('execution.settled', { executionId, outcome: 'INTERRUPTED', retryAt: null })],
      fence: { executionId, owner: 'own_.gone', phases: ['CANCELLING'] },
      claim: { kind: 'remove' },
    })
    expect(await answer).toMatchObject({ interrupted: true })
    expect(await types(length)).toEqual(['interrupt.requested', 'execution.settled'])
  })

  it('PROMISE-266: a question past its expiry is left to the cleanup of an interrupt, and to whoever resolves what was set aside', async () => {
    const past = new Date(Date.now() - 60_000).toISOString()
    const ask = async (cut: CutOff & { messageId: string }) => {
      const id = newInteractionId()
      await cut.append([...calledTool(cut.messageId, 'call_q'), askedFor(cut.messageId, 'call_q', id, past)])
      return id
    }
    const isExpiring = async (id: string) => (await expiredInteractions(core.db, null)).some((row) => row.id === id)
    const [works, stops] = [await inStep(core, { leaseMs: 600_000 }), await inStep(core, { leaseMs: 600_000 })]
    const [left, expires] = [await ask(stops), await ask(works)]
    await core.db.claim.update({ where: { sessionId: stops.sessionId }, data: { phase: 'CANCELLING' } })
    expect(await isExpiring(left)).toBe(false)
    expect(await isExpiring(expires)).toBe(true)
    expect((await running.recovery.scan()).failed).toBe(0)
    const stateOf = async (id: string) => (await core.db.interaction.findUniqueOrThrow({ where: { id } })).state
    expect([await stateOf(left), await stateOf(expires)]).toEqual(['OPEN', 'EXPIRED'])
    // What is settled is not looked at again.
    expect(await isExpiring(expires)).toBe(false)
  })
})

describe('the door of one session', () => {
  const decided = (interactionId: string) =>
    event('interaction.settled', {
      ...{ interactionId, state: 'APPROVED', answer: null, feedback: null, editedInput: null, remember: false },
    })

  it('PROMISE-272: changes no row of another, whatever an event names', async () => {
    const [mine, theirs] = [await inStep(core, { leaseMs: 600_000 }), await inStep(core, { leaseMs: 600_000 })]
    const { messageId, executionId } = theirs
    const waits = `msg_waits${theirs.sessionId.slice(7)}`
    const [interactionId, quarantineId] = [newInteractionId(), newQuarantineId()]
    await theirs.append([prompt(waits), event('text.started', { messageId, index: 0 })])
    await theirs.append([...calledTool(messageId, 'call_t', 1), askedFor(messageId, 'call_t', interactionId)])
    await theirs.append([
      event('quarantine.opened', { quarantineId, executionId, quarantineKind: 'RECOVERY', reason: 'odd' }),
    ])
    const before = await storedRows(core.db, theirs.sessionId)
    const foreign = [
      event('prompt.withdrawn', { messageId: waits }),
      event('step.streamed', { messageId }),
      event('text.ended', { messageId, index: 0, text: 'x' }),
      event('tool.succeeded', { messageId, callId: 'call_t', output: 'done' }),
      decided(interactionId),
      event('quarantine.resolved', { quarantineId, action: 'DISCARD' }),
    ]
    for (const each of foreign)
      await expect(mine.append([each]), each.type).rejects.toMatchObject({ sqlState: 'HF001' })
    expect(await storedRows(core.db, theirs.sessionId)).toEqual(before)
    expect(await mine.types(6)).toEqual([])
  })

  it('PROMISE-273: a stop disarms what waits in its own session alone', async () => {
    const armedSession = async () => {
      const { sessionId, cut } = await twiceCutOff()
      const { messageId } = await reopened(cut)
      await approved({ ...cut, messageId }, 'call_s')
      return sessionId
    }
    const [mine, theirs] = [await armedSession(), await armedSession()]
    const armed = async (sessionId: string) => {
      const where = { where: { sessionId, wakePending: true } }
      return [
        await core.db.input.count(where),
        await core.db.recovery.count(where),
        await core.db.interaction.count(where),
      ]
    }
    const before = await armed(theirs)
    expect(before.every((count) => count > 0)).toBe(true)
    await core.eventLog.append({
      sessionId: mine,
      events: [event('interrupt.requested', { interruptedExecutionId: null })],
    })
    expect(await armed(mine)).toEqual([0, 0, 0])
    expect(await armed(theirs)).toEqual(before)
  })

  /** A step that waits for a person, of an execution that has ended. */
  async function reopened(cut: CutOff) {
    const messageId = newMessageId()
    await cut.append([event('step.started', { messageId, model: 'compatible/scripted', executionId: cut.executionId })])
    return { messageId }
  }

  it('PROMISE-274: a step ends over open parts and calls of another step, and not over its own', async () => {
    const cut = await inStep(core)
    const { messageId } = await reopened(cut)
    await cut.append([event('text.started', { messageId, index: 0 }), ...calledTool(messageId, 'call_o', 1)])
    const end = (id: string) => event('step.ended', { messageId: id, finish: 'stop', usage: noUsage, continues: false })
    await expect(cut.append([end(messageId)])).rejects.toMatchObject({ constraint: 'step_tools_settled' })
    await cut.append([event('step.streamed', { messageId }), end(cut.messageId)])
    expect((await cut.types()).filter((type) => type === 'step.ended')).toHaveLength(1)
  })
})

it('PROMISE-275: of two interrupts during one cleanup that find the same work armed, one is logged', async () => {
  const cut = await cutOff(core, { leaseMs: 600_000 })
  const { sessionId, executionId } = cut
  await core.db.claim.update({ where: { sessionId }, data: { phase: 'CANCELLING' } })
  const asks = event('interrupt.requested', { interruptedExecutionId: executionId })
  const late: Core = { ...core }
  const outcomes: string[] = []
  atAppend(late, hasEvent('interrupt.requested'), async (go, nth) => {
    if (nth === 1) await cut.append([asks])
    const outcome = await go()
    outcomes.push(outcome.kind)
    await core.eventLog.append({
      sessionId,
      events: [event('execution.settled', { executionId, outcome: 'INTERRUPTED', retryAt: null })],
      fence: { executionId, owner: null, phases: ['CANCELLING'] },
      claim: { kind: 'remove' },
    })
    return outcome
  })
  await interruptSession(late, 'default', { sessionId })
  expect(outcomes).toEqual(['stale'])
  expect((await cut.types()).filter((type) => type === 'interrupt.requested')).toHaveLength(1)
})

it('PROMISE-279: an approval is not answered and a question not approved: the field is named, and both stay open', async () => {
  const cut = await inStep(core, { leaseMs: 600_000 })
  const { sessionId, messageId } = cut
  const [approval, question] = [newInteractionId(), newInteractionId()]
  const asks = askedFor(messageId, 'call_b', question)
  await cut.append([...calledTool(messageId, 'call_a'), ...calledTool(messageId, 'call_b', 1)])
  await cut.append([
    askedFor(messageId, 'call_a', approval),
    event('interaction.requested', { ...(asks.payload as EventPayloads['interaction.requested']), kind: 'QUESTION' }),
  ])
  const tries = {
    'names an approval': [
      answerQuestion(core, 'default', { interactionId: approval, answer: 'yes' }),
      dismissQuestion(core, 'default', { interactionId: approval }),
    ],
    'names a question': (['APPROVE', 'DECLINE_AND_STOP', 'DECLINE_AND_CONTINUE'] as const).map((decision) =>
      decideApproval(core, 'default', { interactionId: question, decision }),
    ),
  }
  for (const [rule, answers] of Object.entries(tries))
    for (const answer of await Promise.all(answers))
      expect(answer).toMatchObject({
        type: 'InvalidInputError',
        field: 'interactionId',
        message: expect.stringContaining(rule),
      })
  expect(await core.db.interaction.count({ where: { sessionId, state: 'OPEN' } })).toBe(2)
})

it('every session of this file is consistent with its log', async () => {
  expect(await inconsistencies(core.db)).toEqual([])
})
