import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { attempt } from '../src/runner/models/attempt.ts'
import { createModelRegistry, type ModelSettings } from '../src/runner/models/registry.ts'
import { testClock } from './support/clock.ts'
import { finish, type Provider, reply, startProvider, text } from './support/provider.ts'

let provider: Provider
beforeEach(async () => {
  provider = await startProvider()
})
afterEach(() => provider.close())

const settings = (over: Partial<ModelSettings> = {}): ModelSettings => ({
  compatible: { baseUrl: provider.baseUrl },
  defaultModel: 'demo/echo',
  ...over,
})
const prompt = [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'hi' }] }]

describe('which models there are', () => {
  it('a provider with settings takes any name, one without takes none', () => {
    const registry = createModelRegistry(settings())
    expect(registry.knows('compatible/any/name:tag')).toBe(true)
    expect(registry.knows('demo/echo')).toBe(true)
    for (const id of ['openai/gpt-5', 'compatible/', 'compatible', 'demo/other', 'x', '', '__proto__', 'constructor']) {
      expect(registry.knows(id), id).toBe(false)
      expect(registry.resolve(id), id).toBeUndefined()
    }
    expect(createModelRegistry({ openai: { apiKey: 'k' }, defaultModel: 'openai/x' }).knows('openai/gpt-5')).toBe(true)
  })

  it('the list has demo, default, configured and what the endpoint lists, with the sizes that are known', async () => {
    provider.models = ['small', 'large']
    const own = createModelRegistry(settings()).resolve('demo/echo')!.model
    const registry = createModelRegistry(
      settings({
        defaultModel: 'compatible/default',
        models: {
          'compatible/large': { contextTokens: 32_000 },
          'own/model': { model: own, contextTokens: 5 },
          'openai/x': {},
        },
      }),
    )
    expect(await registry.list()).toEqual([
      { id: 'demo/echo', contextTokens: 8000 },
      { id: 'compatible/default', contextTokens: null },
      { id: 'compatible/large', contextTokens: 32_000 },
      { id: 'own/model', contextTokens: 5 },
      { id: 'compatible/small', contextTokens: null },
    ])
    expect(registry.resolve('own/model')).toEqual({ id: 'own/model', contextTokens: 5, model: own })
  })

  it('an endpoint is asked once a minute, by callers at once too; one that fails soon again and without an error', async () => {
    const clock = testClock()
    const registry = createModelRegistry(settings(), clock)
    await Promise.all([registry.list(), registry.list()])
    await clock.advance(59_999)
    await registry.list()
    expect(provider.listings).toBe(1)
    provider.models = null
    await clock.advance(1)
    expect(await registry.list()).toEqual([{ id: 'demo/echo', contextTokens: 8000 }])
    expect(provider.listings).toBe(2)
    provider.models = ['back']
    await clock.advance(5000)
    expect((await registry.list()).map(({ id }) => id)).toEqual(['demo/echo', 'compatible/back'])
  })

  it('an endpoint that answers nonsense lists nothing', async () => {
    for (const body of [
      '',
      'null',
      '{"data":{}}',
      '{"data":[null,1,{"id":5},{"id":"with space"},{"id":""}]}',
      '<html>',
    ]) {
      const server = createServer((_request, response) => response.end(body)).listen(0, '127.0.0.1')
      await new Promise((resolve) => server.once('listening', resolve))
      const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`
      const registry = createModelRegistry(settings({ compatible: { baseUrl } }))
      expect(await registry.list()).toEqual([{ id: 'demo/echo', contextTokens: 8000 }])
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    }
  })
})

describe('where requests go', () => {
  it.each(['', '/'])('compatible models go to the base URL given, with "%s" at its end', async (slash) => {
    provider.script(reply(text('hello'), finish()))
    const registry = createModelRegistry(settings({ compatible: { baseUrl: provider.baseUrl + slash, apiKey: 'k' } }))
    const model = registry.resolve('compatible/org/name')!
    const { signal } = new AbortController()
    for await (const _ of attempt({ model, prompt, tools: [], toolChoice: 'auto', signal, idleMs: 5000 }));
    expect(provider.requests[0]?.body.model).toBe('org/name')
    expect(provider.requests[0]?.headers.authorization).toBe('Bearer k')
    expect(await registry.list()).toContainEqual({ id: 'compatible/scripted', contextTokens: null })
  })

  it('user and password of a base URL become a Basic header', async () => {
    provider.script(reply(text('hello'), finish()))
    const baseUrl = provider.baseUrl.replace('//', '//me:p%40ss@')
    const model = createModelRegistry(settings({ compatible: { baseUrl } })).resolve('compatible/x')!
    const { signal } = new AbortController()
    for await (const _ of attempt({ model, prompt, tools: [], toolChoice: 'auto', signal, idleMs: 5000 }));
    const expected = `Basic ${Buffer.from('me:p@ss').toString('base64')}`
    expect(provider.requests[0]?.headers.authorization).toBe(expected)
  })

  it('openai models speak the responses API, with nothing stored at the provider and reasoning sent back encrypted', async () => {
    const bodies: Record<string, unknown>[] = []
    const item = { id: 'rs_1', type: 'reasoning', summary: [], encrypted_content: 'sealed' }
    const call = {
      id: 'fc_1',
      type: 'function_call',
      call_id: 'c1',
      name: 'add',
      arguments: '{"a":1}',
      status: 'completed',
    }
    const events = [
      { type: 'response.created', response: { id: 'r', created_at: 1, model: 'gpt-5' } },
      { type: 'response.output_item.added', output_index: 0, item },
      { type: 'response.output_item.done', output_index: 0, item },
      { type: 'response.output_item.added', output_index: 1, item: { ...call, arguments: '' } },
      { type: 'response.function_call_arguments.delta', output_index: 1, item_id: 'fc_1', delta: '{"a":1}' },
      { type: 'response.output_item.done', output_index: 1, item: call },
      { type: 'response.completed', response: { usage: { input_tokens: 3, output_tokens: 2 } } },
    ]
    const server = createServer((request, response) => {
      let body = ''
      request.on('data', (chunk) => {
        body += chunk
      })
      request.on('end', () => {
        bodies.push({ url: request.url, auth: request.headers.authorization, ...JSON.parse(body) })
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        for (const event of events) response.write(`data: ${JSON.stringify(event)}\n\n`)
        response.end()
      })
    }).listen(0, '127.0.0.1')
    await new Promise((resolve) => server.once('listening', resolve))
    const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`
    const registry = createModelRegistry({ openai: { apiKey: 'k', baseUrl }, defaultModel: 'demo/echo' })
    const model = registry.resolve('openai/gpt-5')!
    const seen = []
    const { signal } = new AbortController()
    const tools = [{ name: 'add', description: '', inputSchema: { type: 'object' as const } }]
    for await (const event of attempt({ model, prompt, tools, toolChoice: 'auto', signal, idleMs: 5000 }))
      seen.push(event)
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))

    expect(bodies).toHaveLength(1)
    expect(bodies[0]).toMatchObject({ url: '/v1/responses', auth: 'Bearer k', model: 'gpt-5', store: false })
    expect(bodies[0]?.include).toContain('reasoning.encrypted_content')
    expect(seen.find(({ type }) => type === 'reasoning-end')).toMatchObject({
      state: { openai: { itemId: 'rs_1', reasoningEncryptedContent: 'sealed' } },
    })
    expect(seen.find(({ type }) => type === 'tool-call')).toMatchObject({ callId: 'c1', name: 'add', input: '{"a":1}' })
    expect(seen.at(-1)).toMatchObject({
      type: 'finish',
      reason: 'tool-calls',
      usage: { inputTokens: 3, outputTokens: 2 },
    })
  })
})
