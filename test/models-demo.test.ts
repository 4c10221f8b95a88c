import type { LanguageModelV4Prompt, LanguageModelV4ToolResultOutput } from '@ai-sdk/provider'
import { describe, expect, it } from 'vitest'
import { type AttemptRequest, attempt } from '../src/runner/models/attempt.ts'
import { demoModel } from '../src/runner/models/demo.ts'
import { parseDemoCommands } from '../src/runner/models/demo-commands.ts'
import type { ProviderEvent } from '../src/runner/models/provider-event.ts'
import { testClock } from './support/clock.ts'

const user = (text: string): LanguageModelV4Prompt[number] => ({ role: 'user', content: [{ type: 'text', text }] })
const tool = { name: 'add', description: 'adds', inputSchema: { type: 'object' as const } }
const instant = () => demoModel({ wordMs: 0 })

async function run(prompt: string | LanguageModelV4Prompt, over: Partial<AttemptRequest> = {}, model = instant()) {
  const events: ProviderEvent[] = []
  const request: AttemptRequest = {
    model: { id: 'demo/echo', contextTokens: 8000, model },
    prompt: typeof prompt === 'string' ? [user(prompt)] : prompt,
    tools: [tool],
    toolChoice: 'auto',
    signal: new AbortController().signal,
    idleMs: 60_000,
    ...over,
  }
  let error: unknown
  try {
    for await (const event of attempt(request)) events.push(event)
  } catch (thrown) {
    error = thrown
  }
  const text = events.map((event) => (event.type === 'text-delta' ? event.text : '')).join('')
  const calls = events.flatMap((event) => (event.type === 'tool-call' ? [[event.name, event.input]] : []))
  return { events, error, text, calls, finish: events.at(-1) }
}

describe('demo/echo answers', () => {
  it('word by word, saying that it is a demo model, with the words of the user', async () => {
    const { events, text, finish } = await run([user('first'), user('hello there')])
    expect(text).toContain('demo model')
    expect(text).toContain('hello there')
    expect(text).not.toContain('first')
    expect(events.filter(({ type }) => type === 'text-delta').length).toBe(text.split(/\s+/).length)
    expect(finish).toMatchObject({ reason: 'stop', usage: { inputTokens: 3, outputTokens: text.split(/\s+/).length } })
  })

  it('a word every 20 ms, or as slowly as asked, and at once silent when aborted', async () => {
    for (const [prompt, ms] of [
      ['hi', 20],
      ['/slow 700', 700],
    ] as const) {
      const clock = testClock()
      const stop = new AbortController()
      const running = run(prompt, { clock, signal: stop.signal }, demoModel({ clock }))
      for (let word = 0; word < 3; word++) {
        await clock.armed(ms)
        await clock.advance(ms)
      }
      await clock.armed(ms)
      stop.abort(new Error('enough'))
      const { events, error } = await running
      expect(String(error)).toContain('enough')
      expect(events.filter(({ type }) => type === 'text-delta')).toHaveLength(3)
      expect(clock.timers()).toEqual([])
    }
  })

  it('/reason: with reasoning before the text, counted as reasoning tokens', async () => {
    const { events, finish } = await run('hello\n/reason because it is so')
    const types = events.map(({ type }) => type)
    expect(types.indexOf('reasoning-end')).toBeGreaterThan(0)
    expect(types.indexOf('reasoning-end')).toBeLessThan(types.indexOf('text-start'))
    expect(finish).toMatchObject({ usage: { reasoningTokens: 4 } })
  })

  it('/length: with as many words', async () => {
    expect((await run('/length 250')).text.split(/\s+/)).toHaveLength(250)
  })
})

describe('demo/echo calls tools', () => {
  it('/tool: one or several, on one line or more, with the arguments as written', async () => {
    const { calls, finish } = await run('Please /tool add {"a": {"b": "}} \\" }"}} /tool add {"a":2}\n/tool now')
    expect(calls).toEqual([
      ['add', '{"a": {"b": "}} \\" }"}}'],
      ['add', '{"a":2}'],
      ['now', '{}'],
    ])
    expect(finish).toMatchObject({ reason: 'tool-calls' })
  })

  it('/malformed: with arguments that are no JSON', async () => {
    const { calls } = await run('/malformed add')
    expect(calls).toHaveLength(1)
    expect(calls[0]?.[0]).toBe('add')
    expect(() => JSON.parse(calls[0]?.[1] ?? '')).toThrow()
  })

  it('not when the tool choice is none or there are no tools: it says so and stops', async () => {
    for (const over of [{ toolChoice: 'none' as const }, { tools: [] }]) {
      const { calls, text, finish } = await run('/tool add {}', over)
      expect(calls).toEqual([])
      expect(text).toContain('add')
      expect(finish).toMatchObject({ reason: 'stop' })
    }
  })

  it('once: with results behind the user message it quotes them; a new message starts over', async () => {
    const result = (name: string, output: LanguageModelV4ToolResultOutput) =>
      ({ type: 'tool-result', toolCallId: name, toolName: name, output }) as const
    const history: LanguageModelV4Prompt = [
      user('/tool add {}\n/fail auth'),
      { role: 'assistant', content: [{ type: 'tool-call', toolCallId: 'add', toolName: 'add', input: {} }] },
      {
        role: 'tool',
        content: [
          result('add', { type: 'json', value: { sum: 42 } }),
          result('b', { type: 'error-text', value: 'it broke' }),
          result('c', { type: 'execution-denied', reason: 'not today' }),
          result('d', { type: 'content', value: [{ type: 'text', text: 'plain' }] }),
        ],
      },
    ]
    const { calls, text, finish } = await run(history)
    expect(calls).toEqual([])
    for (const part of ['{"sum":42}', 'it broke', 'not today', 'plain']) expect(text).toContain(part)
    expect(finish).toMatchObject({ reason: 'stop' })
    expect((await run([...history, user('/tool add {"again":1}')])).calls).toEqual([['add', '{"again":1}']])
  })
})

