import type { LanguageModelV4Prompt } from '@ai-sdk/provider'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { attempt } from '../src/runner/models/attempt.ts'
import type { ProviderFailure } from '../src/runner/models/failure.ts'
import type { ProviderEvent } from '../src/runner/models/provider-event.ts'
import { createModelRegistry } from '../src/runner/models/registry.ts'
import {
  anthropicBroken,
  anthropicError,
  anthropicReply,
  block,
  type SseProvider,
  startSseProvider,
} from './support/sse-provider.ts'

let provider: SseProvider
beforeEach(async () => {
  provider = await startSseProvider()
})
afterEach(() => provider.close())

const hello: LanguageModelV4Prompt = [{ role: 'user', content: [{ type: 'text', text: 'hello' }] }]
const tools = [{ name: 'add', description: 'adds', inputSchema: { type: 'object' as const } }]
const registry = (path = '') =>
  createModelRegistry({
    anthropic: { apiKey: 'sk-ant-hunter2', baseUrl: provider.origin + path },
    defaultModel: 'demo/echo',
  })

async function run(prompt = hello): Promise<{ events: ProviderEvent[]; failure?: ProviderFailure }> {
  const model = registry().resolve('anthropic/claude-sonnet-4-5')!
  const { signal } = new AbortController()
  const events: ProviderEvent[] = []
  try {
    for await (const event of attempt({ model, prompt, tools, toolChoice: 'auto', signal, idleMs: 5000 }))
      events.push(event)
    return { events }
  } catch (failure) {
    return { events, failure: failure as ProviderFailure }
  }
}

it('an answer with thinking, text and a call becomes events, each call as soon as it is complete', async () => {
  const call = block.toolUse('toolu_1', 'add', '{"a":', '1}')
  provider.script(anthropicReply([block.thinking('hm', 'signed'), block.text('Hel', 'lo'), call], { stop: 'tool_use' }))
  const { events, failure } = await run()
  expect(failure).toBeUndefined()
  expect(events.filter(({ type }) => !type.endsWith('-start'))).toEqual([
    { type: 'reasoning-delta', id: 'reasoning-0', text: 'hm' },
    { type: 'reasoning-end', id: 'reasoning-0', state: { anthropic: { signature: 'signed' } } },
    { type: 'text-delta', id: 'text-1', text: 'Hel' },
    { type: 'text-delta', id: 'text-1', text: 'lo' },
    { type: 'text-end', id: 'text-1' },
    { type: 'tool-input-delta', callId: 'toolu_1', text: '{"a":' },
    { type: 'tool-input-delta', callId: 'toolu_1', text: '1}' },
    expect.objectContaining({
      type: 'tool-call',
      callId: 'toolu_1',
      name: 'add',
      input: '{"a":1}',
      providerExecuted: false,
    }),
    expect.objectContaining({ type: 'finish', reason: 'tool-calls' }),
  ])
  expect(provider.requests).toHaveLength(1)
  const { url, headers, body } = provider.requests[0]!
  expect(url).toBe('/v1/messages')
  expect(headers['x-api-key']).toBe('sk-ant-hunter2')
  expect(body).toMatchObject({ model: 'claude-sonnet-4-5', stream: true, tool_choice: { type: 'auto' } })
})

it('what a model signed goes back to it as it was, thinking and redacted thinking', async () => {
  provider.script(
    anthropicReply([block.redacted('sealed'), block.thinking('hm', 'signed'), block.text('hello')]),
    anthropicReply([block.text('b')]),
  )
  const ends = (await run()).events.filter((event) => event.type === 'reasoning-end')
  const states = ends.map(({ state }) => state as Record<string, Record<string, string>>)
  expect(states).toEqual([{ anthropic: { redactedData: 'sealed' } }, { anthropic: { signature: 'signed' } }])
  await run([
    ...hello,
    {
      role: 'assistant',
      content: [
        { type: 'reasoning', text: '', providerOptions: states[0] },
        { type: 'reasoning', text: 'hm', providerOptions: states[1] },
        { type: 'text', text: 'hello' },
      ],
    },
    { role: 'user', content: [{ type: 'text', text: 'and?' }] },
  ])
  expect(provider.requests[1]!.body.messages[1]).toEqual({
    role: 'assistant',
    content: [
      { type: 'redacted_thinking', data: 'sealed' },
      { type: 'thinking', thinking: 'hm', signature: 'signed' },
      { type: 'text', text: 'hello' },
    ],
  })
})

