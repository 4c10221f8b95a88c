// Interrupts that meet something else: another node, a provider that has failed, tools and streams that end in the same tick
// (design section 8).

import { setTimeout as sleep } from 'node:timers/promises'
import type { LanguageModelV4, LanguageModelV4StreamPart } from '@ai-sdk/provider'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { StoredEvent } from '../src/events.ts'
import { realClock } from '../src/runner/clock.ts'
import { overHttp } from './support/asking.ts'
import { eventually } from './support/core.ts'
import { call, refused } from './support/gated-model.ts'
import {
  finish,
  finishing,
  gate,
  hang,
  reply,
  type Step,
  streamError,
  text,
  toolCall,
  toolCalls,
  wait,
} from './support/provider.ts'
import { random } from './support/random.ts'
import { finished } from './support/scripted-model.ts'
import { hasEvent, holdAppend, instant, interrupt, probe, prompt, useStage } from './support/stage.ts'

const stage = useStage()
const done = { type: 'InterruptSessionPayload', interrupted: true }

it('INT-04: asked of another node: the owner hears of it by the doorbell alone, and the answer comes once its cleanup is durable', async () => {
  // Neither a poll, nor a renewal, nor a fence would tell it in time.
  const config = { pollMs: 600_000, leaseMs: 600_000, renewMs: 300_000 }
  const { core: a } = await stage.start({ config })
  const { core: b } = await stage.start({ config })
  const s = await stage.session()
  stage.provider.script(reply(text('x'), hang()))
  await prompt(a, s)
  await stage.logged(s, 'text.started')
  const cleanup = holdAppend(a, hasEvent('step.interrupted'))
  let isAnswered = false
  const interrupted = interrupt(b, s).finally(() => {
    isAnswered = true
  })
  await cleanup.held
  await stage.provider.aborted(0)
  expect(await stage.claim(s)).toMatchObject({ phase: 'CANCELLING', owner: a.owner })
  expect(isAnswered).toBe(false)
  cleanup.release()
  expect(await interrupted).toMatchObject(done)
  expect(await stage.claim(s)).toBeNull()
  const types = await stage.types(s)
  expect(types.slice(-4)).toEqual(['interrupt.requested', 'text.ended', 'step.interrupted', 'execution.settled'])
  await a.coordinator.idle()
  expect(await stage.types(s)).toEqual(types)
})

it('INT-01, INT-08: a cleanup that commits while the one who waits for it looks at the claim is not taken for a failed one', async () => {
  const { core } = await stage.start()
  const s = await stage.session()
  stage.provider.script(reply(text('x'), hang()))
  await prompt(core, s)
  await stage.logged(s, 'text.started')
  const cleanup = holdAppend(core, hasEvent('step.interrupted'))
  // The look that has seen the claim in phase CANCELLING, and is told so when everything is over.
  const seen = gate()
  const told = gate()
  const { db } = core
  core.db = new Proxy(db, {
    get(target, name) {
      const value = Reflect.get(target, name)
      if (name !== '$queryRaw') return value
      return async (...query: Parameters<typeof db.$queryRaw>) => {
        const rows = (await db.$queryRaw(...query)) as { phase?: string; live?: boolean }[]
        if (rows[0]?.phase === 'CANCELLING' && rows[0].live !== undefined) {
          seen.open()
          await told.promise
        }
        return rows
      }
    },
  })
  const interrupted = interrupt(core, s)
  await cleanup.held
  await seen.promise
  cleanup.release()
  await core.coordinator.idle()
  expect(await stage.claim(s)).toBeNull()
  told.open()
  expect(await interrupted).toMatchObject(done)
})

it('INT-07: the provider has failed and a tool still runs: ToolFailed, then StepInterrupted as the only terminal of the step', async () => {
  const work = probe('work')
  const { core } = await stage.start({ tools: [work.tool] })
  const s = await stage.session()
  const failed = reply(toolCall('work', {}, 'call_w'), finishing('tool_calls'), streamError('insufficient_quota'))
  stage.provider.script(failed)
  await prompt(core, s)
  const { context, fail } = await work.run()
  await stage.provider.requests[0]!.ended
  expect(context.signal.aborted).toBe(false)
  const interrupted = interrupt(core, s)
  await eventually('the signal', async () => context.signal.aborted)
  fail(new Error('stopped'))
  expect(await interrupted).toMatchObject(done)
  expect((await stage.commits(s)).at(-1)).toEqual(['tool.failed', 'step.interrupted', 'execution.settled'])
  expect(await stage.types(s)).not.toContain('step.failed')
  expect(await stage.payloads(s, 'tool.failed')).toMatchObject([{ error: { code: 'ABORTED' } }])
  await core.coordinator.idle()
  expect(stage.provider.requests).toHaveLength(1)
})

