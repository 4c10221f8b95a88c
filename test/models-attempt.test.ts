import type { LanguageModelV4, LanguageModelV4StreamPart } from '@ai-sdk/provider'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type AttemptRequest, attempt } from '../src/runner/models/attempt.ts'
import type { ProviderEvent } from '../src/runner/models/provider-event.ts'
import { createModelRegistry } from '../src/runner/models/registry.ts'
import { testClock } from './support/clock.ts'
import {
  cut,
  end,
  errorBody,
  finish,
  finishing,
  gate,
  hang,
  type Provider,
  raw,
  reasoning,
  reply,
  startProvider,
  status,
  streamError,
  text,
  toolCall,
  toolCalls,
  wait,
} from './support/provider.ts'

let provider: Provider
beforeEach(async () => {
  provider = await startProvider()
})
afterEach(() => provider.close())

function request(over: Partial<AttemptRequest> = {}): AttemptRequest {
  const registry = createModelRegistry({
    compatible: { baseUrl: provider.baseUrl, apiKey: 'secret-key' },
    defaultModel: 'compatible/x',
  })
  return {
    model: registry.resolve('compatible/x')!,
    prompt: [{ role: 'user', content: [{ type: 'text', text: 'the prompt' }] }],
    tools: [],
    toolChoice: 'auto',
    signal: new AbortController().signal,
    idleMs: 60_000,
    ...over,
  }
}

/** Runs to the end: what came, and what it threw. */
async function run(over: Partial<AttemptRequest> = {}): Promise<{ events: ProviderEvent[]; error?: unknown }> {
  const events: ProviderEvent[] = []
  try {
    for await (const event of attempt(request(over))) events.push(event)
    return { events }
  } catch (error) {
    return { events, error }
  }
}

