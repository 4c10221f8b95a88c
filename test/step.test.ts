import type { LanguageModelV4StreamPart } from '@ai-sdk/provider'
import { describe, expect, it } from 'vitest'
import { updateSession } from '../src/runner/sessions.ts'
import { replaySession } from '../src/verify.ts'
import { eventually } from './support/core.ts'
import {
  cut,
  errorBody,
  finish,
  finishing,
  gate,
  hang,
  reasoning,
  reply,
  status,
  streamError,
  text,
  toolCall,
  toolCalls,
  wait,
} from './support/provider.ts'
import { finished, scriptedModel, usage } from './support/scripted-model.ts'
import {
  instant,
  interrupt,
  probe,
  prompt,
  refuseEvents,
  spoken,
  spyAppends,
  tenant,
  useStage,
} from './support/stage.ts'
import { statementsDuring } from './support/statements.ts'

const stage = useStage()
const message = (sessionId: string) =>
  stage.db.message.findMany({
    where: { sessionId, kind: 'ASSISTANT' },
    orderBy: { seq: 'asc' },
    include: { parts: { orderBy: { index: 'asc' } } },
  })

describe('a step that goes well', () => {
  it('STEP-01, STEP-08: a prompt and a text-only answer leave exactly this log', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(reply(text('hel', 'lo'), finish()))
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(await stage.types(s)).toEqual([
      'session.created',
      'prompt.admitted',
      'execution.started',
      'prompt.promoted',
      'step.started',
      'text.started',
      'text.ended',
      'step.streamed',
      'step.ended',
      'execution.settled',
    ])
    expect(await stage.payloads(s, 'step.ended')).toMatchObject([{ continues: false, finish: 'stop' }])
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'SUCCEEDED', retryAt: null }])
    expect(await stage.claim(s)).toBeNull()
  })

  it('STEP-02: when the request arrives, StepStarted and the move to UNKNOWN are committed, together and under a fence', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const appends = spyAppends(core)
    const hold = gate()
    stage.provider.script(reply(wait(hold.promise), text('a'), finish()))
    await prompt(core, s)
    await stage.provider.request(0)
    const [started] = await stage.payloads(s, 'step.started')
    expect(await stage.claim(s)).toMatchObject({ phase: 'UNKNOWN', messageId: started!.messageId, owner: core.owner })
    expect((await stage.commits(s)).at(-1)).toEqual(['prompt.promoted', 'step.started'])
    expect(appends.at(-1)).toMatchObject({
      fence: { executionId: started!.executionId, owner: core.owner, phases: ['READY'] },
      claim: { kind: 'move', to: 'UNKNOWN' },
      expectedSeq: expect.any(Number),
    })
    hold.open()
    await core.coordinator.idle()
  })

  it("STEP-03: the terminal and the claim's move are one commit: SAFE, or CONTINUE after local tool calls", async () => {
    const { core } = await stage.start({ tools: [instant('look').tool] })
    const s = await stage.session()
    const appends = spyAppends(core)
    stage.provider.script(reply(toolCall('look', {}), finish('tool_calls')), reply(text('done'), finish()))
    await prompt(core, s)
    await core.coordinator.idle()
    const terminals = appends.filter(({ events }) => events.some(({ type }) => type === 'step.ended'))
    expect(terminals.map(({ claim }) => claim)).toEqual([
      { kind: 'move', to: 'CONTINUE' },
      { kind: 'move', to: 'SAFE' },
    ])
    expect((await stage.payloads(s, 'step.ended')).map(({ continues }) => continues)).toEqual([true, false])
  })

  it('STEP-04: 1000 deltas are one TextStarted and one TextEnded with the whole text, and replay gives the same', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const words = Array.from({ length: 1000 }, (_, n) => `w${n} `)
    stage.provider.script(reply(text(...words), finish()))
    await prompt(core, s)
    await core.coordinator.idle()
    const types = await stage.types(s)
    expect(types.filter((type) => type.startsWith('text.'))).toEqual(['text.started', 'text.ended'])
    expect(types).toHaveLength(10)
    const parts = await stage.db.part.findMany({ where: { sessionId: s } })
    expect(parts).toMatchObject([{ text: words.join(''), complete: true }])
    const replayed = [...(await replaySession(stage.db, s)).tables.Part.values()]
    expect(replayed).toMatchObject([{ text: words.join(''), complete: true }])
    expect(await stage.db.chunk.count({ where: { sessionId: s } })).toBe(0)
  })

  it('STEP-05: text, reasoning, text are parts 0, 1, 2 in the order in which they started', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(reply(text('one'), reasoning('two'), text('three'), finish()))
    await prompt(core, s)
    await core.coordinator.idle()
    expect((await message(s))[0]!.parts).toMatchObject([
      { index: 0, kind: 'TEXT', text: 'one', complete: true },
      { index: 1, kind: 'REASONING', text: 'two', complete: true },
      { index: 2, kind: 'TEXT', text: 'three', complete: true },
    ])
  })

  it('STEP-07: nothing ends before the stream does, whatever it announces; then StepStreamed, the tools, StepEnded', async () => {
    const slow = probe('slow')
    const quick = probe('quick')
    const { core } = await stage.start({ tools: [slow.tool, quick.tool] })
    const s = await stage.session()
    const open = gate()
    const calls = toolCalls({ name: 'quick', args: { a: 1 } }, { name: 'slow', args: { a: 1 } })
    stage.provider.script(
      reply(calls, finishing('tool_calls'), wait(open.promise), finish('tool_calls').slice(1)),
      reply(text('ok'), finish()),
    )
    await prompt(core, s)
    await slow.run()
    ;(await quick.run()).finish()
    await stage.logged(s, 'tool.succeeded')
    const before = await stage.types(s)
    expect(before).not.toContain('step.streamed')
    expect(before).not.toContain('step.ended')
    open.open()
    await stage.logged(s, 'step.streamed')
    expect(await stage.types(s)).not.toContain('step.ended')
    slow.runs[0]!.finish()
    await core.coordinator.idle()
    const order = (await stage.types(s)).filter((type) => /^step\.(streamed|ended)|tool\.succeeded/.test(type))
    expect(order.slice(0, 4)).toEqual(['tool.succeeded', 'step.streamed', 'tool.succeeded', 'step.ended'])
  })

  it("STEP-11: usage is the message's and is added to the session once, each kind of token in its own field; a failed step's too", async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const counted = { input: 100, output: 40, reasoning: 7, cached: 60 }
    stage.provider.script(
      reply(text('a'), finish('stop', counted)),
      reply(text('b'), finish('content_filter', { input: 1, output: 2, reasoning: 3, cached: 4 })),
    )
    await prompt(core, s)
    await core.coordinator.idle()
    await prompt(core, s)
    await core.coordinator.idle()
    const tokens = { inputTokens: 100, outputTokens: 40, reasoningTokens: 7, cachedInputTokens: 60 }
    expect(await stage.payloads(s, 'step.ended')).toMatchObject([{ usage: tokens }])
    expect(await message(s)).toMatchObject([
      { status: 'ENDED', inputTokens: 100n, outputTokens: 40n, reasoningTokens: 7n, cachedInputTokens: 60n },
      { status: 'FAILED', inputTokens: 1n, outputTokens: 2n, reasoningTokens: 3n, cachedInputTokens: 4n },
    ])
    expect(await stage.db.session.findUnique({ where: { id: s } })).toMatchObject({
      inputTokens: 101n,
      outputTokens: 42n,
      reasoningTokens: 10n,
      cachedInputTokens: 64n,
    })
  })

  it('STEP-12: a step keeps model and instructions as they were at its start, in a second attempt too; the next one takes the new', async () => {
    const look = instant('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session({ instructions: 'old' })
    stage.provider.script(status(503), reply(toolCall('look', {}), finish('tool_calls')), reply(text('done'), finish()))
    await prompt(core, s)
    await stage.logged(s, 'step.retry_scheduled')
    const updated = await updateSession(core, tenant, { sessionId: s, model: 'compatible/other', instructions: 'new' })
    expect(updated.type).toBe('UpdateSessionPayload')
    await stage.clock.armed()
    await stage.clock.advance(2400)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(stage.provider.requests.map(({ body }) => [body.model, body.messages[0]!.content])).toEqual([
      ['scripted', 'old'],
      ['scripted', 'old'],
      ['other', 'new'],
    ])
    expect((await message(s)).map(({ model }) => model)).toEqual(['compatible/scripted', 'compatible/other'])
  })

  it('STEP-18: a part that the provider never closes is closed with what was received', async () => {
    const own = scriptedModel([
      { type: 'reasoning-start', id: 'r' },
      { type: 'reasoning-delta', id: 'r', delta: 'thought' },
      { type: 'text-start', id: 't' },
      { type: 'text-delta', id: 't', delta: 'said' },
      finished(),
    ])
    const { core } = await stage.start({ models: { models: { 'own/x': { model: own.model } } } })
    const s = await stage.session({ model: 'own/x' })
    await prompt(core, s)
    await core.coordinator.idle()
    expect(await stage.payloads(s, 'reasoning.ended')).toMatchObject([{ text: 'thought' }])
    expect(await stage.payloads(s, 'text.ended')).toMatchObject([{ text: 'said' }])
    expect(await stage.payloads(s, 'step.ended')).toHaveLength(1)
  })

  it('STEP-22: a tool that the provider runs is not dispatched here; call and result go back inside the assistant message', async () => {
    const search = instant('search')
    const own = scriptedModel(
      [
        { type: 'tool-call', toolCallId: 'c1', toolName: 'search', input: '{"q":"x"}', providerExecuted: true },
        { type: 'tool-result', toolCallId: 'c1', toolName: 'search', result: { hits: 3 } },
        { type: 'text-start', id: 't' },
        { type: 'text-delta', id: 't', delta: 'found' },
        { type: 'text-end', id: 't' },
        finished(),
      ],
      [finished()],
    )
    const { core } = await stage.start({ tools: [search.tool], models: { models: { 'own/x': { model: own.model } } } })
    const s = await stage.session({ model: 'own/x' })
    await prompt(core, s, 'look')
    await core.coordinator.idle()
    await prompt(core, s, 'and?')
    await core.coordinator.idle()
    expect(search.ran).toEqual([])
    expect(await stage.types(s)).not.toContain('tool.started')
    expect(own.calls[1]!.prompt.slice(1, 3)).toMatchObject([
      {
        role: 'assistant',
        content: [
          { type: 'tool-call', toolCallId: 'c1', toolName: 'search', input: { q: 'x' }, providerExecuted: true },
          { type: 'tool-result', toolCallId: 'c1', output: { type: 'json', value: { hits: 3 } } },
          { type: 'text', text: 'found' },
        ],
      },
      { role: 'user' },
    ])
    expect(own.calls).toHaveLength(2)
  })

  it('STEP-23: after a step has settled no delta, no chunk and no error follows', async () => {
    const complaints: unknown[] = []
    const { core } = await stage.start({
      log(line) {
        if (['warn', 'error', 'fatal'].includes(line.level as string)) complaints.push(line.msg)
      },
    })
    const s = await stage.session()
    const open = gate()
    stage.provider.script(reply(text('par', 'tial'), wait(open.promise), text(' end'), finish()))
    const database = new URL(stage.database.url).pathname.slice(1)
    const chunkWritesDuring = async (work: () => Promise<unknown>) =>
      (await statementsDuring(database, work)).filter((text) => text.includes('holdfast_write_chunks')).length
    const written = await chunkWritesDuring(async () => {
      await prompt(core, s)
      await eventually('all of it', async () => [...core.live.partsOf(s)][0]?.text === 'partial')
      await eventually('a chunk', () => stage.db.chunk.count({ where: { sessionId: s } }))
    })
    expect(written).toBeGreaterThan(0)
    // What is heard of the step, and what has been committed of it, in one order.
    const order: string[] = []
    core.live.listen(s, () => order.push('delta'))
    const late: number[] = []
    const { append } = core.eventLog
    core.eventLog = {
      ...core.eventLog,
      async append(request) {
        // The timer fires: before the end of the text is stored, and after each commit.
        late.push(await chunkWritesDuring(() => core.live.flush()))
        const outcome = await append(request)
        order.push(...request.events.map(({ type }) => type))
        late.push(await chunkWritesDuring(() => core.live.flush()))
        return outcome
      },
    }
    open.open()
    await core.coordinator.idle()
    expect(late).toEqual([0, 0, 0, 0, 0, 0])
    expect([...core.live.partsOf(s)]).toEqual([])
    expect(order).toEqual(['delta', 'text.ended', 'step.streamed', 'step.ended', 'execution.settled'])
    expect(await stage.db.chunk.count({ where: { sessionId: s } })).toBe(0)
    core.log.warn('the one complaint')
    expect(complaints).toEqual(['the one complaint'])
  })
})

