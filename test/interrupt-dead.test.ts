// Interrupts of executions whose owner cannot do the cleanup: dead, lapsed, set aside, or too slow for the one who waits (design section 8).
import { afterEach, describe, expect, it, vi } from 'vitest'
import { event } from '../src/events.ts'
import { cleanUp } from '../src/runner/cleanup.ts'
import type { Core } from '../src/runner/core.ts'
import { createHold } from '../src/runner/hold.ts'
import { interruptDeadlineMs } from '../src/runner/interrupt.ts'
import { replaySession } from '../src/verify.ts'
import { commitsSince, dieAt, resetTime, scanned, statusIn } from './support/asking.ts'
import { eventually } from './support/core.ts'
import {
  behindTools,
  type CutOffOptions,
  calledTool,
  inconsistencies,
  inStep,
  phased,
  quiet,
  startTool,
} from './support/cut-off.ts'
import { finish, finishing, hang, reply, text, toolCall } from './support/provider.ts'
import { hasEvent, holdAppend, interrupt, probe, prompt, spoken, useStage } from './support/stage.ts'

const stage = useStage()
afterEach(async () => {
  vi.restoreAllMocks()
  await resetTime(stage)
  expect(await inconsistencies(stage.db)).toEqual([])
})

const done = { type: 'InterruptSessionPayload', interrupted: true }
const ok = (word = 'ok') => reply(text(word), finish())
const failures = async (sessionId: string) =>
  Object.fromEntries(
    (await stage.payloads(sessionId, 'tool.failed')).map(({ callId, error }) => [callId, error.code] as const),
  )

/** A step with a tool that was started and one that was not, of an owner that is gone. */
async function inTools(core: Core, options: CutOffOptions = {}, phase = 'UNKNOWN') {
  const cut = await inStep(core, options)
  const { messageId, executionId, sessionId } = cut
  const asks = phase === 'CANCELLING' ? [event('interrupt.requested', { interruptedExecutionId: executionId })] : []
  const events = [...startTool(messageId, 'call_ran'), ...calledTool(messageId, 'call_not', 1), ...asks]
  await phased(core, cut, events, phase)
  return { ...cut, commits: (await stage.commits(sessionId)).length }
}

/** The session is as new: nothing of it is left, and a prompt runs. */
async function takesPrompts(core: Core, sessionId: string) {
  const requests = stage.provider.requests.length
  stage.provider.script(ok())
  await prompt(core, sessionId, 'and now')
  await core.coordinator.idle()
  expect(stage.provider.requests).toHaveLength(requests + 1)
  expect(spoken(stage.provider.requests.at(-1)!).at(-1)).toBe('user: and now')
  expect((await stage.payloads(sessionId, 'execution.settled')).at(-1)).toMatchObject({ outcome: 'SUCCEEDED' })
}

describe('an owner that is gone', () => {
  it.each(['READY', 'UNKNOWN', 'CONTINUE', 'SAFE', 'CANCELLING'])(
    'INT-15: with an expired lease in phase %s is settled by the node that was asked, in one append, before the answer',
    async (phase) => {
      const b = await stage.start()
      const cut = await inTools(b.core, {}, phase)
      expect(await interrupt(b.core, cut.sessionId)).toMatchObject(done)
      const asks = phase === 'CANCELLING' ? [] : ['interrupt.requested']
      expect(await commitsSince(stage, cut.sessionId, cut.commits)).toEqual([
        [...asks, 'tool.failed', 'tool.failed', 'step.interrupted', 'execution.settled'],
      ])
      expect(await failures(cut.sessionId)).toEqual({ call_ran: 'OUTCOME_UNKNOWN', call_not: 'ABORTED' })
      expect(await stage.payloads(cut.sessionId, 'execution.settled')).toMatchObject([
        { executionId: cut.executionId, outcome: 'INTERRUPTED' },
      ])
      expect(await stage.claim(cut.sessionId)).toBeNull()
      expect(await statusIn(stage, b, cut.sessionId)).toBe('IDLE')
      await takesPrompts(b.core, cut.sessionId)
    },
  )

  it('INT-15: killed with a lease of ten minutes left: the interrupt is answered with the settlement once it is known to be dead', async () => {
    const work = probe('work')
    const config = { livenessGraceMs: 400, scanMs: 300, leaseMs: 600_000, renewMs: 300_000 }
    const a = await stage.start({ tools: [work.tool], config })
    const s = await stage.session()
    stage.provider.script(reply(text('I'), toolCall('work', {}, 'call_w'), finishing('tool_calls'), hang()))
    await prompt(a.core, s)
    const { fail } = await work.run()
    const killed = a.kill()
    fail(new Error('gone'))
    await killed
    // Its own scans look for dead owners; the clock of the stage stands still.
    const b = await stage.start({ config })
    const looking = setInterval(() => void b.recovery.scan(), 100)
    try {
      const begun = performance.now()
      expect(await interrupt(b.core, s)).toMatchObject(done)
      expect(performance.now() - begun).toBeLessThan(15_000)
    } finally {
      clearInterval(looking)
      await b.recovery.scan()
    }
    expect(await failures(s)).toEqual({ call_w: 'OUTCOME_UNKNOWN' })
    expect(await stage.payloads(s, 'step.interrupted')).toHaveLength(1)
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'INTERRUPTED' }])
    expect(await stage.types(s)).not.toContain('step.recovered')
    expect(await stage.claim(s)).toBeNull()
    expect(await statusIn(stage, b, s)).toBe('IDLE')
    await b.core.coordinator.idle()
    expect(work.runs).toHaveLength(1)
    await takesPrompts(b.core, s)
  })
})

