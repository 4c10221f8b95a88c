import { describe, expect, it } from 'vitest'
import { resumeSession } from '../src/runner/resume.ts'
import { sessionStream } from '../src/session-stream.ts'
import type { StreamItem } from '../src/stream-item.ts'
import { eventually, type TestCore } from './support/core.ts'
import { cutOff, quiet } from './support/cut-off.ts'
import {
  cut,
  errorBody,
  finish,
  finishing,
  gate,
  hang,
  reply,
  type Step,
  status,
  streamError,
  text,
  toolCall,
  wait,
} from './support/provider.ts'
import { instant, interrupt, prompt, spoken, spyAppends, stealClaim, tenant, useStage } from './support/stage.ts'

const stage = useStage()
const ok = () => reply(text('fine'), finish())
const steps = (sessionId: string) =>
  stage.db.message.findMany({
    where: { sessionId, kind: 'ASSISTANT' },
    orderBy: { seq: 'asc' },
    include: { parts: true },
  })

/** Waits until attempt `next` has been scheduled and its back-off is running; gives the wait in ms. */
async function backingOff(sessionId: string, next: number): Promise<number> {
  await eventually(`attempt ${next} to be scheduled`, async () =>
    (await stage.payloads(sessionId, 'step.retry_scheduled')).some(({ attempt }) => attempt === next),
  )
  await stage.clock.armed()
  expect(stage.clock.timers()).toHaveLength(1)
  return stage.clock.timers()[0]!
}

/** Waits until all of this text has come. A connection that breaks can take along what its reader has not taken yet. */
const heard = (core: TestCore['core'], sessionId: string, words: string) =>
  eventually(`"${words}"`, async () => [...core.live.partsOf(sessionId)].some((part) => part.text === words))

/** A reply that says this, and breaks when it is told to. */
function breaking(...words: string[]): { reply: Step[]; breaks: () => void } {
  const broken = gate()
  return { reply: reply(text(...words), wait(broken.promise), cut()), breaks: broken.open }
}

/** A session whose first attempt has failed with these replies, in its back-off. */
async function failed(core: TestCore['core'], ...first: Step[]): Promise<{ s: string; delay: number }> {
  const s = await stage.session()
  stage.provider.script(first)
  await prompt(core, s)
  return { s, delay: await backingOff(s, 2) }
}