describe('a step that fails', () => {
  it("STEP-06: partial text is kept, and the step ends with the provider's code after one request", async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(reply(text('par', 'tial'), streamError('insufficient_quota')))
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(stage.provider.requests).toHaveLength(1)
    expect((await stage.types(s)).slice(-4)).toEqual(['text.started', 'text.ended', 'step.failed', 'execution.settled'])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([
      { continues: false, error: { code: 'PROVIDER_QUOTA' } },
    ])
    expect(await message(s)).toMatchObject([
      { status: 'FAILED', errorCode: 'PROVIDER_QUOTA', parts: [{ text: 'partial', complete: true }] },
    ])
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'FAILED' }])
  })

  it('STEP-09: an error before any output leaves a failed message without parts', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(status(400, errorBody('bad')))
    await prompt(core, s)
    await core.coordinator.idle()
    expect(await message(s)).toMatchObject([{ status: 'FAILED', errorCode: 'PROVIDER_INVALID', parts: [] }])
    expect(await stage.types(s)).not.toContain('text.started')
  })

  it('STEP-10: a content-filter finish fails the step, keeps the text and counts the usage', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(reply(text('so far'), finish('content_filter', { input: 9, output: 2 })))
    await prompt(core, s)
    await core.coordinator.idle()
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([
      { continues: false, error: { code: 'PROVIDER_CONTENT' }, usage: { inputTokens: 9, outputTokens: 2 } },
    ])
    expect(await stage.types(s)).not.toContain('step.ended')
    expect(await message(s)).toMatchObject([{ status: 'FAILED', parts: [{ text: 'so far' }] }])
  })

  it('STEP-13, STEP-27: an unknown model ends step and execution in one append without a request; the next prompt after a fix works', async () => {
    const { core } = await stage.start()
    const s = await stage.session({ model: 'nobody/here' })
    const appends = spyAppends(core)
    await prompt(core, s)
    await core.coordinator.idle()
    expect((await stage.commits(s)).at(-1)).toEqual([
      'prompt.promoted',
      'step.started',
      'step.failed',
      'execution.settled',
    ])
    const [failed] = await stage.payloads(s, 'step.failed')
    expect(failed!.error.code).toBe('UNKNOWN_MODEL')
    expect(failed!.error.message).toContain('nobody/here')
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'FAILED' }])
    expect(appends.filter(({ claim }) => claim?.kind === 'move')).toEqual([])
    expect(stage.provider.requests).toEqual([])
    await updateSession(core, tenant, { sessionId: s, model: 'compatible/scripted' })
    stage.provider.script(reply(text('back'), finish()))
    await prompt(core, s)
    await core.coordinator.idle()
    expect(await stage.payloads(s, 'step.ended')).toHaveLength(1)
  })

  it.each(['model', 'tools', 'history'])(
    'STEP-26, STEP-27: %s that cannot be prepared for now promote nothing and do not move the claim; it runs once after its rest',
    async (what) => {
      const { core } = await stage.start({ tools: [instant('look').tool] })
      const s = await stage.session()
      const { models, tools, db } = core
      let failures = 0
      const fail = () => {
        failures++
        throw new Error('injected')
      }
      if (what === 'model') core.models = { ...models, resolve: fail }
      if (what === 'tools') core.tools = { values: fail } as unknown as typeof tools
      if (what === 'history') core.db = db.$extends({ query: { message: { findMany: fail } } }) as unknown as typeof db
      const appends = spyAppends(core)
      const id = await prompt(core, s)
      await core.coordinator.idle()
      expect(failures).toBe(1)
      expect((await stage.types(s)).slice(-2)).toEqual(['execution.started', 'execution.settled'])
      const [settled] = await stage.payloads(s, 'execution.settled')
      expect(settled!.outcome).toBe('RELEASED')
      expect(appends.filter(({ claim }) => claim?.kind === 'move')).toEqual([])
      expect(await stage.db.input.findUnique({ where: { id } })).toMatchObject({ state: 'PENDING', wakePending: true })
      Object.assign(core, { models, tools, db })
      const { at } = (await stage.events(s)).at(-1)!
      const rest = Date.parse(settled!.retryAt!) - at.getTime()
      expect(rest).toBeGreaterThan(5000)
      core.coordinator.wake(s)
      await core.coordinator.idle()
      expect(failures).toBe(1)
      expect(stage.provider.requests).toEqual([])
      await stage.database.shiftClock(rest + 1000)
      try {
        stage.provider.script(reply(text('now'), finish()))
        core.coordinator.wake(s)
        core.coordinator.wake(s)
        await core.coordinator.idle()
        stage.provider.expectDone()
        expect(stage.provider.requests).toHaveLength(1)
        expect(await stage.payloads(s, 'step.ended')).toHaveLength(1)
      } finally {
        await stage.database.shiftClock(0)
      }
    },
  )

  it('STEP-19: a stray delta, or a part that starts twice, fails the attempt and leaves no event of it', async () => {
    const own = scriptedModel(
      [{ type: 'text-delta', id: 'stray', delta: 'x' }, finished()],
      [{ type: 'text-start', id: 't' }, { type: 'text-start', id: 't' }, finished()],
      [
        { type: 'text-start', id: 't' },
        { type: 'text-delta', id: 't', delta: 'fine' },
        { type: 'text-end', id: 't' },
        finished(),
      ],
    )
    const { core } = await stage.start({ models: { models: { 'own/x': { model: own.model } } } })
    const s = await stage.session({ model: 'own/x' })
    await prompt(core, s)
    for (const n of [1, 2]) {
      expect((await stage.logged(s, 'step.retry_scheduled', n)).error.code).toBe('PROVIDER_UNAVAILABLE')
      await stage.clock.armed()
      expect(await stage.types(s)).not.toContain('text.started')
      await stage.clock.advance(4800)
    }
    await core.coordinator.idle()
    expect(own.calls).toHaveLength(3)
    expect(await message(s)).toMatchObject([{ status: 'ENDED', parts: [{ text: 'fine' }] }])
  })

  it("STEP-21: a tool output that cannot be stored does not hide the provider's error, and the tool is settled before the step", async () => {
    const look = probe('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    const fault = await refuseEvents(stage, s, 'tool.succeeded')
    const open = gate()
    stage.provider.script(
      reply(toolCall('look', {}), finishing('tool_calls'), wait(open.promise), streamError('insufficient_quota')),
    )
    await prompt(core, s)
    ;(await look.run()).finish('kept nowhere')
    await eventually('the fault', () => fault.fired())
    open.open()
    await core.coordinator.idle()
    expect((await stage.types(s)).slice(-3)).toEqual(['tool.failed', 'step.failed', 'execution.settled'])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([{ error: { code: 'PROVIDER_QUOTA' } }])
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([{ error: { code: 'OUTCOME_UNKNOWN' } }])
    expect(look.runs).toHaveLength(1)
    expect(await fault.fired()).toBeGreaterThan(0)
  })

  it("STEP-24: with a provider failure: the stream's end, then the tools, then one terminal", async () => {
    const look = probe('look')
    const also = probe('also')
    const { core } = await stage.start({ tools: [look.tool, also.tool] })
    const s = await stage.session()
    stage.provider.script(
      reply(
        text('I look'),
        toolCalls({ name: 'look', args: { a: 1 } }, { name: 'also', args: { a: 1 } }),
        finishing('tool_calls'),
        streamError('insufficient_quota'),
      ),
    )
    await prompt(core, s)
    const first = await look.run()
    const second = await also.run()
    await (await stage.provider.request(0)).ended
    expect(await stage.types(s)).not.toContain('step.failed')
    second.finish()
    await stage.logged(s, 'tool.succeeded')
    expect(await stage.types(s)).not.toContain('step.failed')
    first.finish()
    await core.coordinator.idle()
    const order = (await stage.types(s)).filter((type) => /^(step\.(failed|streamed)|tool\.succeeded)/.test(type))
    expect(order).toEqual(['tool.succeeded', 'tool.succeeded', 'step.failed'])
  })

  it('STEP-24, STEP-08: with an interrupt: tools are stopped before they are awaited, then one terminal', async () => {
    const look = probe('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(reply(text('I look'), toolCall('look', {}), finishing('tool_calls'), hang()))
    await prompt(core, s)
    const { context, fail } = await look.run()
    const interrupted = interrupt(core, s)
    await eventually('the abort', async () => context.signal.aborted)
    await stage.provider.aborted(0)
    expect(await stage.types(s)).not.toContain('step.interrupted')
    fail(new Error('stopped'))
    expect(await interrupted).toMatchObject({ interrupted: true })
    expect((await stage.types(s)).slice(-3)).toEqual(['tool.failed', 'step.interrupted', 'execution.settled'])
  })
})