describe('the cleanup', () => {
  /** How often this core has begun to read a claim, from now on. */
  function looksAtClaim({ db }: Core) {
    let count = 0
    const ask = db.$queryRaw.bind(db) as (...args: unknown[]) => unknown
    const spy = vi.spyOn(db, '$queryRaw') as unknown as {
      mockImplementation(as: (...args: unknown[]) => unknown): void
    }
    spy.mockImplementation((...args) => {
      if (String((args[0] as { raw?: unknown }).raw ?? args[0]).includes('FROM "Claim" WHERE "sessionId"')) count++
      return ask(...args)
    })
    return { count: () => count }
  }

  /** Every phase that any claim of the database is given, from now on, in order. */
  async function recordPhases() {
    await stage.db.$executeRawUnsafe('CREATE TABLE IF NOT EXISTS phases_seen (n bigserial, id text, phase text)')
    await stage.db.$executeRawUnsafe(`CREATE OR REPLACE FUNCTION see_phase() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN INSERT INTO phases_seen (id, phase) VALUES (NEW."sessionId", NEW.phase); RETURN NULL; END $$`)
    await stage.db.$executeRawUnsafe(`CREATE OR REPLACE TRIGGER see_phase AFTER INSERT OR UPDATE ON "Claim"
      FOR EACH ROW EXECUTE FUNCTION see_phase()`)
    return async (id: string) =>
      (
        await stage.db.$queryRawUnsafe<{ phase: string }[]>(
          'SELECT phase FROM phases_seen WHERE id = $1 ORDER BY n',
          id,
        )
      ).map(({ phase }) => phase)
  }

  it.each(['before', 'after'] as const)(
    'INT-17: the process dies right %s its commit: what was accepted never resumes, and nobody ever sees phase CANCELLED',
    async (when) => {
      const phasesOf = await recordPhases()
      const work = probe('work')
      const a = await stage.start({ tools: [work.tool] })
      const b = await stage.start({ tools: [work.tool] })
      const s = await stage.session()
      stage.provider.script(reply(text('I'), toolCall('work', {}, 'call_w'), finishing('tool_calls'), hang()))
      await prompt(a.core, s)
      const { fail } = await work.run()
      const { died } = dieAt(a, 'step.interrupted', when)
      const answered = interrupt(a.core, s).catch(() => null)
      await stage.logged(s, 'interrupt.requested')
      fail(new Error('stopped'))
      await died
      await answered
      const report = await scanned(stage, b)
      expect(report).toMatchObject({ taken: 0, woken: 0, quarantined: when === 'before' ? 1 : 0 })
      if (when === 'before') {
        expect(await stage.claim(s)).toMatchObject({ phase: 'CANCELLING', owner: a.core.owner })
        expect(await statusIn(stage, b, s)).toBe('QUARANTINED')
        expect(await stage.types(s)).not.toContain('step.interrupted')
      } else {
        expect(await stage.claim(s)).toBeNull()
        expect(await statusIn(stage, b, s)).toBe('IDLE')
        expect((await stage.commits(s)).at(-1)).toEqual([
          'text.ended',
          'tool.failed',
          'step.interrupted',
          'execution.settled',
        ])
      }
      const phases = await phasesOf(s)
      expect(phases.at(-1)).toBe('CANCELLING')
      expect(phases).not.toContain('CANCELLED')
      expect(await scanned(stage, b)).toMatchObject({ taken: 0, woken: 0, quarantined: 0 })
      expect(stage.provider.requests).toHaveLength(1)
      expect(work.runs).toHaveLength(1)
    },
  )

  it('INT-07: over a step that has failed already, with a tool left open: the tool is failed with the claim, the step keeps its one terminal', async () => {
    const { core } = await stage.start()
    for (const by of ['its owner', 'another node'] as const) {
      const cut = await inStep(core, by === 'its owner' ? { owner: core.owner, leaseMs: 60_000 } : {})
      const { sessionId, executionId, messageId } = cut
      const usage = { inputTokens: 0, outputTokens: 0, reasoningTokens: 0, cachedInputTokens: 0 }
      const error = { code: 'PROVIDER_AUTH' as const, message: 'refused' }
      const failed = event('step.failed', { messageId, error, usage, continues: false })
      const asked = event('interrupt.requested', { interruptedExecutionId: executionId })
      await cut.append(startTool(messageId, 'call_left'))
      await behindTools(core, sessionId, () => cut.append([failed]))
      await phased(core, cut, [asked], 'CANCELLING')
      const commits = (await stage.commits(sessionId)).length
      if (by === 'its owner') {
        const hold = createHold(sessionId, executionId, core.owner)
        hold.end('cancelled')
        await cleanUp(core, hold, new Set())
      } else expect(await interrupt(core, sessionId)).toMatchObject(done)
      expect(await commitsSince(stage, sessionId, commits)).toEqual([['tool.failed', 'execution.settled']])
      const step = await stage.db.message.findUniqueOrThrow({ where: { id: messageId } })
      expect(step).toMatchObject({ status: 'FAILED', errorCode: 'PROVIDER_AUTH', errorMessage: 'refused' })
      expect(await stage.claim(sessionId)).toBeNull()
    }
  })

  it('INT-24: that its owner does not finish is answered with InterruptPendingError after 30 s; the request is kept, and settled by the owner later', async () => {
    expect(interruptDeadlineMs).toBe(30_000)
    const config = { leaseMs: 600_000, renewMs: 300_000 }
    const a = await stage.start({ config })
    const b = await stage.start({ config })
    const s = await stage.session()
    stage.provider.script(reply(text('x'), hang()))
    await prompt(a.core, s)
    const { executionId } = await stage.logged(s, 'execution.started')
    await stage.logged(s, 'text.started')
    const cleanup = holdAppend(a.core, hasEvent('step.interrupted'))
    let answer: unknown = null
    const answered = interrupt(b.core, s).then((given) => {
      answer = given
    })
    await cleanup.held
    const looks = looksAtClaim(b.core)
    const real = performance.now.bind(performance)
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => real() + interruptDeadlineMs - 5_000)
    // Two that begin after the clock was moved: the first of them has decided on it when the second begins.
    const moved = looks.count()
    await eventually('two more looks', async () => looks.count() >= moved + 2)
    expect(answer).toBeNull()
    clock.mockImplementation(() => real() + interruptDeadlineMs)
    const since = real()
    await answered
    expect(real() - since).toBeLessThan(4000)
    expect(answer).toMatchObject({ type: 'InterruptPendingError', sessionId: s, executionId })
    clock.mockRestore()
    expect(await stage.claim(s)).toMatchObject({ phase: 'CANCELLING', executionId })
    expect((await stage.types(s)).at(-1)).toBe('interrupt.requested')
    // Whoever asks again waits for the same cleanup; named, as that may be over before it looks.
    const again = interrupt(b.core, s, executionId)
    cleanup.release()
    expect(await again).toMatchObject(done)
    await a.core.coordinator.idle()
    expect(await stage.payloads(s, 'interrupt.requested')).toHaveLength(1)
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'INTERRUPTED' }])
    expect(stage.provider.requests).toHaveLength(1)
  })

  it('INT-24, INT-25: whose owner dies instead is set aside, never resumed, and finished by the node that is asked again', async () => {
    const work = probe('work')
    const a = await stage.start({ tools: [work.tool] })
    const b = await stage.start({ tools: [work.tool] })
    const s = await stage.session()
    stage.provider.script(reply(text('I'), toolCall('work', {}, 'call_w'), finishing('tool_calls'), hang()))
    await prompt(a.core, s)
    const { fail } = await work.run()
    const { died } = dieAt(a, 'step.interrupted', 'before')
    const answered = interrupt(a.core, s).catch(() => null)
    await stage.logged(s, 'interrupt.requested')
    fail(new Error('stopped'))
    await died
    await answered
    expect(await scanned(stage, b)).toMatchObject({ quarantined: 1 })
    expect(await statusIn(stage, b, s)).toBe('QUARANTINED')
    const commits = (await stage.commits(s)).length
    expect(await interrupt(b.core, s)).toMatchObject(done)
    expect(await commitsSince(stage, s, commits)).toEqual([
      ['quarantine.resolved', 'text.ended', 'tool.failed', 'step.interrupted', 'execution.settled'],
    ])
    expect(await failures(s)).toEqual({ call_w: 'OUTCOME_UNKNOWN' })
    expect(await statusIn(stage, b, s)).toBe('IDLE')
    await takesPrompts(b.core, s)
    expect(work.runs).toHaveLength(1)
  })
})