describe('a failure before output', () => {
  it('RETRY-01: is tried again after its wait, not before, under the same message', async () => {
    const { core } = await stage.start()
    const { s, delay } = await failed(core, ...cut())
    const notice = (await stage.events(s)).at(-1)!
    expect(notice.type).toBe('step.retry_scheduled')
    const { attempt, retryAt } = notice.payload as { attempt: number; retryAt: string }
    expect(attempt).toBe(2)
    expect(delay).toBeGreaterThanOrEqual(1600)
    expect(delay).toBeLessThanOrEqual(2400)
    // The database's clock says when: the wait counted from just before the commit.
    const asked = Date.parse(retryAt) - notice.at.getTime()
    expect(asked).toBeLessThanOrEqual(delay)
    expect(asked).toBeGreaterThan(delay - 1500)
    stage.provider.script(ok())
    await stage.clock.advance(delay - 1)
    expect(stage.provider.requests).toHaveLength(1)
    await stage.clock.advance(1)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(stage.provider.requests).toHaveLength(2)
    expect(stage.provider.requests[1]!.body).toEqual(stage.provider.requests[0]!.body)
    expect(await steps(s)).toMatchObject([{ status: 'ENDED', attempt: 2, parts: [{ text: 'fine' }] }])
    expect(await stage.payloads(s, 'step.started')).toHaveLength(1)
  })

  it('RETRY-02: five requests in all, each wait about twice the last, then the step fails', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(...[1, 2, 3, 4, 5].map(() => status(503)))
    await prompt(core, s)
    for (const [n, base] of [2000, 4000, 8000, 16_000].entries()) {
      const delay = await backingOff(s, n + 2)
      expect(delay).toBeGreaterThanOrEqual(base * 0.8)
      expect(delay).toBeLessThanOrEqual(base * 1.2)
      expect(stage.provider.requests).toHaveLength(n + 1)
      await stage.clock.advance(delay)
    }
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(stage.provider.requests).toHaveLength(5)
    expect((await stage.payloads(s, 'step.retry_scheduled')).map(({ attempt }) => attempt)).toEqual([2, 3, 4, 5])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([
      { continues: false, error: { code: 'PROVIDER_UNAVAILABLE' } },
    ])
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'FAILED' }])
  })

  it.each([
    ['5 s are a floor', '5', 5000, 5000],
    ['an hour is capped at 15 minutes', '3600', 900_000, 900_000],
    ['zero asks for nothing', '0', 1600, 2400],
    ['garbage asks for nothing', 'soon', 1600, 2400],
  ])('RETRY-03: retry-after: %s', async (_what, header, least, most) => {
    const { core } = await stage.start()
    const { s, delay } = await failed(core, ...status(429, errorBody(null), { 'retry-after': header }))
    expect(delay).toBeGreaterThanOrEqual(least)
    expect(delay).toBeLessThanOrEqual(most)
    stage.provider.script(ok())
    await stage.clock.advance(delay - 1)
    expect(stage.provider.requests).toHaveLength(1)
    await stage.clock.advance(1)
    await core.coordinator.idle()
    expect(await stage.payloads(s, 'step.ended')).toHaveLength(1)
  })

  it.each([
    ['authentication', status(401, errorBody('invalid_api_key')), 'PROVIDER_AUTH'],
    ['quota', status(429, errorBody('insufficient_quota')), 'PROVIDER_QUOTA'],
    ['content policy', status(400, errorBody('content_filter')), 'PROVIDER_CONTENT'],
    ['an invalid request', status(400, errorBody('bad_value')), 'PROVIDER_INVALID'],
  ])('RETRY-04: not after %s: one request, no notice', async (_what, answer, code) => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(answer)
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(stage.provider.requests).toHaveLength(1)
    expect(await stage.types(s)).not.toContain('step.retry_scheduled')
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([{ continues: false, error: { code } }])
  })

  it.each([
    ['a rate limit', status(429), 'PROVIDER_RATE_LIMIT'],
    ['overload', status(529), 'PROVIDER_UNAVAILABLE'],
    ['a server error', status(500), 'PROVIDER_UNAVAILABLE'],
    ['a lost connection', cut(), 'PROVIDER_UNAVAILABLE'],
    ['a stream that ends without a finish', reply(reasoningOnly()), 'PROVIDER_UNAVAILABLE'],
    ['an error in the stream', streamError('server_error'), 'PROVIDER_UNAVAILABLE'],
  ])('RETRY-05, RETRY-14: after %s; one attempt is one request on the wire', async (_what, answer, code) => {
    const { core } = await stage.start()
    const { s, delay } = await failed(core, ...answer)
    expect(await stage.payloads(s, 'step.retry_scheduled')).toMatchObject([{ error: { code } }])
    expect(stage.provider.requests).toHaveLength(1)
    stage.provider.script(ok())
    await stage.clock.advance(delay)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(stage.provider.requests).toHaveLength(2)
  })

  it("RETRY-15: the notice moves the claim to CONTINUE in its commit; the next attempt's commit moves it back before the request", async () => {
    const { core } = await stage.start()
    const appends = spyAppends(core)
    const { s, delay } = await failed(core, ...status(503))
    expect(await stage.claim(s)).toMatchObject({ phase: 'CONTINUE' })
    expect(appends.at(-1)).toMatchObject({ fence: { phases: ['UNKNOWN'] }, claim: { kind: 'move', to: 'CONTINUE' } })
    const open = gate()
    stage.provider.script(reply(wait(open.promise), text('x'), finish()))
    await stage.clock.advance(delay)
    await stage.provider.request(1)
    expect(await stage.claim(s)).toMatchObject({ phase: 'UNKNOWN' })
    open.open()
    await core.coordinator.idle()
  })
})

/** A stream that says nothing of substance and ends without a finish. */
function reasoningOnly(): Step[] {
  return [{ kind: 'raw', text: ': ping\n\n' }]
}

