// Whatever a model object does, its request ends as a failure of the provider that says what it can.
import type { LanguageModelV4 } from '@ai-sdk/provider'
import { describe, expect, it } from 'vitest'
import { attempt } from '../src/runner/models/attempt.ts'
import { ProviderFailure } from '../src/runner/models/failure.ts'
import type { ProviderEvent } from '../src/runner/models/provider-event.ts'
import { testClock } from './support/clock.ts'
import { oddThrows } from './support/odd-values.ts'
import { finished } from './support/scripted-model.ts'

async function run(doStream: unknown, { requestMs = 60_000, clock = testClock() } = {}) {
  const model = {
    specificationVersion: 'v4',
    provider: 'own',
    modelId: 'own',
    supportedUrls: {},
    doStream,
  } as LanguageModelV4
  const events: ProviderEvent[] = []
  const { signal } = new AbortController()
  const wanted = { prompt: [], tools: [], toolChoice: 'auto' as const, signal, idleMs: 5000, requestMs, clock }
  try {
    for await (const event of attempt({ ...wanted, model: { id: 'own/x', contextTokens: null, model } }))
      events.push(event)
  } catch (thrown) {
    return { events, failure: thrown as ProviderFailure, clock }
  }
  return { events, failure: null, clock }
}

const streamOf = (...parts: unknown[]) =>
  new ReadableStream({
    start(to) {
      for (const part of parts) to.enqueue(part)
      to.close()
    },
  })
const fake = (reader: object) => ({
  stream: { getReader: () => ({ cancel: () => Promise.reject(new Error('no')), ...reader }) },
})

describe('a model object', () => {
  it.each(Object.entries(oddThrows))(
    'PROMISE-015: that throws %s, at once, later or in its stream: the request fails as the provider does',
    async (_what, [make]) => {
      const throwing = [
        () => {
          throw make()
        },
        () => Promise.reject(make()),
        () => ({ stream: new ReadableStream({ pull: (to) => to.error(make()) }) }),
        () => ({ stream: streamOf({ type: 'error', error: make() }) }),
        () => fake({ read: () => Promise.reject(make()) }),
      ]
      for (const doStream of throwing) {
        const { failure, clock } = await run(doStream)
        expect(failure).toBeInstanceOf(ProviderFailure)
        expect(failure).toMatchObject({
          code: 'PROVIDER_UNAVAILABLE',
          message: expect.stringMatching(/^The provider is not available/),
        })
        expect(clock.timers()).toEqual([])
      }
    },
  )

  const text = [{ type: 'text-start', id: 't' }]
  it.each<[string, () => unknown, RegExp]>([
    ['nothing', () => undefined, /gave no stream of parts: `stream` is undefined/],
    ['a list for a stream', () => ({ stream: [] }), /gave no stream of parts: `stream` is a list/],
    [
      'a stream that somebody reads',
      () => ({ stream: Object.assign(streamOf(), { getReader: oddGetReader }) }),
      /cannot be read/,
    ],
    ['reads that are no promises', () => fake({ read: () => 7 }), /broken: it gave a number for a part/],
    ['parts that are none', () => ({ stream: streamOf(null) }), /broken: it sent null in place of a part/],
    [
      'parts without a type',
      () => ({ stream: streamOf({ type: 5 }) }),
      /broken: it sent an object in place of a part with a type/,
    ],
    [
      'text that is none',
      () => ({ stream: streamOf(...text, { type: 'text-delta', id: 't', delta: { a: 1 } }) }),
      /broken: it sent an object where a text has to be/,
    ],
    [
      'a call without arguments',
      () => ({ stream: streamOf({ type: 'tool-call', toolCallId: 'c', toolName: 'x' }) }),
      /broken: it sent a tool-call part that is not as/,
    ],
    [
      'a result that is a Map',
      () => ({
        stream: streamOf(
          { type: 'tool-call', toolCallId: 'c', toolName: 'x', input: '{}', providerExecuted: true },
          { type: 'tool-result', toolCallId: 'c', result: new Map() },
        ),
      }),
      /broken: it sent a value that is not JSON/,
    ],
  ])('PROMISE-016: that gives %s: what is wrong is said, and nothing is left', async (_what, gives, said) => {
    const { failure, clock } = await run(gives)
    expect(failure).toBeInstanceOf(ProviderFailure)
    expect(failure?.message).toMatch(said)
    expect(clock.timers()).toEqual([])
  })

  it.each([
    { ...finished(), finishReason: { unified: 'bored' } },
    { type: 'finish', finishReason: 'stop' },
    { type: 'finish' },
  ])('PROMISE-016: that finishes for a reason nobody knows finishes for another one: %j', async (part) => {
    expect(await run(() => ({ stream: streamOf(part) }))).toMatchObject({
      failure: null,
      events: [{ type: 'finish', reason: 'other' }],
    })
  })

  it('PROMISE-017: that never stops sending what says nothing ends at the limit of one request, and other work goes on meanwhile', async () => {
    const clock = testClock()
    let reads = 0
    let turns = 0
    const endless = fake({ read: async () => ({ done: false, value: { type: 'raw', rawValue: ++reads } }) })
    const tick = () => {
      turns++
      void clock.advance(1000)
    }
    const beside = setInterval(tick, 1)
    const { failure } = await run(() => endless, { clock, requestMs: 3000 })
    clearInterval(beside)
    expect(failure).toMatchObject({
      code: 'PROVIDER_INVALID',
      message: expect.stringContaining('did not end within 3000 ms'),
    })
    expect(turns).toBeGreaterThan(2)
    expect(reads).toBeGreaterThan(10)
  })
})

function oddGetReader() {
  throw Object.create(null)
}