it('INT-01, INT-06, INT-10: a provider that streams on and a tool that ignores its signal for a minute: logged within 1 s, nothing dispatched after it, answered within the grace and 1 s', async () => {
  const graceMs = 2000
  const stubborn = instant('stubborn', () => new Promise((resolve) => setTimeout(resolve, 60_000).unref()))
  const look = instant('look')
  const options = {
    tools: [stubborn.tool, look.tool],
    clock: realClock,
    config: { interruptGraceMs: graceMs, leaseMs: 600_000, renewMs: 300_000, pollMs: 600_000 },
  }
  const a = await stage.start(options)
  const b = await stage.start(options)
  for (const asked of [a, b]) {
    const s = await stage.session()
    const requests = stage.provider.requests.length
    const ran = stubborn.ran.length
    // The first call is complete when the second begins, which is complete at the end: a word every 20 ms for four seconds until then.
    const more = gate()
    const streaming: Step[] = []
    for (let n = 1; n <= 200; n++) streaming.push(...wait(more.promise.then(() => sleep(20 * n))), ...text('w '))
    const calls = toolCalls({ name: 'stubborn', args: { n: 1 } }, { name: 'look', args: { n: 1 } })
    stage.provider.script(reply(calls, wait(more.promise), streaming, finish('tool_calls')))
    await prompt(a.core, s)
    await eventually('the tool', async () => stubborn.ran.length > ran)
    more.open()
    await stage.logged(s, 'text.started')
    const begun = performance.now()
    let loggedMs = Number.POSITIVE_INFINITY
    const watching = stage.logged(s, 'interrupt.requested').then(() => {
      loggedMs = performance.now() - begun
    })
    const answer = await overHttp(asked, (ask) =>
      ask(
        `mutation ($s: ID!) { interruptSession(input: { sessionId: $s }) { __typename
           ... on InterruptSessionPayload { interrupted session { status execution { phase } } } } }`,
        { s },
      ),
    )
    const answeredMs = performance.now() - begun
    await watching
    expect(answer.data.interruptSession).toEqual({
      __typename: 'InterruptSessionPayload',
      interrupted: true,
      session: { status: 'IDLE', execution: null },
    })
    expect(loggedMs).toBeLessThan(1000)
    expect(answeredMs).toBeLessThan(graceMs + 1000)
    expect(answeredMs).toBeGreaterThan(graceMs - 100)
    expect(stage.provider.requests.slice(requests)).toMatchObject([{ aborted: true }])
    const types = await stage.types(s)
    const after = types.slice(types.indexOf('interrupt.requested') + 1)
    const ends = ['text.ended', 'tool.failed', 'step.interrupted', 'execution.settled']
    expect([...new Set(after)]).toEqual(ends)
    expect((await stage.payloads(s, 'tool.failed')).map(({ error }) => error.code)).toContain('OUTCOME_UNKNOWN')
    expect(stubborn.ran).toHaveLength(ran + 1)
    expect(look.ran).toEqual([])
  }
})