describe('RETRY-06: a silent stream', () => {
  it('before the first chunk: the request is aborted at the idle limit and tried again', async () => {
    const { core } = await stage.start()
    expect(core.config.idleMs).toBe(120_000)
    const s = await stage.session()
    stage.provider.script(hang(), ok())
    await prompt(core, s)
    await stage.provider.request(0)
    await stage.clock.armed(120_000)
    await stage.clock.advance(119_999)
    expect(stage.provider.requests[0]!.aborted).toBe(false)
    await stage.clock.advance(1)
    await stage.provider.aborted(0)
    const delay = await backingOff(s, 2)
    await stage.clock.advance(delay)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(await steps(s)).toMatchObject([{ status: 'ENDED', attempt: 2 }])
  })

  it('between chunks: the same, and what had come is kept', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(reply(text('so', ' far'), hang()), ok())
    await prompt(core, s)
    await stage.logged(s, 'text.started')
    await eventually('the text', async () => [...core.live.partsOf(s)].some((part) => part.text === 'so far'))
    await stage.clock.armed(120_000)
    await stage.clock.advance(120_000)
    await stage.provider.aborted(0)
    await stage.clock.advance(await backingOff(s, 2))
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(await steps(s)).toMatchObject([
      { status: 'FAILED', parts: [{ text: 'so far' }] },
      { status: 'ENDED', parts: [{ text: 'fine' }] },
    ])
  })
})

describe('a failure after output', () => {
  it('RETRY-07: the message fails with its text and "continue" follows in one commit; the next request goes on from both', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const first = breaking('par', 'tial')
    stage.provider.script(first.reply)
    await prompt(core, s)
    await heard(core, s, 'partial')
    first.breaks()
    const delay = await backingOff(s, 2)
    expect((await stage.commits(s)).at(-1)).toEqual([
      'text.ended',
      'step.retry_scheduled',
      'step.failed',
      'synthetic.appended',
    ])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([{ continues: true }])
    expect(await stage.payloads(s, 'synthetic.appended')).toMatchObject([{ text: 'continue', hidden: false }])
    expect(await stage.claim(s)).toMatchObject({ phase: 'CONTINUE' })
    stage.provider.script(ok())
    await stage.clock.advance(delay)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(spoken(stage.provider.requests[1]!)).toEqual(['user: hi', 'assistant: partial', 'user: continue'])
    const [one, two] = await steps(s)
    expect(one).toMatchObject({ status: 'FAILED', parts: [{ text: 'partial', complete: true }] })
    expect(two).toMatchObject({ status: 'ENDED', parts: [{ text: 'fine' }] })
    expect(two!.id).not.toBe(one!.id)
  })

  it('RETRY-02, RETRY-07: the budget is shared by the attempts before and after output', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const [a, b] = [breaking('a'), breaking('b')]
    stage.provider.script(status(503), a.reply, status(503), b.reply, status(503))
    await prompt(core, s)
    for (const [next, words, breaks] of [[2], [3, 'a', a.breaks], [4], [5, 'b', b.breaks]] as const) {
      if (words !== undefined) await heard(core, s, words)
      breaks?.()
      await stage.clock.advance(await backingOff(s, next))
    }
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(stage.provider.requests).toHaveLength(5)
    expect((await stage.payloads(s, 'step.failed')).map(({ continues }) => continues)).toEqual([true, true, false])
    expect((await steps(s)).map(({ parts }) => parts.map((part) => part.text))).toEqual([['a'], ['b'], []])
  })

  it('RETRY-08: a tool that had settled is not run again; its call and result go along', async () => {
    const look = instant('look', () => 'seen')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    const broken = gate()
    stage.provider.script(reply(toolCall('look', { n: 1 }), finishing('tool_calls'), wait(broken.promise), cut()))
    await prompt(core, s)
    await stage.logged(s, 'tool.succeeded')
    broken.open()
    const delay = await backingOff(s, 2)
    stage.provider.script(ok())
    await stage.clock.advance(delay)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(look.ran).toHaveLength(1)
    expect(spoken(stage.provider.requests[1]!)).toEqual([
      'user: hi',
      'call look {"n":1}',
      'result seen',
      'user: continue',
    ])
  })

  it('RETRY-09: a client that applies all items sees no text of the failed attempt in the new message', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const items: StreamItem[] = []
    const stream = sessionStream({ ...core, clock: undefined } as never, { sessionId: s, after: 0 })
    const reading = (async () => {
      for await (const item of stream) items.push(item)
    })()
    const broken = breaking('par', 'tial')
    stage.provider.script(broken.reply, ok())
    await prompt(core, s)
    await heard(core, s, 'partial')
    await eventually('a delta', async () => items.some(({ typename }) => typename === 'TextDelta'))
    broken.breaks()
    await stage.clock.advance(await backingOff(s, 2))
    await core.coordinator.idle()
    await eventually('the end', async () => items.some(({ typename }) => typename === 'ExecutionSettled'))
    await stream.return!()
    await reading
    const shown = new Map<string, string>()
    for (const item of items) {
      if (item.typename === 'TextDelta') {
        const before = shown.get(item.messageId) ?? ''
        shown.set(item.messageId, before.slice(0, item.offset) + item.text)
      } else if (item.typename === 'TextEnded') shown.set(item.messageId, item.text)
    }
    const [first, second] = await steps(s)
    expect([...shown]).toEqual([
      [first!.id, 'partial'],
      [second!.id, 'fine'],
    ])
  })
})

