// Deaths and interrupts in the middle of a compaction (design sections 8, 9 and 11).
import { afterEach, describe, expect, it } from 'vitest'
import { compactSession } from '../src/runner/compact.ts'
import type { Core } from '../src/runner/core.ts'
import { dieAt, resetTime, said, scanned, statusIn } from './support/asking.ts'
import type { TestCore } from './support/core.ts'
import { errorBody, finish, gate, hang, reply, status, text, toolCall, wait } from './support/provider.ts'
import { instant, interrupt, newId, prompt, spoken, tenant, useStage } from './support/stage.ts'

const stage = useStage()
afterEach(() => resetTime(stage))

const look = () => instant('look').tool
const small = { models: { models: { 'compatible/scripted': { contextTokens: 4000 } } } }
const compaction = (core: Core, sessionId: string, messageId = newId('msg_')) =>
  compactSession(core, tenant, { sessionId, messageId })
const overflow = () => status(400, errorBody('context_length_exceeded'))
const users = (n: number) =>
  spoken(stage.provider.requests[n]!).flatMap((line) => (line.startsWith('user: ') ? [line.slice(6)] : []))
const running = (sessionId: string) => stage.db.message.count({ where: { sessionId, status: 'RUNNING' } })

/** Two exchanges; after the second one the next request is estimated to be too long for a small model. */
async function talked(a: TestCore): Promise<string> {
  const s = await stage.session()
  for (const [word, input] of [
    ['alpha', 10],
    ['beta', 3500],
  ] as const) {
    stage.provider.script(reply(text(`re ${word}`), finish('stop', { input })))
    await prompt(a.core, s, word)
    await a.core.coordinator.idle()
  }
  return s
}

describe('a death', () => {
  it('COMP-16: in a manual compaction: it has failed and nothing is owed, in one append; another request for one works', async () => {
    const a = await stage.start()
    const b = await stage.start()
    const s = await talked(a)
    stage.provider.script(hang())
    await compaction(a.core, s)
    await stage.provider.request(2)
    await a.kill()
    const before = (await stage.commits(s)).length
    expect(await scanned(stage, b)).toMatchObject({ taken: 1 })
    await scanned(stage, b)
    expect((await stage.commits(s)).slice(before)).toEqual([['compaction.failed', 'execution.settled']])
    expect(await stage.payloads(s, 'compaction.failed')).toMatchObject([{ error: { code: 'OUTCOME_UNKNOWN' } }])
    expect((await stage.payloads(s, 'execution.settled')).at(-1)).toMatchObject({ outcome: 'CLEARED' })
    expect(await running(s)).toBe(0)
    expect(stage.provider.requests).toHaveLength(3)
    stage.provider.script(said('the summary'), said('C'))
    await compaction(b.core, s)
    await prompt(b.core, s, 'gamma')
    await b.core.coordinator.idle()
    stage.provider.expectDone()
    expect(await stage.payloads(s, 'compaction.ended')).toHaveLength(1)
    expect(users(4)).toContain('gamma')
  })

  it.each([
    ['COMP-16: in a manual compaction with a step owed', 'in'],
    ['COMP-17: right after a manual compaction with a step owed', 'after'],
  ])('%s: the step goes on, once', async (_title, when) => {
    const a = await stage.start({ tools: [look()] })
    const b = await stage.start({ tools: [look()] })
    const s = await talked(a)
    const open = gate()
    stage.provider.script(
      reply(wait(open.promise), toolCall('look', {}), finish('tool_calls')),
      when === 'in' ? hang() : said('the summary'),
    )
    await prompt(a.core, s, 'gamma')
    await stage.provider.request(2)
    await compaction(a.core, s)
    const death = when === 'in' ? null : dieAt(a, 'compaction.ended', 'after')
    open.open()
    await stage.provider.request(3)
    await (death === null ? a.kill() : death.died)
    expect(await stage.claim(s)).toMatchObject({ phase: 'CONTINUE' })
    const before = (await stage.commits(s)).length
    stage.provider.script(said('looked'))
    expect(await scanned(stage, b)).toMatchObject({ taken: 1 })
    await scanned(stage, b)
    stage.provider.expectDone()
    expect((await stage.commits(s))[before]).toEqual([
      ...(when === 'in' ? ['compaction.failed'] : []),
      'step.recovered',
    ])
    expect(await stage.payloads(s, 'step.recovered')).toMatchObject([{ phase: 'CONTINUE' }])
    expect(stage.provider.requests).toHaveLength(5)
    expect(users(4)).not.toContain('continue')
    expect(spoken(stage.provider.requests[4]!).slice(-2)).toEqual(['call look {}', 'result done'])
    expect(await running(s)).toBe(0)
  })

  it.each([
    ['COMP-20: in an automatic compaction before a promotion', 'in'],
    ['COMP-17: right after an automatic compaction', 'after'],
  ])('%s: the input is still pending and runs once', async (_title, when) => {
    const a = await stage.start(small)
    const b = await stage.start()
    const s = await talked(a)
    stage.provider.script(when === 'in' ? hang() : said('the summary'))
    const death = when === 'in' ? null : dieAt(a, 'compaction.ended', 'after')
    const gamma = await prompt(a.core, s, 'gamma')
    await stage.provider.request(2)
    await (death === null ? a.kill() : death.died)
    expect(await stage.db.input.findUnique({ where: { id: gamma } })).toMatchObject({ state: 'PENDING' })
    const before = (await stage.commits(s)).length
    stage.provider.script(said('G'))
    expect(await scanned(stage, b)).toMatchObject({ taken: 1 })
    await scanned(stage, b)
    stage.provider.expectDone()
    expect((await stage.commits(s))[before]).toEqual([
      ...(when === 'in' ? ['compaction.failed'] : []),
      'step.recovered',
    ])
    expect(await stage.payloads(s, 'step.recovered')).toMatchObject([{ phase: 'CONTINUE' }])
    if (when === 'in')
      expect(await stage.payloads(s, 'compaction.failed')).toMatchObject([{ error: { code: 'OUTCOME_UNKNOWN' } }])
    expect(stage.provider.requests).toHaveLength(4)
    expect(users(3).at(-1)).toBe('gamma')
    expect(users(3)).not.toContain('continue')
    const promoted = await stage.payloads(s, 'prompt.promoted')
    expect(promoted.filter(({ messageId }) => messageId === gamma)).toHaveLength(1)
  })

  it('COMP-21: in the compaction of an overflow: step and compaction have failed in one append, then the continuation', async () => {
    const a = await stage.start()
    const b = await stage.start()
    const s = await talked(a)
    stage.provider.script(overflow(), hang())
    const gamma = await prompt(a.core, s, 'gamma')
    await stage.provider.request(3)
    await a.kill()
    const before = (await stage.commits(s)).length
    stage.provider.script(said('G'))
    expect(await scanned(stage, b)).toMatchObject({ taken: 1 })
    stage.provider.expectDone()
    expect((await stage.commits(s))[before]).toEqual(['compaction.failed', 'step.failed', 'step.recovered'])
    expect(await stage.payloads(s, 'compaction.failed')).toMatchObject([{ error: { code: 'OUTCOME_UNKNOWN' } }])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([
      { error: { code: 'OUTCOME_UNKNOWN' }, continues: false },
    ])
    expect(await stage.payloads(s, 'step.recovered')).toMatchObject([{ phase: 'UNKNOWN' }])
    expect(users(4).slice(-2)).toEqual(['gamma', 'continue'])
    const promoted = await stage.payloads(s, 'prompt.promoted')
    expect(promoted.filter(({ messageId }) => messageId === gamma)).toHaveLength(1)
  })
})

