import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { event, noUsage } from '../src/events.ts'
import { continuationIdOf, newMessageId, newQuarantineId, recoveryIdOf } from '../src/ids.ts'
import { createRecovery } from '../src/recovery/resolver.ts'
import { takeOver } from '../src/recovery/takeover.ts'
import type { Core } from '../src/runner/core.ts'
import { testClock } from './support/clock.ts'
import { eventually, startCore, type TestCore } from './support/core.ts'
import {
  askedFor,
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
import { finish, type Provider, reply, startProvider, text } from './support/provider.ts'
import { statementsDuring } from './support/statements.ts'

// The scans (design section 9). In the first part wakes are only counted; in the second sessions really run.

// Hundreds of sessions on a busy machine.
vi.setConfig({ testTimeout: 120_000 })

let database: TestDatabase
let provider: Provider
const opened: TestCore[] = []
beforeAll(async () => {
  database = await createTestDatabase()
  provider = await startProvider()
})
afterAll(async () => {
  await provider?.close()
  await database?.drop()
})
afterEach(async () => {
  for (const { stop } of opened.splice(0)) await stop()
  provider.expectDone()
})

async function open(over: Partial<Parameters<typeof startCore>[0]> = {}) {
  const running = await startCore({
    url: database.url,
    models: { compatible: { baseUrl: provider.baseUrl } },
    ...over,
    config: { livenessGraceMs: 60_000, ...over.config },
  })
  opened.push(running)
  return running
}

/** Nothing that this session owes is left for the scans of later tests. */
const settleDown = (core: Core, { sessionId }: { sessionId: string }) =>
  core.eventLog.append({ sessionId, events: [event('interrupt.requested', { interruptedExecutionId: null })] })

describe('what a scan finds', () => {
  it('REC-38: two scans with no drain in between: one StepRecovered, two wakes, one continuation, still armed', async () => {
    const { core, recovery } = await open()
    const woken = quiet(core)
    const cut = await inStep(core)
    await recovery.scan()
    await recovery.scan()
    expect((await cut.types()).filter((type) => type === 'step.recovered')).toHaveLength(1)
    expect(woken).toEqual([cut.sessionId, cut.sessionId])
    expect(await core.db.recovery.findUnique({ where: { id: recoveryIdOf(cut.executionId) } })).toMatchObject({
      wakePending: true,
    })
    expect(await core.db.input.count({ where: { sessionId: cut.sessionId, kind: 'CONTINUATION' } })).toBe(1)
    await settleDown(core, cut)
  })

  it('REC-24: a live claim is left alone', async () => {
    const { core, recovery } = await open()
    const woken = quiet(core)
    const cut = await cutOff(core, { leaseMs: 30_000 })
    expect(await recovery.scan()).toMatchObject({ taken: 0, woken: 0 })
    expect(await cut.types(3)).toEqual([])
    expect(woken).toEqual([])
    await core.db.claim.delete({ where: { sessionId: cut.sessionId } })
    await cut.append([event('execution.settled', { executionId: cut.executionId, outcome: 'CLEARED', retryAt: null })])
    await settleDown(core, cut)
  })

  it('REC-21: 250 expired SAFE claims are cleared in pages of 100 by a key cursor', async () => {
    const { core, recovery } = await open()
    quiet(core)
    const cuts = await Promise.all(Array.from({ length: 250 }, () => cutOff(core)))
    await core.db.claim.updateMany({ data: { phase: 'SAFE' } })
    const keys = await core.db.$queryRaw<{ expiry: string; id: string }[]>`
      SELECT "expiresAt"::text AS expiry, "sessionId" AS id FROM "Claim" ORDER BY "expiresAt", "sessionId"`
    expect(keys).toHaveLength(250)
    const bound: unknown[][] = []
    const scanning = async () => expect(await recovery.scan()).toMatchObject({ taken: 250, failed: 0 })
    const statements = await statementsDuring(new URL(database.url).pathname.slice(1), scanning, bound)
    const pages = bound.filter((_, n) => /FROM "Claim" c\s+WHERE c."expiresAt" <= .* LIMIT/s.test(statements[n]!))
    // Each from behind the last row of the one before.
    expect(pages).toEqual([
      ['-infinity', '', 100],
      [keys[99]!.expiry, keys[99]!.id, 100],
      [keys[199]!.expiry, keys[199]!.id, 100],
    ])
    expect(await core.db.claim.count()).toBe(0)
    expect(await core.db.recovery.count({ where: { sessionId: { in: cuts.map(({ sessionId }) => sessionId) } } })).toBe(
      0,
    )
    await Promise.all(cuts.map((cut) => settleDown(core, cut)))
  })

  it('REC-12, REC-20, REC-22, REC-42: 100 rows that cannot be decoded, and one that cannot be read, hide no good one; each is set aside once, with a reason', async () => {
    const said: Record<string, unknown>[] = []
    const { core, recovery } = await open({ log: (line) => said.push(line) })
    quiet(core)
    const bad = await Promise.all(Array.from({ length: 100 }, () => cutOff(core, { leaseMs: -10_000 })))
    const unreadable = await cutOff(core, { leaseMs: -9_000 })
    const good = await cutOff(core)
    await core.db.$executeRaw`ALTER TABLE "Claim" DROP CONSTRAINT "Claim_phase_check"`
    for (const { sessionId } of bad)
      await core.db.$executeRaw`UPDATE "Claim" SET phase = 'DREAMING' WHERE "sessionId" = ${sessionId}`
    await core.db.$executeRaw`UPDATE "Claim" SET "expiresAt" = '-infinity' WHERE "sessionId" = ${unreadable.sessionId}`
    expect(await recovery.scan()).toMatchObject({ taken: 1, quarantined: 101 })
    expect(await good.types(3)).toEqual(['step.recovered'])
    const entries = await core.db.quarantine.findMany({ where: { kind: 'EXECUTION', resolvedAt: null } })
    expect(entries).toHaveLength(101)
    for (const { reason, sessionId } of entries) {
      if (sessionId === unreadable.sessionId) expect(reason).toMatch(/cannot decide on it \(\w+\): .+/)
      else expect(reason).toContain('DREAMING')
    }
    expect(said.filter(({ sessionId, level }) => sessionId === unreadable.sessionId && level === 'error')).toHaveLength(
      1,
    )

    for (let n = 0; n < 100; n++) expect(await recovery.scan()).toMatchObject({ quarantined: 0, taken: 0, failed: 0 })
    const again = await open()
    quiet(again.core)
    expect(await again.recovery.scan()).toMatchObject({ quarantined: 0, taken: 0 })
    // Nor does it keep the scans from what comes later.
    const later = await cutOff(core)
    expect(await again.recovery.scan()).toMatchObject({ quarantined: 0, taken: 1 })
    await settleDown(core, later)
    expect(await core.db.event.count({ where: { type: 'quarantine.opened' } })).toBe(101)
    expect(await core.metrics.text()).toContain('holdfast_quarantined 101')

    await core.db.claim.deleteMany()
    for (const cut of [...bad, unreadable]) {
      const { id } = entries.find(({ sessionId }) => sessionId === cut.sessionId)!
      const end = event('execution.settled', { executionId: cut.executionId, outcome: 'CLEARED', retryAt: null })
      await cut.append([event('quarantine.resolved', { quarantineId: id, action: 'DISCARD' }), end])
      await settleDown(core, cut)
    }
    await settleDown(core, good)
    await core.db.$executeRaw`
      ALTER TABLE "Claim" ADD CONSTRAINT "Claim_phase_check" CHECK (phase IN ('READY', 'UNKNOWN', 'SAFE', 'CONTINUE', 'CANCELLING', 'CANCELLED'))`
  })

  it('REC-17: a recovery row still armed whose continuation is promoted is settled as a replay settles it, with no event', async () => {
    const { core, recovery } = await open()
    quiet(core)
    const cut = await cutOff(core)
    await recovery.scan()
    const id = continuationIdOf(cut.executionId)
    await cut.append([
      event('prompt.promoted', {
        messageId: id,
        inputKind: 'CONTINUATION',
        text: 'continue',
        attachments: [],
        hidden: true,
      }),
    ])
    const recoveryId = recoveryIdOf(cut.executionId)
    expect(await core.db.recovery.findUnique({ where: { id: recoveryId } })).toMatchObject({ wakePending: false })
    await core.db.recovery.update({ where: { id: recoveryId }, data: { wakePending: true } })
    const { length } = await cut.events()
    expect(await recovery.scan()).toMatchObject({ settled: 1, quarantined: 0 })
    expect(await core.db.recovery.findUnique({ where: { id: recoveryId } })).toMatchObject({ wakePending: false })
    expect(await cut.events()).toHaveLength(length)
    await settleDown(core, cut)
  })

  it('REC-19: a recovery row that points into another session is refused; forced in, it alone is set aside and the other work goes on', async () => {
    const { core, recovery } = await open()
    const woken = quiet(core)
    const one = await cutOff(core)
    const other = await cutOff(core)
    await recovery.scan()
    woken.length = 0
    const executionId = `exe_.forced${one.executionId.slice(5)}`
    const forced = {
      id: recoveryIdOf(executionId),
      sessionId: one.sessionId,
      executionId,
      phase: 'READY',
      continuationMessageId: continuationIdOf(other.executionId),
      wakePending: true,
      createdAt: new Date(),
    }
    await expect(core.db.recovery.create({ data: forced })).rejects.toThrow(/[Ff]oreign key/)
    await core.db.$executeRaw`ALTER TABLE "Recovery" DROP CONSTRAINT "Recovery_sessionId_continuationMessageId_fkey"`
    await core.db.recovery.create({ data: forced })
    expect(await recovery.scan()).toMatchObject({ quarantined: 1 })
    expect(await recovery.scan()).toMatchObject({ quarantined: 0 })
    expect(await core.db.quarantine.findMany({ where: { sessionId: one.sessionId } })).toMatchObject([
      { kind: 'RECOVERY', executionId, resolvedAt: null },
    ])
    expect(woken.filter((id) => id === one.sessionId)).toHaveLength(2)
    expect(woken.filter((id) => id === other.sessionId)).toHaveLength(2)
    await core.db.recovery.delete({ where: { id: forced.id } })
    await core.db.$executeRaw`
      ALTER TABLE "Recovery" ADD CONSTRAINT "Recovery_sessionId_continuationMessageId_fkey" FOREIGN KEY ("sessionId", "continuationMessageId")
      REFERENCES "Input" ("sessionId", id) ON DELETE RESTRICT ON UPDATE RESTRICT`
    await settleDown(core, one)
    await settleDown(core, other)
  })

  it('REC-23, REC-43: an armed input without a claim is woken, an unarmed one never, and none of a parked session', async () => {
    const { core, recovery } = await open()
    const woken = quiet(core)
    const made = async (armed: boolean) => {
      const sessionId = `ses_armed${armed}${Date.now()}`
      await core.eventLog.append({
        sessionId,
        events: [
          event('session.created', {
            tenant: 'default',
            title: null,
            instructions: null,
            model: 'compatible/scripted',
          }),
          prompt(`msg_armed${armed}${Date.now()}`, armed),
        ],
      })
      return sessionId
    }
    const armed = await made(true)
    await made(false)
    expect(await recovery.scan()).toMatchObject({ woken: 1 })
    expect(woken).toEqual([armed])
    await core.eventLog.append({ sessionId: armed, events: [event('session.parked', { reason: 'tested' })] })
    // What a park disarms is forced back: the park alone has to hold the scan off.
    await core.db.input.updateMany({ where: { sessionId: armed }, data: { wakePending: true } })
    expect(await recovery.scan()).toMatchObject({ woken: 0 })
    await core.db.input.updateMany({ where: { sessionId: armed }, data: { wakePending: false } })
    expect(await core.metrics.text()).toContain('holdfast_parked 1')
  })

  it.each([
    ['an armed input', false],
    ['a decided interaction', true],
  ])('REC-43: %s without a claim is woken, but not in a session that is parked or set aside', async (_, decided) => {
    const { core, recovery } = await open()
    const woken = quiet(core)
    /** A session without a claim that owes this and nothing else. */
    const owing = async () => {
      const cut = await inStep(core)
      const { messageId, executionId, sessionId } = cut
      const usage = noUsage
      if (decided) {
        // Of two one stays open: the session would wait, but for the other one.
        const interactionId = `req_.${executionId.slice(5)}`
        const asked = (callId: string, index: number) => [
          ...calledTool(messageId, callId, index),
          askedFor(messageId, callId, `${interactionId}${callId}`),
        ]
        await cut.append([
          ...asked('c0', 0),
          ...asked('c1', 1),
          event('step.streamed', { messageId }),
          event('execution.settled', { executionId, outcome: 'WAITING', retryAt: null }),
        ])
        await core.db.claim.delete({ where: { sessionId } })
        await cut.append([
          event('interaction.settled', {
            interactionId: `${interactionId}c0`,
            state: 'APPROVED',
            answer: null,
            feedback: null,
            editedInput: null,
            remember: false,
          }),
        ])
      } else {
        await cut.append([
          event('step.ended', { messageId, finish: 'stop', usage, continues: false }),
          event('execution.settled', { executionId, outcome: 'SUCCEEDED', retryAt: null }),
        ])
        await core.db.claim.delete({ where: { sessionId } })
        await cut.append([prompt(newMessageId())])
      }
      return cut
    }
    /** What sets a session apart from the others may disarm it: forced back, so that this alone has to hold the scan off. */
    const arm = async ({ sessionId }: CutOff) => {
      const data = { wakePending: true }
      const armed = decided
        ? core.db.interaction.updateMany({ where: { sessionId, state: 'APPROVED' }, data })
        : core.db.input.updateMany({ where: { sessionId, state: 'PENDING' }, data })
      expect(await armed).toEqual({ count: 1 })
    }
    const [free, parked, aside] = [await owing(), await owing(), await owing()]
    await parked.append([event('session.parked', { reason: 'tested' })])
    const quarantineId = newQuarantineId()
    const opened = { executionId: aside.executionId, quarantineKind: 'EXECUTION', reason: 'tested' } as const
    await aside.append([event('quarantine.opened', { quarantineId, ...opened })])
    for (const cut of [free, parked, aside]) await arm(cut)
    for (let n = 0; n < 3; n++) expect(await recovery.scan()).toMatchObject({ woken: 1, failed: 0 })
    expect(woken).toEqual([free.sessionId, free.sessionId, free.sessionId])

    // Each is woken by the same scan once nothing sets it apart any more.
    await parked.append([event('session.resume_requested', {})])
    await aside.append([event('quarantine.resolved', { quarantineId, action: 'RETRY' })])
    for (const cut of [parked, aside]) await arm(cut)
    expect(await recovery.scan()).toMatchObject({ woken: 3 })
    expect(woken.slice(3).toSorted()).toEqual([free, parked, aside].map(({ sessionId }) => sessionId).toSorted())
    for (const cut of [free, parked, aside]) await settleDown(core, cut)
  })

  it('REC-44: a session given back with a step owed is woken when its time has come by the database, not before', async () => {
    const { core, recovery } = await open()
    const woken = quiet(core)
    const cut = await cutOff(core)
    await core.db.claim.delete({ where: { sessionId: cut.sessionId } })
    const retryAt = new Date(Date.now() + 600_000).toISOString()
    await cut.append([
      promoted(cut.promptId),
      event('execution.settled', { executionId: cut.executionId, outcome: 'RELEASED', retryAt }),
    ])
    expect(await recovery.scan()).toMatchObject({ woken: 0 })
    await database.shiftClock(590_000)
    expect(await recovery.scan()).toMatchObject({ woken: 0 })
    await database.shiftClock(610_000)
    expect(await recovery.scan()).toMatchObject({ woken: 1 })
    await database.shiftClock(0)
    expect(woken).toEqual([cut.sessionId])
    await settleDown(core, cut)
  })

  it('REC-35, HITL: a session that waits for a person owes nothing; past its expiry the question is EXPIRED and the session woken', async () => {
    const { core, recovery } = await open()
    const woken = quiet(core)
    const cut = await inStep(core)
    const { messageId, executionId, sessionId } = cut
    const interactionId = `req_.${executionId.slice(5)}`
    await cut.append([
      ...startTool(messageId, 'c0', 0).slice(0, 2),
      askedFor(messageId, 'c0', interactionId, new Date(Date.now() + 60_000).toISOString()),
      event('step.streamed', { messageId }),
      event('execution.settled', { executionId, outcome: 'WAITING', retryAt: null }),
    ])
    await core.db.claim.delete({ where: { sessionId } })
    await cut.append([prompt(newMessageId())])
    expect(await recovery.scan()).toMatchObject({ woken: 0, expired: 0 })
    await database.shiftClock(61_000)
    expect(await recovery.scan()).toMatchObject({ woken: 1, expired: 1 })
    expect(await recovery.scan()).toMatchObject({ woken: 1, expired: 0 })
    await database.shiftClock(0)
    expect(woken).toEqual([sessionId, sessionId])
    expect(await core.db.interaction.findUnique({ where: { id: interactionId } })).toMatchObject({
      state: 'EXPIRED',
      wakePending: true,
    })
    await settleDown(core, cut)
  })

  it('OPS-09: scans follow each other by the interval, also after one that failed; stop ends them', async () => {
    const clock = testClock()
    const said: Record<string, unknown>[] = []
    const { core, link } = await open({ clock, log: (line) => said.push(line) })
    const woken = quiet(core)
    const recovery = createRecovery(core, null)
    const cut = await cutOff(core)
    await recovery.start()
    await clock.armed(core.config.scanMs)
    expect(woken).toEqual([cut.sessionId])
    link.cut()
    await clock.advance(core.config.scanMs)
    await eventually('the failed scan', async () => said.some(({ pass }) => pass !== undefined))
    link.mend()
    await clock.armed(core.config.scanMs)
    await clock.advance(core.config.scanMs)
    await eventually('a scan after it', async () => woken.length > 1)
    await clock.armed(core.config.scanMs)
    await recovery.stop()
    expect(clock.timers()).not.toContain(core.config.scanMs)
    await settleDown(core, cut)
  })

  it('OPS-09: one scan at a time: those who ask while one runs share the next one', async () => {
    const { core, recovery } = await open()
    quiet(core)
    const first = recovery.scan()
    const second = recovery.scan()
    expect(recovery.scan()).toBe(second)
    expect(second).not.toBe(first)
    await Promise.all([first, second])
  })
})

describe('what runs after it', () => {
  const say = (words: string) => reply(text(words), finish())
  const idle = async (core: Core, sessionId: string) => {
    await core.coordinator.idle()
    expect(await hasClaim(core, sessionId)).toBe(false)
    const session = await core.db.session.findUniqueOrThrow({ where: { id: sessionId } })
    expect([session.stepOwed, await core.db.input.count({ where: { sessionId, state: 'PENDING' } })]).toEqual([
      false,
      0,
    ])
  }
  const asked = (n: number) =>
    provider.requests.at(n)!.body.messages.map(({ role, content }) => `${role}: ${JSON.stringify(content ?? null)}`)

  it('REC-01, REC-15, REC-18: after READY the input runs once, and the continuation is hidden from the model', async () => {
    const { core, recovery } = await open()
    const cut = await cutOff(core)
    provider.script(say('done'))
    const before = provider.requests.length
    await recovery.scan()
    await idle(core, cut.sessionId)
    expect(provider.requests).toHaveLength(before + 1)
    expect(asked(-1)).toEqual(['user: "hi"'])
    const continued = (await cut.events()).find(
      ({ type, payload }) =>
        type === 'prompt.promoted' && (payload as { messageId: string }).messageId.includes('continue'),
    )
    expect(continued!.payload).toMatchObject({ hidden: true })
    expect(await core.db.recovery.findMany({ where: { sessionId: cut.sessionId } })).toMatchObject([
      { wakePending: false },
    ])
    expect((await core.db.session.findUniqueOrThrow({ where: { id: cut.sessionId } })).recoveries).toBe(0)
  })

  it('REC-03, REC-04, REC-18: after UNKNOWN the model sees what was kept, the lost tool and the continuation; the tool does not run again', async () => {
    let ran = 0
    const { core, recovery } = await open({
      tools: [{ name: 'work', description: 'Works.', inputSchema: { type: 'object' }, execute: () => ++ran }],
    })
    const cut = await inStep(core)
    const { messageId, sessionId } = cut
    await cut.append([event('text.started', { messageId, index: 0 })])
    await core.db.chunk.create({ data: { sessionId, messageId, index: 0, offset: 0, text: 'I will' } })
    await cut.append(startTool(messageId, 'c1', 1))
    provider.script(say('and so on'))
    await recovery.scan()
    await idle(core, sessionId)
    expect(ran).toBe(0)
    const messages = asked(-1)
    expect(messages[0]).toBe('user: "hi"')
    expect(messages[1]).toContain('I will')
    expect(messages[2]).toMatch(/^tool: .*not known/)
    expect(messages[3]).toBe('user: "continue"')
  })

  it('REC-05: after CONTINUE the next step runs once, with the tool result and without the text of the continuation', async () => {
    const { core, recovery } = await open()
    const cut = await inStep(core)
    const { messageId } = cut
    await phased(
      core,
      cut,
      [
        ...startTool(messageId, 'c1'),
        event('tool.succeeded', { messageId, callId: 'c1', output: 'forty-two' }),
        event('step.ended', { messageId, finish: 'tool-calls', usage: noUsage, continues: true }),
      ],
      'CONTINUE',
    )
    provider.script(say('it is 42'))
    await recovery.scan()
    await idle(core, cut.sessionId)
    const messages = asked(-1).join('\n')
    expect(messages).toContain('forty-two')
    expect(messages).not.toContain('continue')
  })

  it('REC-37: nothing left to ask: the continuation and the settlement are one commit, with no step and no request', async () => {
    const { core, recovery } = await open()
    const cut = await cutOff(core)
    await cut.append([event('prompt.withdrawn', { messageId: cut.promptId })])
    const before = provider.requests.length
    await recovery.scan()
    await idle(core, cut.sessionId)
    expect(provider.requests).toHaveLength(before)
    const added = (await cut.events()).slice(4)
    expect(added.map(({ type }) => type)).toEqual([
      'step.recovered',
      'execution.started',
      'prompt.promoted',
      'execution.settled',
    ])
    expect(added[2]!.payload).toMatchObject({ hidden: true })
    expect(added[2]!.appendId).toBe(added[3]!.appendId)
  })

  it.each([
    ['a resume', 'resume'],
    ['a new armed prompt', 'prompt'],
  ])('REC-28: a parked session with inputs that wait runs on after %s, the continuation first', async (_, by) => {
    const { core, recovery } = await open()
    const cut = await inStep(core, { leaseMs: -25 * 3_600_000 })
    const { sessionId } = cut
    const waiting = { steer: newMessageId(), queued: newMessageId() }
    await cut.append([
      prompt(waiting.steer, false, 'a steer'),
      event('prompt.admitted', {
        messageId: waiting.queued,
        inputKind: 'PROMPT',
        text: 'a queued one',
        attachments: [],
        delivery: 'QUEUE',
        requestExecution: false,
      }),
    ])
    const before = provider.requests.length
    await recovery.scan()
    await recovery.scan()
    await core.coordinator.idle()
    expect(provider.requests).toHaveLength(before)
    const parked = await core.db.session.findUniqueOrThrow({ where: { id: sessionId } })
    expect(parked.parkedReason).not.toBeNull()
    const news = newMessageId()
    provider.script(say('back again'), say('and the last'))
    await cut.append(by === 'resume' ? [event('session.resume_requested', {})] : [prompt(news, true, 'a new one')])
    await recovery.scan()
    await idle(core, sessionId)
    expect(provider.requests).toHaveLength(before + 2)
    const promotions = (await cut.events()).filter(({ type }) => type === 'prompt.promoted')
    expect(promotions.map(({ payload }) => (payload as { messageId: string }).messageId)).toEqual([
      cut.promptId,
      continuationIdOf(cut.executionId),
      waiting.steer,
      ...(by === 'resume' ? [] : [news]),
      waiting.queued,
    ])
    const said = ['user: "continue"', 'user: "a steer"', ...(by === 'resume' ? [] : ['user: "a new one"'])]
    expect(asked(-2).slice(-said.length)).toEqual(said)
    expect(asked(-1).at(-1)).toBe('user: "a queued one"')
    const session = await core.db.session.findUniqueOrThrow({ where: { id: sessionId } })
    expect(session).toMatchObject({ parkedReason: null, recoveries: 0 })
  })

  it('REC-14: scans of three processes at once, twice, give one outcome', async () => {
    const cores = [await open(), await open(), await open()]
    const { core } = cores[0]!
    const cuts: CutOff[] = []
    for (let n = 0; n < 6; n++) cuts.push(await inStep(core))
    provider.script(...cuts.map(() => say('once')))
    await Promise.all(cores.map(({ recovery }) => recovery.scan()))
    await Promise.all(cores.map(({ recovery }) => recovery.scan()))
    await Promise.all(cores.map((running) => running.core.coordinator.idle()))
    for (const cut of cuts) {
      await idle(core, cut.sessionId)
      expect((await cut.types()).filter((type) => type === 'step.recovered')).toHaveLength(1)
    }
  })

  it('REC-36: a takeover whose commit is not answered is found done by the next scan', async () => {
    const { core } = await open()
    quiet(core)
    const cut = await cutOff(core)
    const lost = await open()
    quiet(lost.core)
    const { db } = lost.core
    const original = db.$transaction.bind(db) as (work: unknown) => Promise<unknown>
    // The commit happens, its reply does not arrive.
    db.$transaction = (async (work: unknown) => {
      await original(work)
      throw Object.assign(new Error('Connection terminated unexpectedly'), { code: 'P1017' })
    }) as unknown as typeof db.$transaction
    expect(await lost.recovery.scan()).toMatchObject({ failed: 1, quarantined: 0 })
    expect(await takeOver(core, cut.sessionId, cut.executionId, { kind: 'expired' })).toBe('gone')
    expect(await cut.types(3)).toEqual(['step.recovered'])
    await settleDown(core, cut)
  })
})

it('every session of this file is consistent with its log', async () => {
  const { core } = await open()
  expect(await inconsistencies(core.db)).toEqual([])
})