describe('in the same tick', () => {
  const sessionCount = 100
  const rounds = 10

  /** The first request of a round calls the tool and stays open until the test ends it; further ones answer at once. */
  function twoStepModel() {
    const first = new Map<string, { end: () => void; fail: () => void } | 'due'>()
    const model: LanguageModelV4 = {
      specificationVersion: 'v4',
      provider: 'local',
      modelId: 'two-steps',
      supportedUrls: {},
      doGenerate: () => Promise.reject(new Error('not asked for')),
      async doStream({ prompt: asked, abortSignal }) {
        const head = asked[0]
        const name = head?.role === 'system' ? head.content : 'nobody'
        const isFirst = first.get(name) === 'due'
        const stream = new ReadableStream<LanguageModelV4StreamPart>({
          start(controller) {
            controller.enqueue({ type: 'stream-start', warnings: [] })
            const send = (...parts: LanguageModelV4StreamPart[]) => {
              for (const part of parts) controller.enqueue(part)
            }
            if (!isFirst) {
              send(finished())
              return controller.close()
            }
            let isOver = false
            const over = (last: () => void) => () => {
              if (isOver) return
              isOver = true
              last()
            }
            abortSignal?.addEventListener(
              'abort',
              over(() => controller.error(abortSignal.reason)),
            )
            first.set(name, {
              end: over(() => {
                send(finished('tool-calls'))
                controller.close()
              }),
              // Nothing that is tried again.
              fail: over(() => controller.error(refused(400))),
            })
            send(...call('call_round', 'work', {}).filter(({ type }) => type !== 'finish'))
          },
        })
        return { stream }
      },
    }
    return { model, first }
  }

  let synchronous = ''
  beforeAll(() => {
    synchronous = new URL(stage.database.url).pathname.slice(1)
  })
  afterAll(() => stage.db.$executeRawUnsafe(`ALTER DATABASE ${synchronous} RESET synchronous_commit`))

  it('INT-20: tools, provider and interrupt end in 1000 generated orders: one terminal each, and the answer says what the log says', async () => {
    // The race is between transactions, not with the disk.
    await stage.db.$executeRawUnsafe(`ALTER DATABASE ${synchronous} SET synchronous_commit = off`)
    const seed = Date.now() % 1_000_000
    const pick = random(seed).below
    const { model, first } = twoStepModel()
    const tools = new Map<string, { finish: () => void; fail: () => void }>()
    const work = {
      name: 'work',
      description: 'works',
      inputSchema: { type: 'object' },
      execute: (_: unknown, { sessionId }: { sessionId: string }) =>
        new Promise<string>((resolve, reject) => {
          tools.set(sessionId, { finish: () => resolve('worked'), fail: () => reject(new Error('broke')) })
        }),
    }
    const config = { pollMs: 1000 }
    const options = { tools: [work], models: { models: { 'local/two-steps': { model } } }, clock: realClock, config }
    const [a, b] = [(await stage.start(options)).core, (await stage.start(options)).core]
    const turns = async (n: number) => {
      for (let turn = 0; turn < n; turn++) await new Promise((resolve) => setImmediate(resolve))
    }
    const counts = { interrupted: 0, not: 0, endedFirst: 0 }

    /** What the round has written has to agree with itself and with the answer. */
    function judge(news: StoredEvent[], interrupted: boolean, what: string) {
      const of = (...types: string[]) => news.filter(({ type }) => types.includes(type))
      const field = (event: StoredEvent, name: string) => (event.payload as Record<string, unknown>)[name]
      for (const started of of('step.started')) {
        const id = field(started, 'messageId')
        const ends = of('step.ended', 'step.failed', 'step.interrupted').filter((e) => field(e, 'messageId') === id)
        expect(ends.length, what).toBe(1)
      }
      const calls = of('tool.called').length
      expect(of('tool.succeeded', 'tool.failed').length, what).toBe(calls)
      expect(of('execution.settled').length, what).toBe(of('execution.started').length)
      const asked = of('interrupt.requested')
      expect(asked.length, what).toBe(interrupted ? 1 : 0)
      if (!interrupted) return expect(of('step.interrupted').length, what).toBe(0)
      const id = field(asked[0]!, 'interruptedExecutionId')
      const after = news.slice(news.indexOf(asked[0]!) + 1).map(({ type }) => type)
      for (const type of ['step.started', 'tool.started', 'tool.succeeded', 'step.ended', 'execution.started'])
        expect(after, what).not.toContain(type)
      if (id === null) return
      const settled = of('execution.settled').find((e) => field(e, 'executionId') === id)
      expect(settled && field(settled, 'outcome'), what).toBe('INTERRUPTED')
    }

    async function play({ sessionId, name }: { sessionId: string; name: string }) {
      let seq = 1
      for (let round = 0; round < rounds; round++) {
        const what = `seed ${seed}, ${sessionId}, round ${round}`
        tools.delete(sessionId)
        first.set(name, 'due')
        await prompt(pick(2) === 0 ? a : b, sessionId, `round ${round}`)
        const open = await eventually(`the request and the tool, ${what}`, async () => {
          const request = first.get(name)
          const tool = tools.get(sessionId)
          return request !== 'due' && request !== undefined && tool !== undefined && { request, tool }
        })
        const acts = [
          pick(5) === 0 ? open.tool.fail : open.tool.finish,
          pick(5) === 0 ? open.request.fail : open.request.end,
        ]
        let answer: ReturnType<typeof interrupt> | undefined
        const by = pick(2) === 0 ? a : b
        acts.splice(pick(3), 0, () => {
          answer = interrupt(by, sessionId)
        })
        if (pick(2) === 0) acts.reverse()
        const isAtOnce = pick(3) === 0
        for (const act of acts) {
          act()
          if (!isAtOnce) await turns(pick(40))
        }
        const given = await answer!
        expect(given.type, what).toBe('InterruptSessionPayload')
        const news = (await a.eventLog.read(sessionId, seq, 1000)) as StoredEvent[]
        const { interrupted } = given as { interrupted: boolean }
        judge(news, interrupted, what)
        counts[interrupted ? 'interrupted' : 'not']++
        if (news.some(({ type }) => type === 'step.ended')) counts.endedFirst++
        seq = news.at(-1)!.seq
      }
    }
    const sessions: { sessionId: string; name: string }[] = []
    for (let n = 0; n < sessionCount; n++) {
      // By its instructions the model knows which session asks.
      const name = `lane ${n}`
      sessions.push({ name, sessionId: await stage.session({ model: 'local/two-steps', instructions: name }) })
    }
    await Promise.all(sessions.map(play))
    expect(counts.interrupted + counts.not).toBe(sessionCount * rounds)
    // Each way to be right was taken.
    expect(counts.interrupted).toBeGreaterThan(100)
    expect(counts.endedFirst).toBeGreaterThan(20)
  }, 300_000)
})