describe('an interrupt', () => {
  it.each(['manual', 'automatic', 'overflow'] as const)(
    'COMP-22: in a compaction (%s): its request is aborted, the cleanup settles it, and nothing follows',
    async (kind) => {
      const a = await stage.start(kind === 'automatic' ? small : {})
      const s = await talked(a)
      if (kind === 'overflow') stage.provider.script(overflow())
      stage.provider.script(hang())
      if (kind === 'manual') await compaction(a.core, s)
      else await prompt(a.core, s, 'gamma')
      const nth = kind === 'overflow' ? 3 : 2
      await stage.provider.request(nth)
      const before = (await stage.commits(s)).length
      expect(await interrupt(a.core, s)).toMatchObject({ type: 'InterruptSessionPayload', interrupted: true })
      await stage.provider.aborted(nth)
      await a.core.coordinator.idle()
      expect((await stage.commits(s)).slice(before)).toEqual([
        ['interrupt.requested'],
        ['compaction.failed', ...(kind === 'overflow' ? ['step.interrupted'] : []), 'execution.settled'],
      ])
      expect(await stage.payloads(s, 'compaction.failed')).toMatchObject([{ error: { code: 'ABORTED' } }])
      expect((await stage.payloads(s, 'execution.settled')).at(-1)).toMatchObject({ outcome: 'INTERRUPTED' })
      expect(await stage.db.message.findFirst({ where: { sessionId: s, kind: 'COMPACTION' } })).toMatchObject({
        status: 'FAILED',
        summary: null,
      })
      expect(await statusIn(stage, a, s)).toBe('IDLE')
      expect(stage.provider.requests).toHaveLength(nth + 1)
      // History is what it was.
      const b = await stage.start()
      stage.provider.script(said('D'))
      await prompt(b.core, s, 'delta')
      await b.core.coordinator.idle()
      expect(users(nth + 1).slice(0, 2)).toEqual(['alpha', 'beta'])
      stage.provider.expectDone()
    },
  )
})