it('usage is counted with cached and thinking tokens in their own fields, cached ones as part of the input', async () => {
  const usage = { input_tokens: 10, cache_read_input_tokens: 70, cache_creation_input_tokens: 20 }
  provider.script(anthropicReply([block.text('a')], { usage, output: 9 }))
  const { events } = await run()
  expect(events.at(-1)).toEqual({
    type: 'finish',
    reason: 'stop',
    usage: { inputTokens: 100, outputTokens: 9, reasoningTokens: 0, cachedInputTokens: 70 },
  })
})

describe('failures', () => {
  const cases: [string, Parameters<typeof anthropicError>, string, boolean][] = [
    ['an overloaded server', [529, 'overloaded_error'], 'PROVIDER_UNAVAILABLE', true],
    ['an internal error', [500, 'api_error'], 'PROVIDER_UNAVAILABLE', true],
    ['a rate limit', [429, 'rate_limit_error'], 'PROVIDER_RATE_LIMIT', true],
    ['a bad key', [401, 'authentication_error'], 'PROVIDER_AUTH', false],
    ['a key without permission', [403, 'permission_error'], 'PROVIDER_AUTH', false],
    ['an empty account', [402, 'billing_error'], 'PROVIDER_QUOTA', false],
    ['an unknown model', [404, 'not_found_error'], 'PROVIDER_INVALID', false],
    ['a bad request', [400, 'invalid_request_error'], 'PROVIDER_INVALID', false],
    [
      'too long a prompt',
      [400, 'invalid_request_error', 'prompt is too long: 210000 tokens > 200000 maximum'],
      'CONTEXT_OVERFLOW',
      false,
    ],
    [
      'prompt and answer beyond the context',
      [400, 'invalid_request_error', 'input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000'],
      'CONTEXT_OVERFLOW',
      false,
    ],
  ]
  it.each(cases)(
    '%s: one request, classified, without what the provider wrote',
    async (_what, error, code, retryable) => {
      provider.script(anthropicError(...error))
      const { failure } = await run()
      expect(failure).toMatchObject({ name: 'ProviderFailure', code, retryable })
      expect(failure!.message).not.toMatch(/hunter2|210000/)
      expect(provider.requests).toHaveLength(1)
    },
  )

  it('the wait that a rate limit asks for is kept', async () => {
    provider.script(anthropicError(429, 'rate_limit_error', 'slow down', { 'retry-after': '7' }))
    expect((await run()).failure).toMatchObject({ code: 'PROVIDER_RATE_LIMIT', retryAfterMs: 7000 })
  })

  it.each([
    ['as the first event of a stream', []],
    ['after text', [block.text('Hel')]],
  ])('overloaded %s: classified the same, one request, what came before is kept', async (_what, blocks) => {
    provider.script(anthropicBroken(blocks, 'overloaded_error'))
    const { events, failure } = await run()
    expect(failure).toMatchObject({ code: 'PROVIDER_UNAVAILABLE', retryable: true })
    expect(events.filter(({ type }) => type === 'text-delta')).toHaveLength(blocks.length)
    expect(provider.requests).toHaveLength(1)
  })

  it('a refusal finishes as content-filter, an answer cut at its limit as length', async () => {
    provider.script(
      anthropicReply([block.text('I')], { stop: 'refusal' }),
      anthropicReply([block.text('I')], { stop: 'max_tokens' }),
    )
    expect((await run()).events.at(-1)).toMatchObject({ type: 'finish', reason: 'content-filter' })
    expect((await run()).events.at(-1)).toMatchObject({ type: 'finish', reason: 'length' })
  })
})

it.each(['', '/', '/v1', '/v1/'])('the base URL may end with "%s"; its models are listed', async (path) => {
  provider.script({ status: 200, body: { data: [{ type: 'model', id: 'claude-test' }], has_more: false } })
  expect(await registry(path).list()).toContainEqual({ id: 'anthropic/claude-test', contextTokens: null })
  const { url, headers } = provider.requests[0]!
  expect(url).toBe('/v1/models?limit=1000')
  expect(headers).toMatchObject({ 'x-api-key': 'sk-ant-hunter2', 'anthropic-version': '2023-06-01' })
})