/** A model of our own: the stream parts exactly as given. */
function scripted(...parts: LanguageModelV4StreamPart[]): Partial<AttemptRequest> {
  const model: LanguageModelV4 = {
    specificationVersion: 'v4',
    provider: 'scripted',
    modelId: 'parts',
    supportedUrls: {},
    doGenerate: () => Promise.reject(new Error('not used')),
    doStream: async () => ({
      stream: new ReadableStream({
        start(controller) {
          for (const part of parts) controller.enqueue(part)
          controller.close()
        },
      }),
    }),
  }
  return { model: { id: 'own/parts', contextTokens: null, model } }
}
const finishPart: LanguageModelV4StreamPart = {
  type: 'finish',
  finishReason: { unified: 'stop', raw: undefined },
  usage: {
    inputTokens: { total: 1, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
    outputTokens: { total: 1, text: undefined, reasoning: undefined },
  },
}

const ofType = <T extends ProviderEvent['type']>(events: ProviderEvent[], type: T) =>
  events.filter((event): event is Extract<ProviderEvent, { type: T }> => event.type === type)

const tool = {
  name: 'add',
  description: 'adds',
  inputSchema: { type: 'object' as const, properties: { a: { type: 'number' as const } } },
}

describe('what a provider says', () => {
  it('text and reasoning that alternate come as parts of their own, in order, each with a fresh id', async () => {
    provider.script(reply(text('a', 'b'), reasoning('why'), text('c'), finish()))
    const { events, error } = await run()
    expect(error).toBeUndefined()
    expect(events.map(({ type }) => type)).toEqual([
      ...['text-start', 'text-delta', 'text-delta', 'text-end'],
      ...['reasoning-start', 'reasoning-delta', 'reasoning-end'],
      ...['text-start', 'text-delta', 'text-end', 'finish'],
    ])
    const starts = events.flatMap((event) => (event.type.endsWith('-start') && 'id' in event ? [event.id] : []))
    expect(new Set(starts).size).toBe(3)
    expect(ofType(events, 'text-delta').map((event) => event.text)).toEqual(['a', 'b', 'c'])
  })

  it('an answer that is longer than the log could keep ends as one that is not valid, and is not asked for again', async () => {
    const delta = 'x'.repeat(8 * 1024 * 1024)
    const parts: LanguageModelV4StreamPart[] = [
      { type: 'text-start', id: 't' },
      ...Array.from({ length: 5 }, (): LanguageModelV4StreamPart => ({ type: 'text-delta', id: 't', delta })),
      { type: 'text-end', id: 't' },
      finishPart,
    ]
    const { events, error } = await run(scripted(...parts))
    expect(ofType(events, 'text-delta')).toHaveLength(4)
    expect(error).toMatchObject({ code: 'PROVIDER_INVALID', retryable: false })
    expect((await run(scripted(...parts.filter((_, n) => n !== 2)))).error).toBeUndefined()
  })

  it('usage is reported with cached and reasoning tokens, and asked for in the request', async () => {
    provider.script(reply(text('a'), finish('length', { input: 100, output: 20, reasoning: 7, cached: 40 })))
    const { events } = await run()
    expect(events.at(-1)).toEqual({
      type: 'finish',
      reason: 'length',
      usage: { inputTokens: 100, outputTokens: 20, reasoningTokens: 7, cachedInputTokens: 40 },
    })
    expect(provider.requests[0]?.body.stream_options).toEqual({ include_usage: true })
  })

  it('the request carries prompt, tools, tool choice and key', async () => {
    provider.script(reply(text('a'), finish()))
    await run({ tools: [tool], toolChoice: 'none' })
    const { body, headers } = provider.requests[0]!
    expect(body.model).toBe('x')
    expect(body.messages).toEqual([{ role: 'user', content: 'the prompt' }])
    expect(body.tools).toEqual([
      { type: 'function', function: { name: 'add', description: 'adds', parameters: tool.inputSchema } },
    ])
    expect(body.tool_choice).toBe('none')
    expect(headers.authorization).toBe('Bearer secret-key')
  })

  it('parallel tool calls come each once, with the arguments as the model wrote them', async () => {
    provider.script(
      reply(
        toolCalls(
          { name: 'add', args: '{"a": 1 }', id: 'c1' },
          { name: 'add', args: '{"a":', id: 'c2' },
          { name: 'now', args: '', id: 'c3' },
        ),
        finish('tool_calls'),
      ),
    )
    const { events } = await run({ tools: [tool] })
    expect(ofType(events, 'tool-call')).toEqual([
      { type: 'tool-call', callId: 'c1', name: 'add', input: '{"a": 1 }', providerExecuted: false },
      { type: 'tool-call', callId: 'c2', name: 'add', input: '{"a":', providerExecuted: false },
      { type: 'tool-call', callId: 'c3', name: 'now', input: '{}', providerExecuted: false },
    ])
    expect(events.at(-1)).toMatchObject({ type: 'finish', reason: 'tool-calls' })
  })

  it('a tool call is handed on when the server announces finish, while the stream is still open', async () => {
    const { promise, open } = gate()
    provider.script(reply(toolCall('add', { a: 1 }, 'c1'), finishing('tool_calls'), wait(promise), end()))
    const seen: string[] = []
    for await (const event of attempt(request({ tools: [tool] }))) {
      seen.push(event.type)
      if (event.type === 'tool-call') {
        expect(provider.requests[0]?.aborted).toBe(false)
        open()
      }
    }
    expect(seen.slice(-2)).toEqual(['tool-call', 'finish'])
  })

  it('a finish that comes with the last arguments hands on the whole call, not the call without them', async () => {
    const { promise, open } = gate()
    const last = {
      choices: [
        {
          index: 0,
          delta: { tool_calls: [{ index: 0, function: { arguments: '{"a":1}' } }] },
          finish_reason: 'tool_calls',
        },
      ],
    }
    const begin = toolCall('add', '', 'c1')
    provider.script(reply(begin, raw(`data: ${JSON.stringify(last)}\n\n`), wait(promise), end()))
    const inputs: string[] = []
    for await (const event of attempt(request({ tools: [tool] }))) {
      if (event.type !== 'tool-call') continue
      inputs.push(event.input)
      open()
    }
    expect(inputs).toEqual(['{"a":1}'])
  })

  it('empty arguments that a server repeats behind a complete call do no harm', async () => {
    const repeat = {
      choices: [{ delta: { tool_calls: [{ index: 0, function: { arguments: '' } }] }, finish_reason: 'tool_calls' }],
    }
    provider.script(reply(toolCall('add', { a: 1 }, 'c1'), raw(`data: ${JSON.stringify(repeat)}\n\n`), end()))
    const { events, error } = await run({ tools: [tool] })
    expect(error).toBeUndefined()
    expect(ofType(events, 'tool-call').map(({ input }) => input)).toEqual(['{"a":1}'])
  })

  it('an earlier call is handed on when the next one begins, unless its arguments may still come', async () => {
    const { promise, open } = gate()
    const calls = toolCalls(
      { name: 'add', args: { a: 1 }, id: 'c1' },
      { name: 'add', args: '{}', id: 'c2' },
      { name: 'add', args: '{"a":', id: 'c3' },
    )
    provider.script(reply(calls, wait(promise), finish('tool_calls')))
    const before: string[] = []
    let opened = false
    for await (const event of attempt(request({ tools: [tool] }))) {
      if (event.type === 'tool-call' && !opened) before.push(event.callId)
      if (event.type === 'tool-input-delta' && event.callId === 'c3') {
        opened = true
        open()
      }
    }
    expect(before).toEqual(['c1'])
  })
})

describe('tool calls that are not handed on early', () => {
  it('those with provider state: they come whole, with the state, at the end', async () => {
    const signed = {
      choices: [
        {
          delta: {
            tool_calls: [
              {
                index: 0,
                id: 'c1',
                function: { name: 'add', arguments: '{"a":1}' },
                extra_content: { google: { thought_signature: 'signed' } },
              },
            ],
          },
        },
      ],
    }
    provider.script(reply(raw(`data: ${JSON.stringify(signed)}\n\n`), finish('tool_calls')))
    const { events } = await run({ tools: [tool] })
    expect(ofType(events, 'tool-call')).toMatchObject([
      { callId: 'c1', input: '{"a":1}', state: { compatible: { thoughtSignature: 'signed' } } },
    ])
  })

  it('arguments that go on after their call was handed on fail the attempt', async () => {
    const calls = toolCalls({ name: 'add', args: { a: 1 }, id: 'c1' }, { name: 'add', args: { a: 2 }, id: 'c2' })
    const more = {
      choices: [{ delta: { tool_calls: [{ index: 0, id: 'c1', function: { arguments: ', "b": 2}' } }] } }],
    }
    provider.script(reply(calls, raw(`data: ${JSON.stringify(more)}\n\n`), finish('tool_calls')))
    const { events, error } = await run({ tools: [tool] })
    expect(ofType(events, 'tool-call').map(({ input }) => input)).toEqual(['{"a":1}'])
    expect(error).toMatchObject({ code: 'PROVIDER_UNAVAILABLE', retryable: true })
  })
})

describe('text that a database refuses', () => {
  it('NUL and lone surrogates become U+FFFD, and a pair split over two deltas stays whole', async () => {
    provider.script(reply(text('a\u0000b', '\ud83d', '\ude00!', '\udc00', 'end\ud83d'), finish()))
    const { events } = await run()
    const deltas = ofType(events, 'text-delta').map((event) => event.text)
    expect(deltas.join('')).toBe('a\ufffdb\u{1f600}!\ufffdend\ufffd')
  })

  it('tool arguments are safe also where they escape what is refused', async () => {
    provider.script(
      reply(toolCall('add', String.raw`{"a":"\u0000 \ud83d\ude00 \ud83d \\u0000"}`), finish('tool_calls')),
    )
    const { events } = await run({ tools: [tool] })
    const [call] = ofType(events, 'tool-call')
    expect(JSON.parse(call!.input)).toEqual({ a: '\ufffd \u{1f600} \ufffd \\u0000' })
  })

  it('provider state and results of provider tools are safe throughout', async () => {
    const { events } = await run(
      scripted(
        { type: 'reasoning-start', id: 'r', providerMetadata: { own: { signature: 'early' } } },
        { type: 'reasoning-end', id: 'r', providerMetadata: { own: { signature: 'x\u0000', 'k\ud800': [1, null] } } },
        { type: 'tool-call', toolCallId: 'c', toolName: 'search', input: '{}', providerExecuted: true },
        { type: 'tool-result', toolCallId: 'c', toolName: 'search', result: { hits: ['\udfff'] } },
        finishPart,
      ),
    )
    expect(ofType(events, 'reasoning-end')[0]?.state).toEqual({ own: { signature: 'x\ufffd', 'k\ufffd': [1, null] } })
    expect(ofType(events, 'tool-input-start')).toEqual([
      { type: 'tool-input-start', callId: 'c', name: 'search', providerExecuted: true },
    ])
    expect(ofType(events, 'tool-result')).toEqual([
      { type: 'tool-result', callId: 'c', output: { hits: ['\ufffd'] }, isError: false },
    ])
  })
})

describe('a stream that fails', () => {
  it('RETRY-14: whatever the provider answers, one attempt is one request on the wire', async () => {
    const answers = [
      status(503, errorBody(null)),
      status(429, errorBody(null), { 'retry-after': '0' }),
      status(500, 'no json'),
      status(307, '', { location: `${provider.baseUrl}/chat/completions` }),
      reply(cut()),
      reply(text('half'), cut()),
    ]
    provider.script(...answers)
    for (const [index] of answers.entries()) {
      const { error } = await run()
      expect(error).toMatchObject({ name: 'ProviderFailure' })
      expect(provider.requests).toHaveLength(index + 1)
    }
    provider.expectDone()
  })

  it('cut in the middle: what came is kept, the failure is retryable', async () => {
    provider.script(reply(text('half'), cut()))
    const { events, error } = await run()
    expect(events.map(({ type }) => type)).toEqual(['text-start', 'text-delta'])
    expect(error).toMatchObject({ code: 'PROVIDER_UNAVAILABLE', retryable: true })
  })

  it('nobody listening: retryable, naming the reason and not the address with its password', async () => {
    await provider.close()
    const baseUrl = provider.baseUrl.replace('//', '//user:pass-word@')
    const model = createModelRegistry({ compatible: { baseUrl }, defaultModel: 'demo/echo' }).resolve('compatible/x')!
    const { error } = await run({ model })
    expect(error).toMatchObject({ code: 'PROVIDER_UNAVAILABLE', retryable: true })
    expect(String(error)).toContain('ECONNREFUSED')
    expect(String(error)).not.toContain('pass-word')
  })

  it.each([
    ['ends without a finish', reply(text('half'), end())],
    ['ends without anything', reply(raw(''))],
    ['sends what is no JSON', reply(text('half'), raw('data: {oops\n\n'))],
    ['is not a stream at all', status(200, '<html>welcome</html>')],
  ])('one that %s is retryable', async (_what, steps) => {
    provider.script(steps)
    const { error } = await run()
    expect(error).toMatchObject({ code: 'PROVIDER_UNAVAILABLE', retryable: true })
  })

  it('a model whose own stream ends without a finish is retryable, also if it says so itself', async () => {
    const silent = await run(scripted({ type: 'text-start', id: '1' }))
    expect(silent.error).toMatchObject({ code: 'PROVIDER_UNAVAILABLE', retryable: true })
    const interrupted: LanguageModelV4StreamPart = {
      ...finishPart,
      finishReason: { unified: 'interrupted', raw: undefined },
    }
    const said = await run(scripted(interrupted))
    expect(said.events).toMatchObject([{ type: 'finish', reason: 'error' }])
    expect(said.error).toMatchObject({ code: 'PROVIDER_UNAVAILABLE', retryable: true })
  })

  it('an error in the stream is classified; its usage still comes, nothing else does', async () => {
    provider.script(
      reply(text('half'), streamError('context_length_exceeded'), toolCall('add', {}), text('more'), end({ input: 9 })),
    )
    const { events, error } = await run({ tools: [tool] })
    expect(events.map(({ type }) => type)).toEqual(['text-start', 'text-delta', 'finish'])
    expect(events.at(-1)).toMatchObject({ reason: 'error', usage: { inputTokens: 9 } })
    expect(error).toMatchObject({ code: 'CONTEXT_OVERFLOW', retryable: false })
  })

  it('after an error in the stream a server that keeps the line open is not waited for long', async () => {
    const clock = testClock()
    provider.script(reply(streamError('overloaded_error'), hang()))
    const running = run({ clock, idleMs: 60_000 })
    await clock.armed(1000)
    await clock.advance(1000)
    expect((await running).error).toMatchObject({
      code: 'PROVIDER_UNAVAILABLE',
      message: expect.stringMatching(/overloaded_error/),
    })
  })

  it.each<[string, LanguageModelV4StreamPart[]]>([
    ['a delta for a text that was not started', [{ type: 'text-delta', id: '1', delta: 'stray' }]],
    ['a delta for a reasoning that was not started', [{ type: 'reasoning-delta', id: '1', delta: 'stray' }]],
    [
      'a text that is started twice',
      [
        { type: 'text-start', id: '1' },
        { type: 'text-start', id: '1' },
      ],
    ],
    ['input for a tool call that was not started', [{ type: 'tool-input-delta', id: 'c', delta: '{}' }]],
    [
      'a tool call that is started twice',
      [
        { type: 'tool-input-start', id: 'c', toolName: 'add' },
        { type: 'tool-input-start', id: 'c', toolName: 'add' },
      ],
    ],
    [
      'two tool calls with one id',
      [
        { type: 'tool-call', toolCallId: 'c', toolName: 'add', input: '{}' },
        { type: 'tool-call', toolCallId: 'c', toolName: 'add', input: '{}' },
      ],
    ],
  ])('STEP-19: %s fails the attempt in a typed way, without an event for the stray part', async (_what, parts) => {
    const good = parts.length === 1 ? [] : (await run(scripted(parts[0]!, finishPart))).events.slice(0, -1)
    const { events, error } = await run(scripted(...parts, finishPart))
    expect(error).toMatchObject({ name: 'ProviderFailure', code: 'PROVIDER_UNAVAILABLE', retryable: true })
    expect(events).toEqual(good)
  })
})

describe('an attempt that is ended from here', () => {
  it('RETRY-06: silence for the idle limit before the first chunk aborts the request and is retryable', async () => {
    const clock = testClock()
    provider.script(reply(hang()))
    const running = run({ clock, idleMs: 120_000 })
    await provider.request(0)
    await clock.armed(120_000)
    await clock.advance(119_999)
    expect(provider.requests[0]?.aborted).toBe(false)
    await clock.advance(1)
    const { error } = await running
    expect(error).toMatchObject({
      code: 'PROVIDER_UNAVAILABLE',
      retryable: true,
      message: expect.stringMatching(/120000 ms/),
    })
    await provider.aborted(0)
    expect(clock.timers()).toEqual([])
  })

  it('RETRY-06: silence between chunks does the same, each chunk starts the limit anew', async () => {
    const clock = testClock()
    const { promise, open } = gate()
    provider.script(reply(text('a'), wait(promise), text('b'), hang()))
    const texts: string[] = []
    const failed = (async () => {
      for await (const event of attempt(request({ clock, idleMs: 1000 }))) {
        if (event.type !== 'text-delta') continue
        texts.push(event.text)
        // The consumer's own time does not count: no timer runs while it holds the event.
        expect(clock.timers()).toEqual([])
        void clock.armed().then(async () => {
          if (event.text === 'b') return clock.advance(1000)
          await clock.advance(900)
          open()
        })
      }
    })()
    await expect(failed).rejects.toMatchObject({ code: 'PROVIDER_UNAVAILABLE', retryable: true })
    expect(texts).toEqual(['a', 'b'])
    await provider.aborted(0)
  })

  it('an abort before any answer, or between chunks, throws its reason and aborts the request', async () => {
    provider.script(reply(hang()), reply(text('a'), hang()))
    const early = new AbortController()
    const first = run({ signal: early.signal })
    await provider.request(0)
    const reason = new Error('interrupted by a person')
    early.abort(reason)
    expect((await first).error).toBe(reason)
    await provider.aborted(0)

    const late = new AbortController()
    const seen: string[] = []
    const second = (async () => {
      for await (const event of attempt(request({ signal: late.signal }))) {
        seen.push(event.type)
        if (event.type === 'text-delta') late.abort(reason)
      }
    })()
    await expect(second).rejects.toBe(reason)
    expect(seen).toEqual(['text-start', 'text-delta'])
    await provider.aborted(1)
  })

  it('an abort while the consumer is busy aborts the request then, and gives it nothing more', async () => {
    provider.script(reply(text('a', 'b', 'c'), hang()))
    const stop = new AbortController()
    const seen: string[] = []
    const running = (async () => {
      for await (const event of attempt(request({ signal: stop.signal }))) {
        if (event.type !== 'text-delta') continue
        seen.push(event.text)
        stop.abort(new Error('enough'))
        await provider.aborted(0)
      }
    })()
    await expect(running).rejects.toThrow('enough')
    expect(seen).toEqual(['a'])
  })

  it('a model that ignores its signal is left behind all the same, and a stream it opens later is closed', async () => {
    const { promise, open } = gate()
    let cancelled: () => void = () => {}
    const closed = new Promise<void>((resolve) => {
      cancelled = resolve
    })
    const silent = new ReadableStream<LanguageModelV4StreamPart>({ cancel: () => cancelled() })
    const { model } = scripted()
    for (const opening of [promise, Promise.resolve()]) {
      const stream = opening === promise ? silent : new ReadableStream<LanguageModelV4StreamPart>()
      const doStream = () => opening.then(() => ({ stream }))
      const stop = new AbortController()
      const clock = testClock()
      const running = run({ model: { ...model!, model: { ...model!.model, doStream } }, signal: stop.signal, clock })
      await clock.armed()
      stop.abort('left')
      expect((await running).error).toBe('left')
      expect(clock.timers()).toEqual([])
    }
    open()
    await closed
  })

  it('also if the abort comes while the consumer is busy and the model says nothing more', async () => {
    const stop = new AbortController()
    const { model } = scripted()
    const stream = new ReadableStream<LanguageModelV4StreamPart>({
      start: (controller) => controller.enqueue({ type: 'text-start', id: '1' }),
    })
    const ignoring = { ...model!, model: { ...model!.model, doStream: async () => ({ stream }) } }
    const running = (async () => {
      for await (const _ of attempt(request({ model: ignoring, signal: stop.signal }))) stop.abort(new Error('enough'))
    })()
    await expect(running).rejects.toThrow('enough')
  })

  it('chunks that say nothing are a sign of life, and a failure leaves no timer behind', async () => {
    const clock = testClock()
    const { promise, open } = gate()
    const last = gate()
    const empty = raw('data: {"choices":[]}\n\n')
    provider.script(reply(text('a'), wait(promise), empty, wait(last.promise), cut()))
    const spoken = gate()
    const running = (async () => {
      for await (const event of attempt(request({ clock, idleMs: 1000 })))
        if (event.type === 'text-delta') spoken.open()
    })()
    await spoken.promise
    await clock.armed(1000)
    await clock.advance(900)
    open()
    await clock.armed(1000)
    last.open()
    await expect(running).rejects.toThrow('UND_ERR_SOCKET')
    expect(clock.timers()).toEqual([])
  })

  it('a signal that is aborted already makes no request', async () => {
    const { error } = await run({ signal: AbortSignal.abort('gone') })
    expect(error).toBe('gone')
    expect(provider.requests).toHaveLength(0)
  })

  it('a consumer that stops early aborts the request', async () => {
    provider.script(reply(text('a'), hang()))
    for await (const event of attempt(request())) if (event.type === 'text-delta') break
    await provider.aborted(0)
  })
})
