import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { defineTool } from '../src/config.ts'
import { event } from '../src/events.ts'
import { sessionStream } from '../src/session-stream.ts'
import type { StreamItem } from '../src/stream-item.ts'
import { eventually } from './support/core.ts'
import {
  finish,
  finishing,
  gate,
  hang,
  reply,
  streamError,
  text,
  toolCall,
  toolCalls,
  wait,
} from './support/provider.ts'
import { instant, interrupt, probe, prompt, refuseEvents, spoken, spyAppends, useStage } from './support/stage.ts'

const stage = useStage()
const toolRows = (sessionId: string) =>
  stage.db.toolCall.findMany({ where: { sessionId }, orderBy: [{ messageId: 'asc' }, { index: 'asc' }] })
const ok = () => reply(text('ok'), finish())

describe('a tool call', () => {
  it('TOOL-01, TOOL-21: is committed with its start, runs, and its result goes back with the call', async () => {
    const startedBefore: string[] = []
    const look = instant('look', async () => {
      // What the tool does is an effect outside: its start has to be durable by then.
      startedBefore.push(...(await stage.payloads(s, 'tool.started')).map(({ callId }) => callId))
      return { seen: 1 }
    })
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('look', { at: 'sea' }, 'call_a'), finish('tool_calls')), ok())
    await prompt(core, s, 'look')
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(startedBefore).toEqual(['call_a'])
    const commits = (await stage.commits(s)).map((types) => types.join(' '))
    expect(commits).toContain('tool.called tool.started')
    expect((await stage.types(s)).filter((type) => /^(tool|step\.(started|ended))/.test(type))).toEqual([
      'step.started',
      'tool.input_started',
      'tool.called',
      'tool.started',
      'tool.succeeded',
      'step.ended',
      'step.started',
      'step.ended',
    ])
    expect(await stage.payloads(s, 'step.ended')).toMatchObject([{ continues: true }, { continues: false }])
    expect(spoken(stage.provider.requests[1]!)).toEqual(['user: look', 'call look {"at":"sea"}', 'result {"seen":1}'])
    expect(await toolRows(s)).toMatchObject([
      { status: 'COMPLETED', startedAt: expect.any(Date), input: { at: 'sea' } },
    ])
  })

  it('TOOL-02: the start is one append, fenced on phase UNKNOWN, and the dispatch comes after it', async () => {
    const look = probe('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    const appends = spyAppends(core)
    stage.provider.script(reply(toolCall('look', {}), finish('tool_calls')), ok())
    await prompt(core, s)
    ;(await look.run()).finish()
    await core.coordinator.idle()
    const starts = appends.filter(({ events }) => events.some(({ type }) => type === 'tool.started'))
    expect(starts.map(({ events, fence }) => [events.map(({ type }) => type), fence?.phases, fence?.owner])).toEqual([
      [['tool.called', 'tool.started'], ['UNKNOWN'], core.owner],
    ])
  })

  it('TOOL-02, TOOL-21: if that commit fails nothing is dispatched, and the call has never started', async () => {
    const look = instant('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    const fault = await refuseEvents(stage, s, 'tool.started')
    stage.provider.script(reply(toolCall('look', {}), finish('tool_calls')))
    await prompt(core, s)
    await core.coordinator.idle()
    expect(await fault.fired()).toBeGreaterThan(0)
    expect(look.ran).toEqual([])
    expect(stage.provider.requests).toHaveLength(1)
    expect(await stage.types(s)).not.toContain('tool.started')
    expect(await toolRows(s)).toMatchObject([{ status: 'FAILED', startedAt: null }])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([
      { error: { code: 'OUTCOME_UNKNOWN' }, continues: false },
    ])
    expect(await stage.claim(s)).toBeNull()
  })

  it('TOOL-03: five calls run beside each other before the stream ends, and one continuation follows when all have settled', async () => {
    const look = probe('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    const open = gate()
    const calls = toolCalls(...[1, 2, 3, 4, 5].map((n) => ({ name: 'look', args: { n }, id: `call_${n}` })))
    stage.provider.script(
      reply(calls, finishing('tool_calls'), wait(open.promise), finish('tool_calls').slice(1)),
      ok(),
    )
    await prompt(core, s)
    await look.run(4)
    expect(look.runs.map(({ input }) => input)).toEqual([1, 2, 3, 4, 5].map((n) => ({ n })))
    expect((await stage.types(s)).filter((type) => /^tool\.(succeeded|failed)/.test(type))).toEqual([])
    open.open()
    await stage.logged(s, 'step.streamed')
    for (const n of [3, 0, 4, 1]) look.runs[n]!.finish(`out ${n}`)
    await stage.logged(s, 'tool.succeeded', 4)
    expect(stage.provider.requests).toHaveLength(1)
    look.runs[2]!.finish('out 2')
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(stage.provider.requests).toHaveLength(2)
    const results = spoken(stage.provider.requests[1]!).filter((line) => line.startsWith('result'))
    expect(results).toEqual([0, 1, 2, 3, 4].map((n) => `result out ${n}`))
  })

  it('TOOL-12: gets its input as the schema makes it, a signal, its deadline, its call id and a progress function', async () => {
    const contexts: unknown[] = []
    const tool = defineTool({
      name: 'typed',
      description: 'takes a date',
      inputSchema: z.object({ on: z.string().transform((text) => text.toUpperCase()), n: z.number().default(7) }),
      timeoutMs: 5000,
      execute(input, context) {
        contexts.push(input, context)
        return 'fine'
      },
    })
    const { core } = await stage.start({ tools: [tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('typed', { on: 'monday' }, 'call_key'), finish('tool_calls')), ok())
    await prompt(core, s)
    await core.coordinator.idle()
    const { messageId } = (await stage.payloads(s, 'step.started'))[0]!
    expect(contexts).toEqual([
      { on: 'MONDAY', n: 7 },
      {
        sessionId: s,
        messageId,
        callId: 'call_key',
        signal: expect.any(AbortSignal),
        deadline: new Date(stage.clock.now() + 5000),
        progress: expect.any(Function),
      },
    ])
    // What the model wrote is what stands in history.
    expect(await toolRows(s)).toMatchObject([{ input: { on: 'monday' } }])
  })

  it('TOOL-13: progress reaches open streams without a seq, is in no log, and is ignored after the end', async () => {
    const look = probe('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('look', {}, 'call_p'), finish('tool_calls')), ok())
    await prompt(core, s)
    const { context, finish: done } = await look.run()
    const items: StreamItem[] = []
    const stream = sessionStream({ ...core, clock: undefined } as never, { sessionId: s, after: 0 })
    const reading = (async () => {
      for await (const item of stream) items.push(item)
    })()
    await eventually('the stream', async () => items.some(({ typename }) => typename === 'LogSynced'))
    const heard: unknown[] = []
    core.live.listen(s, (note) => note !== null && heard.push(note.progress))
    context.progress({ half: true })
    await eventually('progress', async () => items.some(({ typename }) => typename === 'ToolProgress'))
    done()
    await core.coordinator.idle()
    context.progress({ late: true })
    expect(heard).toEqual([{ half: true }])
    await eventually('the end', async () => items.some(({ typename }) => typename === 'ExecutionSettled'))
    await stream.return!()
    await reading
    const notes = items.filter(({ typename }) => typename === 'ToolProgress')
    expect(notes).toMatchObject([{ seq: null, callId: 'call_p', progress: { half: true } }])
    expect(JSON.stringify(await stage.events(s))).not.toContain('half')
  })
})

describe('progress that cannot be shown', () => {
  it('TOOL-13: costs nobody the stream: only a bounded copy in JSON goes out, the rest is left out with a line in the log', async () => {
    const look = probe('look')
    const lines: Record<string, unknown>[] = []
    const { core } = await stage.start({ tools: [look.tool], log: (line) => lines.push(line) })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('look', {}, 'call_p'), finish('tool_calls')), ok())
    await prompt(core, s)
    const { context, finish: done } = await look.run()
    const heard: unknown[] = []
    core.live.listen(s, (note) => note !== null && heard.push(note.progress))
    const ring: { [key: string]: unknown } = {}
    ring.itself = ring
    const report = { at: 1, half: '\ud800' }
    for (const update of [10n, ring, () => {}, undefined, 'x'.repeat(60_000), report]) context.progress(update as never)
    report.at = 2
    context.progress(null)
    expect(heard).toEqual([{ at: 1, half: '\ufffd' }, null])
    const left = lines.filter(({ msg }) => msg === 'progress of a tool was not shown')
    expect(left).toMatchObject(Array.from({ length: 5 }, () => ({ callId: 'call_p', tool: 'look' })))
    done()
    await core.coordinator.idle()
    stage.provider.expectDone()
  })
})

describe('a call that cannot run', () => {
  it('TOOL-04: an unknown tool: the model is told, nothing starts, the loop goes on', async () => {
    const { core } = await stage.start({ tools: [instant('look').tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('lok', {}), finish('tool_calls')), ok())
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([{ error: { code: 'UNKNOWN_TOOL' } }])
    expect(await stage.types(s)).not.toContain('tool.started')
    expect(await stage.types(s)).not.toContain('step.failed')
    expect(spoken(stage.provider.requests[1]!).at(-1)).toMatch(/^result UNKNOWN_TOOL: .*"lok".*look/)
  })

  it.each<[string, () => unknown, string]>([
    [
      'an error',
      () => {
        throw new Error('out of luck')
      },
      'out of luck',
    ],
    [
      'something that is no error',
      () => {
        throw 'just text'
      },
      'just text',
    ],
    ['a rejection', () => Promise.reject(new Error('later')), 'later'],
    ['an output without a JSON form', () => 10n, 'BigInt'],
  ])(
    'TOOL-05: a tool that throws %s: its message goes to the model and the loop goes on',
    async (_what, answer, said) => {
      const { core } = await stage.start({ tools: [instant('broken', answer).tool] })
      const s = await stage.session()
      stage.provider.script(reply(toolCall('broken', {}), finish('tool_calls')), ok())
      await prompt(core, s)
      await core.coordinator.idle()
      stage.provider.expectDone()
      const [failed] = await stage.payloads(s, 'tool.failed')
      expect(failed!.error.code).toBe('TOOL_ERROR')
      expect(failed!.error.message).toContain(said)
      expect(await stage.payloads(s, 'step.ended')).toMatchObject([{ continues: true }, { continues: false }])
      expect(spoken(stage.provider.requests[1]!).at(-1)).toContain(said)
    },
  )

  it.each([
    ['cut short', '{"to": "nowhe'],
    ['no JSON', 'SECRETRAW'],
    ['no object', '["a list"]'],
  ])(
    'TOOL-06: arguments that are %s: no call, no start, and the raw text is in no later request',
    async (_what, raw) => {
      const look = instant('look')
      const { core } = await stage.start({ tools: [look.tool] })
      const s = await stage.session()
      stage.provider.script(reply(toolCall('look', raw), finish('tool_calls')), ok())
      await prompt(core, s)
      await core.coordinator.idle()
      stage.provider.expectDone()
      expect((await stage.types(s)).filter((type) => type.startsWith('tool.'))).toEqual([
        'tool.input_started',
        'tool.failed',
      ])
      expect(await stage.payloads(s, 'tool.failed')).toMatchObject([{ error: { code: 'TOOL_INPUT' } }])
      expect(look.ran).toEqual([])
      const [row] = await toolRows(s)
      expect(row!.input).toBeNull()
      expect(row!.startedAt).toBeNull()
      expect(JSON.stringify(stage.provider.requests[1]!.body)).not.toContain(raw.slice(0, 9))
      expect(spoken(stage.provider.requests[1]!).slice(1)).toEqual([
        'call look {}',
        expect.stringMatching(/^result TOOL_INPUT:/),
      ])
      expect(await stage.db.chunk.count({ where: { sessionId: s } })).toBe(0)
    },
  )

  it('TOOL-06: arguments that are nested 10 000 levels deep are malformed as well, and the session goes on', async () => {
    const look = instant('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    const args = `{"a":${'['.repeat(10_000)}${']'.repeat(10_000)}}`
    stage.provider.script(reply(toolCall('look', args, 'call_deep'), finish('tool_calls')), ok())
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(look.ran).toEqual([])
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([
      { error: { code: 'TOOL_INPUT', message: 'the arguments must not be nested deeper than 100 levels' } },
    ])
    expect(await stage.types(s)).not.toContain('tool.called')
    expect(spoken(stage.provider.requests[1]!).at(-1)).toMatch(/^result TOOL_INPUT/)
    expect(await stage.claim(s)).toBeNull()
  })

  it('TOOL-14: an output that is nested 10 000 levels deep is kept as far as it goes', async () => {
    const look = instant('look', () => JSON.parse(`${'['.repeat(10_000)}${']'.repeat(10_000)}`))
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('look', {}, 'call_deep'), finish('tool_calls')), ok())
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(await toolRows(s)).toMatchObject([{ status: 'COMPLETED' }])
    expect(spoken(stage.provider.requests[1]!).at(-1)).toContain('nested deeper than 100 levels')
  })

  it('TOOL-07: arguments that break the schema: the same, and the model is told which field', async () => {
    const tool = {
      ...instant('add').tool,
      inputSchema: { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] },
    }
    const { core } = await stage.start({ tools: [tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('add', { a: 'three apples' }), finish('tool_calls')), ok())
    await prompt(core, s)
    await core.coordinator.idle()
    expect((await stage.types(s)).filter((type) => type.startsWith('tool.'))).toEqual([
      'tool.input_started',
      'tool.failed',
    ])
    const [failed] = await stage.payloads(s, 'tool.failed')
    expect(failed!.error).toMatchObject({ code: 'TOOL_INPUT', message: expect.stringMatching(/^a\b/) })
    expect(JSON.stringify(stage.provider.requests[1]!.body)).not.toContain('apples')
    expect((await toolRows(s))[0]!.input).toBeNull()
  })

  it('TOOL-08: beside a valid one: the continuation waits for that, and both results are sent', async () => {
    const look = probe('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    const calls = toolCalls({ name: 'look', args: { n: 1 }, id: 'c1' }, { name: 'look', args: '{oops', id: 'c2' })
    stage.provider.script(reply(calls, finish('tool_calls')), ok())
    await prompt(core, s)
    const { finish: done } = await look.run()
    await stage.logged(s, 'step.streamed')
    expect(stage.provider.requests).toHaveLength(1)
    done('fine')
    await core.coordinator.idle()
    expect(look.runs).toHaveLength(1)
    expect(spoken(stage.provider.requests[1]!).slice(-2)).toEqual([
      'result fine',
      expect.stringMatching(/^result TOOL_INPUT/),
    ])
  })

  it('TOOL-11: a tool beyond its deadline is told by its signal, the model by TOOL_TIMEOUT, and the step goes on', async () => {
    const slow = probe('slow', { timeoutMs: 3000 })
    const { core } = await stage.start({ tools: [slow.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('slow', {}), finish('tool_calls')), ok())
    await prompt(core, s)
    const { context, finish: late } = await slow.run()
    await stage.logged(s, 'step.streamed')
    await stage.clock.armed(3000)
    expect(context.signal.aborted).toBe(false)
    await stage.clock.advance(2999)
    expect(context.signal.aborted).toBe(false)
    await stage.clock.advance(1)
    expect(context.signal.aborted).toBe(true)
    const failed = await stage.logged(s, 'tool.failed')
    expect(failed.error.code).toBe('TOOL_TIMEOUT')
    expect(failed.error.message).toContain('3000 ms')
    late('too late')
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(await stage.types(s)).not.toContain('tool.succeeded')
    expect(spoken(stage.provider.requests[1]!).at(-1)).toContain('TOOL_TIMEOUT')
  })

  it('TOOL-11: without a limit of its own the configured one counts', async () => {
    const slow = probe('slow')
    const { core } = await stage.start({ tools: [slow.tool], config: { toolTimeoutMs: 777 } })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('slow', {}), finish('tool_calls')), ok())
    await prompt(core, s)
    const { context } = await slow.run()
    expect(context.deadline.getTime() - stage.clock.now()).toBe(777)
    await stage.clock.armed(777)
    await stage.clock.advance(777)
    await core.coordinator.idle()
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([{ error: { code: 'TOOL_TIMEOUT' } }])
  })
})

describe('TOOL-10: the loop guard', () => {
  const again = (n: number) => ({ name: 'look', args: n % 2 === 0 ? { x: 1, y: 2 } : { y: 2, x: 1 }, id: `call_${n}` })

  it('the third identical call in a row is not run, across steps; the fifth fails the step', async () => {
    const look = instant('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(...[1, 2, 3, 4, 5].map((n) => reply(toolCalls(again(n)), finish('tool_calls'))))
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(look.ran).toHaveLength(2)
    const failures = await stage.payloads(s, 'tool.failed')
    expect(failures.map(({ callId, error }) => [callId, error.code])).toEqual(
      [3, 4, 5].map((n) => [`call_${n}`, 'LOOP_GUARD']),
    )
    expect((await stage.payloads(s, 'tool.started')).map(({ callId }) => callId)).toEqual(['call_1', 'call_2'])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([{ error: { code: 'LOOP_GUARD' }, continues: false }])
    expect(stage.provider.requests).toHaveLength(5)
    expect(spoken(stage.provider.requests[3]!).at(-1)).toMatch(/^result LOOP_GUARD: .*3 times/)
  })

  it('also within one step', async () => {
    const look = instant('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCalls(...[1, 2, 3].map(again)), finish('tool_calls')), ok())
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(look.ran).toHaveLength(2)
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([{ callId: 'call_3', error: { code: 'LOOP_GUARD' } }])
    expect(await stage.payloads(s, 'step.ended')).toMatchObject([{ continues: true }, { continues: false }])
  })

  it('two identical ones, three with another in between, and a new activity run', async () => {
    const look = instant('look')
    const other = instant('other')
    const { core } = await stage.start({ tools: [look.tool, other.tool] })
    const s = await stage.session()
    const between = { name: 'other', args: { x: 1, y: 2 } }
    stage.provider.script(
      reply(toolCalls(again(1), again(2), between, again(3)), finish('tool_calls')),
      ok(),
      reply(toolCalls(again(4), again(5)), finish('tool_calls')),
      ok(),
    )
    await prompt(core, s)
    await core.coordinator.idle()
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(look.ran).toHaveLength(5)
    expect(await stage.types(s)).not.toContain('tool.failed')
  })
})

describe('the outcome of a tool', () => {
  it('TOOL-14, TOOL-15: is stored and shown to the model within the bounds, media parts in their place', async () => {
    const big = Array.from({ length: 2001 }, (_, n) => `line ${n + 1}`).join('\n')
    const output = [
      { type: 'text', text: big },
      { type: 'media', data: Buffer.from('png').toString('base64'), mediaType: 'image/png' },
    ]
    const { core } = await stage.start({
      tools: [instant('lines', () => big).tool, instant('parts', () => output).tool],
    })
    const s = await stage.session()
    const calls = toolCalls({ name: 'lines', args: { a: 1 }, id: 'c1' }, { name: 'parts', args: { a: 1 }, id: 'c2' })
    stage.provider.script(reply(calls, finish('tool_calls')), ok())
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    const [first, second] = await toolRows(s)
    expect(first!.output).toMatch(/^line 1\n.*\n\[\.\.\. \d+ bytes, 1 lines left out \.\.\.\]\n.*line 2001$/s)
    expect(second!.output).toMatchObject([{ type: 'text', text: first!.output }, output[1]])
    const sent = stage.provider.requests[1]!.body.messages.filter(({ role }) => role === 'tool')
    expect(sent[0]!.content).toBe(first!.output)
    expect(JSON.stringify(sent[1]!.content)).toContain('left out')
  })

  it("TOOL-09: of one that still runs when the provider fails is kept, before the step's end, and nothing continues", async () => {
    const look = probe('look')
    const { core } = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('look', {}), finishing('tool_calls'), streamError('insufficient_quota')))
    await prompt(core, s)
    const { finish: done } = await look.run()
    await (await stage.provider.request(0)).ended
    expect(await stage.types(s)).not.toContain('step.failed')
    done('kept')
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect((await stage.types(s)).slice(-3)).toEqual(['tool.succeeded', 'step.failed', 'execution.settled'])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([{ continues: false }])
    expect(stage.provider.requests).toHaveLength(1)
  })

  it('TOOL-16: that cannot be stored for good fails the step; the tool is not run again and no call stays running', async () => {
    const look = probe('look')
    const fine = probe('fine')
    const { core } = await stage.start({ tools: [look.tool, fine.tool] })
    const s = await stage.session()
    const calls = toolCalls({ name: 'look', args: { a: 1 }, id: 'c1' }, { name: 'fine', args: { a: 1 }, id: 'c2' })
    stage.provider.script(reply(calls, finish('tool_calls')))
    await prompt(core, s)
    await fine.run()
    const { finish: done } = await look.run()
    fine.runs[0]!.finish()
    await stage.logged(s, 'tool.succeeded')
    const fault = await refuseEvents(stage, s, 'tool.succeeded')
    done('lost')
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(await fault.fired()).toBeGreaterThan(0)
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([{ callId: 'c1', error: { code: 'OUTCOME_UNKNOWN' } }])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([
      { error: { code: 'OUTCOME_UNKNOWN' }, continues: false },
    ])
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{ outcome: 'FAILED' }])
    expect((await toolRows(s)).map(({ status }) => status)).toEqual(['FAILED', 'COMPLETED'])
    core.coordinator.wake(s)
    await core.coordinator.idle()
    expect(look.runs).toHaveLength(1)
  })

  it('TOOL-17: comes once: a late result after an abort is dropped, and the database refuses a second terminal', async () => {
    const stubborn = probe('stubborn')
    const { core } = await stage.start({ tools: [stubborn.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('stubborn', {}, 'c1'), finishing('tool_calls'), hang()))
    await prompt(core, s)
    const { finish: late } = await stubborn.run()
    const interrupted = interrupt(core, s)
    await stage.clock.armed(core.config.interruptGraceMs)
    await stage.clock.advance(core.config.interruptGraceMs)
    expect(await interrupted).toMatchObject({ interrupted: true })
    const before = await stage.events(s)
    late('too late')
    await core.eventLog.idle()
    await core.coordinator.idle()
    expect(await stage.events(s)).toEqual(before)
    const { messageId } = (await stage.payloads(s, 'step.started'))[0]!
    const second = event('tool.succeeded', { messageId, callId: 'c1', output: 'x' })
    await expect(core.eventLog.append({ sessionId: s, events: [second] })).rejects.toThrow(/refused/)
    // The projection is one guard; the index under it is another, for whatever writes events.
    await expect(
      stage.db
        .$executeRaw`INSERT INTO "Event" SELECT "sessionId", 9999, 'tool.succeeded', payload, at, gen_random_uuid(), 0
        FROM "Event" WHERE "sessionId" = ${s} AND type = 'tool.failed'`,
    ).rejects.toThrow(/Event_tool_terminal/)
  })
})