describe('demo/echo fails when told to', () => {
  it.each([
    ['auth', 'PROVIDER_AUTH', false],
    ['quota', 'PROVIDER_QUOTA', false],
    ['rate', 'PROVIDER_RATE_LIMIT', true],
    ['overload', 'PROVIDER_UNAVAILABLE', true],
    ['invalid', 'PROVIDER_INVALID', false],
    ['content', 'PROVIDER_CONTENT', false],
  ])('/fail %s: as %s, before any output', async (kind, code, retryable) => {
    const { events, error } = await run(`/fail ${kind}`)
    expect(events).toEqual([])
    expect(error).toMatchObject({ code, retryable })
  })

  it('/fail rate: asks for a wait', async () => {
    expect((await run('/fail rate')).error).toMatchObject({ retryAfterMs: 1000 })
  })

  it('/fail mid: after some text, as a lost connection', async () => {
    const { text, error, finish } = await run('/fail mid')
    expect(text.split(/\s+/)).toHaveLength(5)
    expect(finish?.type).toBe('text-delta')
    expect(error).toMatchObject({ code: 'PROVIDER_UNAVAILABLE', retryable: true })
  })

  it('/fail overload 2: two attempts at a prompt, the third answers; then the count starts anew', async () => {
    const model = instant()
    const failed: boolean[] = []
    for (let attempts = 0; attempts < 6; attempts++) {
      failed.push((await run('/fail overload 2', {}, model)).error !== undefined)
      // Another prompt has a count of its own.
      if (attempts === 0) await run('/fail overload 2\nother', {}, model)
    }
    expect(failed).toEqual([true, true, false, true, true, false])
  })

  it('/overflow: as an overflow; with a number, that often, however the history before it changes', async () => {
    expect((await run('/overflow')).error).toMatchObject({ code: 'CONTEXT_OVERFLOW', retryable: false })
    const model = instant()
    const text = user('/overflow 1')
    expect((await run([user('long'), text], {}, model)).error).toMatchObject({ code: 'CONTEXT_OVERFLOW' })
    expect((await run([user('summary'), text], {}, model)).error).toBeUndefined()
  })

  it('/stall: silent for ever, so that the idle limit ends it; with a number, for so long', async () => {
    const clock = testClock()
    const ever = run('/stall', { clock, idleMs: 5000 }, demoModel({ clock, wordMs: 0 }))
    await clock.armed(5000)
    await clock.advance(5000)
    expect(await ever).toMatchObject({ events: [], error: { code: 'PROVIDER_UNAVAILABLE', retryable: true } })

    const short = run('/stall 3000', { clock, idleMs: 5000 }, demoModel({ clock, wordMs: 0 }))
    await clock.armed(3000)
    await clock.advance(3000)
    expect(await short).toMatchObject({ error: undefined, finish: { reason: 'stop' } })
  })
})

describe('demo commands', () => {
  it('begin a line or follow a command; elsewhere, and with a senseless argument, they are text', () => {
    for (const text of [
      'what does /fail auth do?',
      'see src/tool add',
      '/fail softly',
      '/slow down',
      '/length',
      '/failure',
      '/reason',
    ]) {
      expect(parseDemoCommands(text), text).toEqual({ reason: [], tools: [], rest: text })
    }
    expect(parseDemoCommands('  /fail auth 2 /slow 5 /tool add {"a":1} and\n/overflow 1\nhello')).toEqual({
      reason: [],
      tools: [{ name: 'add', input: '{"a":1}' }],
      fail: { kind: 'auth', times: 2 },
      slowMs: 5,
      overflow: { times: 1 },
      rest: expect.stringMatching(/^and\s+hello$/),
    })
  })

  it('an object that is not closed ends with its line', () => {
    expect(parseDemoCommands('/tool add {"a": \n/slow 1')).toMatchObject({
      tools: [{ name: 'add', input: '{"a": ' }],
      slowMs: 1,
    })
  })
})

it('demo/echo answers callers that do not stream with the same content', async () => {
  const { content, finishReason } = await instant().doGenerate({
    prompt: [user('/reason so\n/tool add {}')],
    tools: [{ type: 'function', ...tool }],
  })
  expect(content).toMatchObject([
    { type: 'reasoning', text: 'so' },
    { type: 'text', text: expect.stringContaining('demo model') },
    { type: 'tool-call', toolName: 'add', input: '{}' },
  ])
  expect(finishReason.unified).toBe('tool-calls')
})
