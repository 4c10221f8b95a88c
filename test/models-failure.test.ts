import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { attempt } from '../src/runner/models/attempt.ts'
import { classifyFailure, ProviderFailure } from '../src/runner/models/failure.ts'
import { createModelRegistry } from '../src/runner/models/registry.ts'
import { retryAfter } from '../src/runner/models/retry-after.ts'
import { errorBody, type Provider, startProvider, status } from './support/provider.ts'

const KEY = 'sk-very-secret-0123456789'
let provider: Provider
beforeAll(async () => {
  provider = await startProvider()
})
afterAll(() => provider.close())

/** The failure of an attempt that gets this HTTP answer. */
async function failureOf(
  code: number,
  body: unknown = {},
  headers: Record<string, string> = {},
): Promise<ProviderFailure> {
  provider.script(status(code, body, headers))
  const settings = { compatible: { baseUrl: provider.baseUrl, apiKey: KEY }, defaultModel: 'demo/echo' }
  const model = createModelRegistry(settings).resolve('compatible/x')!
  const prompt = [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'a private prompt' }] }]
  const { signal } = new AbortController()
  try {
    for await (const _ of attempt({ model, prompt, tools: [], toolChoice: 'auto', signal, idleMs: 10_000 }));
  } catch (error) {
    if (error instanceof ProviderFailure) return error
    throw error
  }
  throw new Error('the attempt did not fail')
}

describe('an HTTP answer by its status', () => {
  it.each([
    [400, 'PROVIDER_INVALID', false],
    [401, 'PROVIDER_AUTH', false],
    [402, 'PROVIDER_QUOTA', false],
    [403, 'PROVIDER_AUTH', false],
    [404, 'PROVIDER_INVALID', false],
    [408, 'PROVIDER_UNAVAILABLE', true],
    [409, 'PROVIDER_UNAVAILABLE', true],
    [413, 'PROVIDER_INVALID', false],
    [422, 'PROVIDER_INVALID', false],
    [429, 'PROVIDER_RATE_LIMIT', true],
    [500, 'PROVIDER_UNAVAILABLE', true],
    [502, 'PROVIDER_UNAVAILABLE', true],
    [503, 'PROVIDER_UNAVAILABLE', true],
    [529, 'PROVIDER_UNAVAILABLE', true],
  ])('%i is %s, retryable: %s, whatever the body', async (code, expected, retryable) => {
    for (const body of [{}, '', '<html>', errorBody(null), errorBody(code), { error: 'text' }, [1]]) {
      expect(await failureOf(code, body)).toMatchObject({ code: expected, retryable })
    }
  })
})

describe('an HTTP answer by its error code', () => {
  it.each<[string, number, unknown, string]>([
    ['OpenAI: quota', 429, errorBody('insufficient_quota'), 'PROVIDER_QUOTA'],
    ['OpenAI: quota as type', 429, errorBody(null, 'no', { type: 'insufficient_quota' }), 'PROVIDER_QUOTA'],
    ['DeepSeek: balance', 402, errorBody(null, 'Insufficient Balance'), 'PROVIDER_QUOTA'],
    ['Azure: content', 400, errorBody('content_filter'), 'PROVIDER_CONTENT'],
    ['OpenAI: content', 400, errorBody('content_policy_violation'), 'PROVIDER_CONTENT'],
    [
      'OpenRouter: moderation',
      403,
      errorBody(403, 'flagged', { metadata: { reasons: ['violence'], flagged_input: 'x' } }),
      'PROVIDER_CONTENT',
    ],
    ['a key refused with 400', 400, errorBody('invalid_api_key'), 'PROVIDER_AUTH'],
    ['OpenAI: overflow', 400, errorBody('context_length_exceeded'), 'CONTEXT_OVERFLOW'],
    ['Groq: overflow', 413, errorBody('context_length_exceeded'), 'CONTEXT_OVERFLOW'],
    [
      'llama.cpp: overflow',
      400,
      errorBody(400, 'request (9 tokens) is too large', { type: 'exceed_context_size_error', n_ctx: 8 }),
      'CONTEXT_OVERFLOW',
    ],
    [
      'vLLM: overflow by parameter',
      400,
      errorBody(400, 'reduce it', { type: 'BadRequestError', param: 'input_tokens' }),
      'CONTEXT_OVERFLOW',
    ],
    [
      'vLLM: overflow without envelope',
      400,
      { object: 'error', message: 'maximum context length is 8', type: 'BadRequestError', param: null, code: 400 },
      'CONTEXT_OVERFLOW',
    ],
    ['Ollama: overflow in prose', 400, { error: 'prompt too long; exceeded context length' }, 'CONTEXT_OVERFLOW'],
    [
      'a gateway: overflow in prose',
      400,
      errorBody('400', 'ContextWindow: maximum context length'),
      'CONTEXT_OVERFLOW',
    ],
    ['prose does not decide beside a code', 400, errorBody('invalid_value', 'context length'), 'PROVIDER_INVALID'],
    ['prose does not decide for other statuses', 500, errorBody(null, 'context length'), 'PROVIDER_UNAVAILABLE'],
    [
      'a list as Google sends it',
      400,
      [{ error: { code: 400, message: 'The input token count is too high', status: 'INVALID_ARGUMENT' } }],
      'CONTEXT_OVERFLOW',
    ],
  ])('%s', async (_what, code, body, expected) => {
    expect((await failureOf(code, body)).code).toBe(expected)
  })
})