describe('a back-off', () => {
  it.each([
    ['before output, with its step open', null, 1],
    ['after output, with its step failed', 'some', 0],
  ])(
    'RETRY-10: that is interrupted %s makes no further request and owes nothing',
    async (_what, words, interruptions) => {
      const { core } = await stage.start()
      const s = await stage.session()
      const broken = breaking(words ?? '')
      stage.provider.script(words === null ? status(503) : broken.reply)
      await prompt(core, s)
      if (words !== null) await heard(core, s, words)
      broken.breaks()
      await backingOff(s, 2)
      expect(await interrupt(core, s)).toMatchObject({ type: 'InterruptSessionPayload', interrupted: true })
      await core.coordinator.idle()
      const types = await stage.types(s)
      expect(types.filter((type) => type === 'step.interrupted')).toHaveLength(interruptions)
      expect(types.at(-1)).toBe('execution.settled')
      expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'INTERRUPTED' }])
      expect(await stage.db.session.findUnique({ where: { id: s } })).toMatchObject({ stepOwed: false })
      await resumeSession(core, tenant, { sessionId: s })
      await core.coordinator.idle()
      await stage.clock.advance(60_000)
      expect(stage.provider.requests).toHaveLength(1)
      expect(stage.clock.timers()).toEqual([])
    },
  )

  it('RETRY-11: goes on being renewed, so that its claim outlives the first lease and no other process takes it over', async () => {
    const { core } = await stage.start({ config: { renewMs: 20 } })
    const b = await stage.start()
    quiet(b.core)
    const { s, delay } = await failed(core, ...status(503))
    const { expiresAt, executionId } = (await stage.claim(s))!
    // Another one's, which nobody renews: that the scans below do take what has run out.
    const gone = await cutOff(b.core, { leaseMs: 30_000 })
    try {
      for (const ms of [20_000, 40_000]) {
        await stage.database.shiftClock(ms)
        await eventually(
          'a renewal',
          async () => (await stage.claim(s))!.expiresAt.getTime() > expiresAt.getTime() + ms - 5000,
        )
        expect(await b.recovery.scan()).toMatchObject({ taken: ms > 30_000 ? 1 : 0, failed: 0 })
      }
      expect(await gone.types(3)).toEqual(['step.recovered'])
      expect(await stage.claim(s)).toMatchObject({ owner: core.owner, phase: 'CONTINUE', executionId })
      expect(await stage.types(s)).not.toContain('step.recovered')
      stage.provider.script(ok())
      await stage.clock.advance(delay)
      await core.coordinator.idle()
      stage.provider.expectDone()
    } finally {
      await stage.database.shiftClock(0)
    }
  })

  it('RETRY-13, RETRY-16: whose claim is lost meanwhile makes no request and writes nothing more', async () => {
    const { core } = await stage.start()
    const { s, delay } = await failed(core, ...status(503))
    await stealClaim(stage.db, s)
    const before = await stage.events(s)
    await stage.clock.advance(delay)
    await core.coordinator.idle()
    expect(stage.provider.requests).toHaveLength(1)
    expect(await stage.events(s)).toEqual(before)
    expect(await stage.claim(s)).toMatchObject({ owner: 'own_.thief', phase: 'CONTINUE' })
  })

  it('RETRY-16: that is refused its move because the claim is CANCELLING makes no request; its owner cleans up', async () => {
    const { core } = await stage.start()
    const { s, delay } = await failed(core, ...status(503))
    // As another process does it whose doorbell is lost.
    await stage.db.claim.update({ where: { sessionId: s }, data: { phase: 'CANCELLING' } })
    await stage.clock.advance(delay)
    await core.coordinator.idle()
    expect(stage.provider.requests).toHaveLength(1)
    expect((await stage.types(s)).slice(-3)).toEqual(['step.retry_scheduled', 'step.interrupted', 'execution.settled'])
    expect(await stage.claim(s)).toBeNull()
  })
})