describe('the step limit', () => {
  const limited = { config: { stepLimit: 2 } }

  it('STEP-14: the last step advertises tools with tool choice none; a call made all the same is not run', async () => {
    const look = instant('look')
    const { core } = await stage.start({ ...limited, tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(
      reply(toolCall('look', { n: 1 }), finish('tool_calls')),
      reply(toolCall('look', { n: 2 }), finish('tool_calls')),
    )
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(stage.provider.requests.map(({ body }) => [body.tool_choice, body.tools?.length])).toEqual([
      ['auto', 1],
      ['none', 1],
    ])
    expect(look.ran).toEqual([{ n: 1 }])
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([{ error: { code: 'STEP_LIMIT' } }])
    expect(await stage.payloads(s, 'tool.started')).toHaveLength(1)
    expect((await stage.payloads(s, 'step.ended')).map(({ continues }) => continues)).toEqual([true, false])
  })

  it('STEP-15: a retry uses up no step, before output and after it', async () => {
    const look = instant('look')
    const { core } = await stage.start({ ...limited, tools: [look.tool] })
    const s = await stage.session()
    const broken = gate()
    stage.provider.script(
      status(503),
      reply(text('let me'), wait(broken.promise), cut()),
      reply(toolCall('look', {}), finish('tool_calls')),
      reply(text('done'), finish()),
    )
    await prompt(core, s)
    for (const n of [1, 2]) {
      // A connection that breaks can take along what its reader has not taken yet.
      if (n === 2) await eventually('the text', async () => [...core.live.partsOf(s)][0]?.text === 'let me')
      if (n === 2) broken.open()
      await stage.logged(s, 'step.retry_scheduled', n)
      await stage.clock.armed()
      await stage.clock.advance(4800)
    }
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(stage.provider.requests.map(({ body }) => body.tool_choice)).toEqual(['auto', 'auto', 'auto', 'none'])
    expect((await stage.payloads(s, 'step.failed')).map(({ continues }) => continues)).toEqual([true])
    expect(look.ran).toHaveLength(1)
  })
})

describe('history for the next request', () => {
  it('STEP-16: every call has a result, whatever became of it', async () => {
    const { core } = await stage.start({
      tools: [
        instant('broken', () => {
          throw new Error('no luck')
        }).tool,
      ],
    })
    const s = await stage.session()
    stage.provider.script(
      reply(
        toolCalls(
          { name: 'broken', args: { a: 1 }, id: 'c_error' },
          { name: 'nowhere', args: { a: 1 }, id: 'c_unknown' },
          { name: 'broken', args: '{"a": oops', id: 'c_malformed' },
        ),
        finish('tool_calls'),
      ),
      reply(text('ok'), finish()),
    )
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    const [, assistant, ...results] = stage.provider.requests[1]!.body.messages
    const calls = assistant!.tool_calls as { id: string; function: { arguments: string } }[]
    expect(calls.map(({ id }) => id)).toEqual(['c_error', 'c_unknown', 'c_malformed'])
    expect(results.map(({ role, tool_call_id }) => [role, tool_call_id])).toEqual([
      ['tool', 'c_error'],
      ['tool', 'c_unknown'],
      ['tool', 'c_malformed'],
    ])
    expect(results.map(({ content }) => String(content).split(':')[0])).toEqual([
      'TOOL_ERROR',
      'UNKNOWN_TOOL',
      'TOOL_INPUT',
    ])
    for (const call of calls) expect(JSON.parse(call.function.arguments)).toBeTypeOf('object')
  })

  it('STEP-17: empty parts are left out; state goes back only to the same model, from a step without error', async () => {
    const state = { own: { signature: 'sealed' } }
    const thinking = (id: string) =>
      [
        { type: 'reasoning-start', id },
        { type: 'reasoning-delta', id, delta: 'hm' },
        { type: 'reasoning-end', id, providerMetadata: state },
      ] as const
    const said = [
      { type: 'text-start', id: 't' },
      { type: 'text-delta', id: 't', delta: 'said' },
      { type: 'text-end', id: 't' },
    ] as const
    const empty = [
      { type: 'text-start', id: 'e' },
      { type: 'text-end', id: 'e' },
    ] as const
    const filtered: LanguageModelV4StreamPart = {
      type: 'finish',
      finishReason: { unified: 'content-filter', raw: 'x' },
      usage,
    }
    const own = scriptedModel(
      [...thinking('r'), ...empty, ...said, finished()],
      [...thinking('r'), ...said, filtered],
      [finished()],
    )
    const other = scriptedModel([finished()])
    const { core } = await stage.start({
      models: { models: { 'own/x': { model: own.model }, 'own/y': { model: other.model } } },
    })
    const s = await stage.session({ model: 'own/x' })
    for (let n = 0; n < 3; n++) {
      await prompt(core, s, `p${n}`)
      await core.coordinator.idle()
    }
    await updateSession(core, tenant, { sessionId: s, model: 'own/y' })
    await prompt(core, s, 'p3')
    await core.coordinator.idle()
    const assistants = (calls: typeof own.calls) =>
      calls
        .at(-1)!
        .prompt.filter(({ role }) => role === 'assistant')
        .map(({ content }) => content)
    const text = { type: 'text', text: 'said' }
    expect(assistants(own.calls)).toEqual([[{ type: 'reasoning', text: 'hm', providerOptions: state }, text], [text]])
    expect(assistants(other.calls)).toEqual([[text], [text]])
  })

  it('STEP-06, STEP-17: the text of a failed step goes back as it was', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    stage.provider.script(reply(text('partial'), streamError('insufficient_quota')), reply(text('ok'), finish()))
    await prompt(core, s, 'one')
    await core.coordinator.idle()
    await prompt(core, s, 'two')
    await core.coordinator.idle()
    expect(spoken(stage.provider.requests[1]!)).toEqual(['user: one', 'assistant: partial', 'user: two'])
  })
})