describe('errors without an HTTP answer', () => {
  it.each<[string, unknown, string, boolean]>([
    ['connection reset', Object.assign(new Error('x'), { code: 'ECONNRESET' }), 'PROVIDER_UNAVAILABLE', true],
    ['anything unknown', new TypeError('x is not a function'), 'PROVIDER_UNAVAILABLE', true],
    ['nothing', undefined, 'PROVIDER_UNAVAILABLE', true],
    ['streamed: overloaded', { type: 'overloaded_error', message: 'x' }, 'PROVIDER_UNAVAILABLE', true],
    ['streamed: server', { code: 'server_error', message: 'x' }, 'PROVIDER_UNAVAILABLE', true],
    ['streamed: rate', { code: 'rate_limit_exceeded', message: 'x' }, 'PROVIDER_RATE_LIMIT', true],
    ['streamed: status as code', { code: 429, message: 'x' }, 'PROVIDER_RATE_LIMIT', true],
    ['streamed: key', { type: 'authentication_error', message: 'x' }, 'PROVIDER_AUTH', false],
    ['streamed: invalid', { type: 'invalid_request_error', message: 'x' }, 'PROVIDER_INVALID', false],
    [
      'streamed by OpenAI',
      { type: 'response.failed', response: { error: { code: 'insufficient_quota', message: 'x' } } },
      'PROVIDER_QUOTA',
      false,
    ],
  ])('%s', (_what, error, code, retryable) => {
    expect(classifyFailure(error)).toMatchObject({ code, retryable })
  })

  it('the envelope around a streamed error is not taken for its code', () => {
    const error = { type: 'response.failed', response: { error: { code: 'server_error', message: 'x' } } }
    expect(classifyFailure(error).message).toContain('server_error')
  })

  it('a failure that is classified already stays as it is', () => {
    const failure = new ProviderFailure('PROVIDER_QUOTA', 'x')
    expect(classifyFailure(failure)).toBe(failure)
  })
})

describe('what a failure shows', () => {
  it('no key, prompt or provider prose: not in the message, not in any property', async () => {
    const prose = `Incorrect API key provided: ${KEY}, prompt was "a private prompt"`
    for (const body of [errorBody('invalid_api_key', prose), errorBody(prose, prose, { type: prose }), prose]) {
      const failure = await failureOf(401, body)
      const everything = `${failure.message} ${failure.stack} ${JSON.stringify(failure)} ${String(failure.cause)}`
      expect(everything).not.toContain('secret')
      expect(everything).not.toContain('private')
    }
  })

  it('the status and the error code, so that one can act on it', async () => {
    const failure = await failureOf(404, errorBody('model_not_found'))
    expect(failure.message).toContain('404')
    expect(failure.message).toContain('model_not_found')
  })
})

describe('the wait that a provider asks for', () => {
  const now = Date.UTC(2030, 0, 1)
  it.each<[string, Record<string, string>, number | undefined]>([
    ['seconds', { 'retry-after': '5' }, 5000],
    ['a fraction', { 'retry-after': ' 0.5 ' }, 500],
    ['zero', { 'retry-after': '0' }, 0],
    ['milliseconds, which win', { 'retry-after-ms': '1500', 'retry-after': '9' }, 1500],
    ['garbage milliseconds fall back', { 'retry-after-ms': 'soon', 'retry-after': '9' }, 9000],
    ['an HTTP date', { 'retry-after': 'Tue, 01 Jan 2030 00:01:00 GMT' }, 60_000],
    ['a date that is past', { 'retry-after': 'Mon, 31 Dec 2029 00:00:00 GMT' }, 0],
    ['garbage', { 'retry-after': 'later' }, undefined],
    ['negative', { 'retry-after': '-5' }, undefined],
    ['a bad date', { 'retry-after': 'Tue, soon' }, undefined],
    ['exponents', { 'retry-after': '1e9' }, undefined],
    ['nothing', {}, undefined],
  ])('%s', (_what, headers, expected) => {
    expect(retryAfter(headers, now)).toBe(expected)
  })

  it('comes with the failure of an attempt', async () => {
    expect((await failureOf(429, errorBody(null), { 'retry-after': '7' })).retryAfterMs).toBe(7000)
    expect((await failureOf(503, errorBody(null))).retryAfterMs).toBeUndefined()
  })
})