describe('what recovery has left behind', () => {
  it('INT-30: a quarantined CANCELLING claim ends with QuarantineResolved{RETRY} and the cleanup in one append', async () => {
    const b = await stage.start()
    const cut = await inTools(b.core, {}, 'CANCELLING')
    expect(await b.recovery.scan()).toMatchObject({ quarantined: 1 })
    const commits = (await stage.commits(cut.sessionId)).length
    expect(await statusIn(stage, b, cut.sessionId)).toBe('QUARANTINED')
    expect(await interrupt(b.core, cut.sessionId)).toMatchObject(done)
    expect(await commitsSince(stage, cut.sessionId, commits)).toEqual([
      ['quarantine.resolved', 'tool.failed', 'tool.failed', 'step.interrupted', 'execution.settled'],
    ])
    expect(await stage.payloads(cut.sessionId, 'quarantine.resolved')).toMatchObject([{ action: 'RETRY' }])
    expect(await failures(cut.sessionId)).toEqual({ call_ran: 'OUTCOME_UNKNOWN', call_not: 'ABORTED' })
    expect(await stage.payloads(cut.sessionId, 'execution.settled')).toMatchObject([{ outcome: 'INTERRUPTED' }])
    expect(await statusIn(stage, b, cut.sessionId)).toBe('IDLE')
    expect(await interrupt(b.core, cut.sessionId)).toMatchObject({ interrupted: false })
    await takesPrompts(b.core, cut.sessionId)
  })

  it.each(['UNKNOWN', 'READY'])(
    'INT-28: a recovery of phase %s whose continuation is pending: row settled and continuation withdrawn in the commit that asks; no "continue" ever',
    async (phase) => {
      const b = await stage.start()
      const { wake } = b.core.coordinator
      quiet(b.core)
      const cut = await inStep(b.core)
      const { sessionId } = cut
      if (phase === 'READY') {
        // Nothing promoted in this execution: a clean step before it, and a new prompt that nobody has begun.
        const usage = { inputTokens: 0, outputTokens: 0, reasoningTokens: 0, cachedInputTokens: 0 }
        const { messageId } = cut
        await phased(
          b.core,
          cut,
          [event('step.ended', { messageId, finish: 'stop', usage, continues: false })],
          'READY',
          null,
        )
      }
      expect(await b.recovery.scan()).toMatchObject({ taken: 1 })
      const recovered = (await stage.payloads(sessionId, 'step.recovered'))[0]!
      expect(recovered.phase).toBe(phase)
      const where = { id: recovered.continuationMessageId }
      const row = () => stage.db.recovery.findFirstOrThrow({ where: { sessionId } })
      expect(await stage.db.input.findUnique({ where })).toMatchObject({ state: 'PENDING' })
      expect(await row()).toMatchObject({ wakePending: true })
      const commits = (await stage.commits(sessionId)).length
      expect(await interrupt(b.core, sessionId)).toMatchObject(done)
      expect(await commitsSince(stage, sessionId, commits)).toEqual([['interrupt.requested']])
      expect(await stage.db.input.findUnique({ where })).toMatchObject({ state: 'WITHDRAWN', wakePending: false })
      expect(await row()).toMatchObject({ wakePending: false })
      // As a rebuild gives it.
      const { Input, Recovery } = (await replaySession(stage.db, sessionId)).tables
      expect([...Input.values()].find(({ id }) => id === where.id)).toMatchObject({ state: 'WITHDRAWN' })
      expect([...Recovery.values()]).toMatchObject([{ wakePending: false }])

      b.core.coordinator.wake = wake
      expect(await scanned(stage, b)).toMatchObject({ taken: 0, woken: 0, settled: 0, quarantined: 0 })
      expect(stage.provider.requests).toEqual([])
      await takesPrompts(b.core, sessionId)
      const c = await stage.start()
      await takesPrompts(c.core, sessionId)
      for (const request of stage.provider.requests) expect(spoken(request).join()).not.toContain('continue')
    },
  )
})
