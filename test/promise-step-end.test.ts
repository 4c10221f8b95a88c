// A step has its end whatever of it the database refuses, and whatever its provider sends: the claim is given back, nothing is asked
// again, and the error says what is so (point 5 of the promise).
import type { LanguageModelV4StreamPart } from '@ai-sdk/provider'
import { describe, expect, it } from 'vitest'
import type { EventType } from '../src/events.ts'
import { compactSession } from '../src/runner/compact.ts'
import { approve, asked, guarded, waiting } from './support/asking.ts'
import { fault } from './support/faults.ts'
import { end, finish, finishing, reasoning, reply, streamError, text, toolCall, toolCalls } from './support/provider.ts'
import { scriptedModel } from './support/scripted-model.ts'
import { instant, newId, prompt, refuseEvents, tenant, useStage } from './support/stage.ts'

const stage = useStage()

const notStored = { code: 'OUTCOME_UNKNOWN', message: 'what the step did could not be stored' }

/** The step has failed, and with it its execution; nobody was asked again. */
async function expectEnded(s: string, requests = 1) {
  expect(await stage.payloads(s, 'step.failed')).toMatchObject([{ error: notStored, continues: false }])
  expect((await stage.payloads(s, 'execution.settled')).at(-1)).toMatchObject({ outcome: 'FAILED' })
  expect(await stage.claim(s)).toBeNull()
  expect(stage.provider.requests).toHaveLength(requests)
  expect(await stage.types(s)).not.toContain('step.recovered')
}

it('PROMISE-050: a step of which something is refused for good ends as failed, and no second request is paid', async () => {
  const types: EventType[] = ['text.started', 'tool.input_started', 'tool.started', 'step.streamed']
  const { core } = await stage.start({ tools: [instant('look').tool] })
  for (const type of types) {
    const s = await stage.session()
    const refused = await refuseEvents(stage, s, type)
    const call = toolCall('look', {}, 'call_look')
    stage.provider.script(reply(reasoning('hm'), text('fine', ' so far'), call, finish('tool_calls')))
    const requests = stage.provider.requests.length
    await prompt(core, s)
    await core.coordinator.idle()
    expect(await refused.fired(), type).toBeGreaterThan(0)
    await expectEnded(s, requests + 1)
    await refused.lift()
  }
})

describe('the end of a step is possible', () => {
  it('PROMISE-050: when the end of a part is refused: what was received of it is kept', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const when = `NEW."sessionId" = '${s}' AND NEW.type = 'text.ended'`
    const refused = await fault(stage.database.url, { when, sqlState: 'HF001', times: 2 })
    stage.provider.script(reply(text('all of ', 'it'), finish()))
    await prompt(core, s)
    await core.coordinator.idle()
    expect(await refused.fired()).toBeGreaterThan(0)
    await expectEnded(s)
    expect(await stage.payloads(s, 'text.ended')).toMatchObject([{ text: 'all of it' }])
    await refused.lift()
  })

  it('PROMISE-054: when a text is refused wherever it stands: the step ends without it', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const refused = await fault(stage.database.url, {
      when: `NEW."sessionId" = '${s}' AND NEW.payload->>'text' LIKE '%it%'`,
      sqlState: '22P05',
    })
    await prompt(core, s, 'go', { resume: false })
    stage.provider.script(reply(text('all of ', 'it'), finish()))
    await prompt(core, s, 'now')
    await core.coordinator.idle()
    expect(await refused.fired()).toBeGreaterThan(1)
    await expectEnded(s)
    expect(await stage.payloads(s, 'text.ended')).toHaveLength(1)
    await refused.lift()
  })

  it('PROMISE-053: when its own end is refused', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const refused = await refuseEvents(stage, s, 'step.ended')
    stage.provider.script(reply(text('fine'), finish('stop', { input: 3, output: 4 })))
    await prompt(core, s)
    await core.coordinator.idle()
    expect(await refused.fired()).toBeGreaterThan(0)
    await expectEnded(s)
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([{ usage: { inputTokens: 3, outputTokens: 4 } }])
    expect(await stage.payloads(s, 'text.ended')).toMatchObject([{ text: 'fine' }])
    await refused.lift()
  })

  it('PROMISE-068: when its provider fails, the outcome of a tool is refused and a person is still asked', async () => {
    const deploy = guarded()
    const { core } = await stage.start({ tools: [deploy.tool, instant('look').tool] })
    const s = await stage.session()
    const refused = await refuseEvents(stage, s, 'tool.succeeded')
    const calls = toolCalls({ name: 'deploy', args: {}, id: 'call_d' }, { name: 'look', args: {}, id: 'call_l' })
    stage.provider.script(reply(calls, finishing('tool_calls'), streamError('insufficient_quota')))
    await prompt(core, s)
    await stage.logged(s, 'step.failed')
    await core.coordinator.idle()
    expect(await refused.fired()).toBeGreaterThan(0)
    await expectEnded(s)
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([
      { callId: 'call_d', error: { code: 'NOT_STARTED' } },
      { callId: 'call_l', error: { code: 'OUTCOME_UNKNOWN' } },
    ])
    expect(await stage.payloads(s, 'interaction.settled')).toHaveLength(1)
    expect(deploy.ran).toHaveLength(0)
    await refused.lift()
  })

  it('PROMISE-055: when what a person decided of it is refused', async () => {
    const deploy = guarded()
    const a = await stage.start({ tools: [deploy.tool] })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('deploy', {}, 'call_d'), finish('tool_calls', { input: 3, output: 4 })))
    await prompt(a.core, s)
    await waiting(stage, a, s)
    const refused = await refuseEvents(stage, s, 'tool.started')
    await approve(a.core, await asked(stage, s))
    await stage.logged(s, 'step.failed')
    await a.core.coordinator.idle()
    expect(await refused.fired()).toBeGreaterThan(0)
    await expectEnded(s)
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([{ usage: { inputTokens: 3, outputTokens: 4 } }])
    expect(deploy.ran).toHaveLength(0)
    await refused.lift()
  })
})

it('PROMISE-051: a compaction whose summary is refused fails as one, and its claim is given back', async () => {
  const { core } = await stage.start()
  const s = await stage.session()
  stage.provider.script(reply(text('one'), finish()))
  await prompt(core, s)
  await core.coordinator.idle()
  const refused = await refuseEvents(stage, s, 'compaction.ended')
  stage.provider.script(reply(text('a summary'), finish('stop', { input: 7, output: 1 })))
  await compactSession(core, tenant, { sessionId: s, messageId: newId('msg_') })
  const { error, usage } = await stage.logged(s, 'compaction.failed')
  await core.coordinator.idle()
  expect(await refused.fired()).toBeGreaterThan(0)
  expect(error).toEqual({ code: 'OUTCOME_UNKNOWN', message: 'the summary could not be stored' })
  expect(usage).toMatchObject({ inputTokens: 7 })
  expect(await stage.claim(s)).toBeNull()
  expect(stage.provider.requests).toHaveLength(2)
  await refused.lift()
})

describe('whatever a provider sends, its step ends', () => {
  it('PROMISE-056: a usage that no column holds is kept as far as a number is exact', async () => {
    const { core } = await stage.start()
    const s = await stage.session()
    const most = Number.MAX_SAFE_INTEGER
    for (const told of [1e20, 1e300, 2 ** 53, 1.6]) {
      stage.provider.script(reply(text('fine'), finishing(), end({ input: told, output: 4 })))
      await prompt(core, s)
      await core.coordinator.idle()
    }
    const ended = await stage.payloads(s, 'step.ended')
    expect(ended.map(({ usage }) => usage.inputTokens)).toEqual([most, most, most, 2])
    expect(await stage.claim(s)).toBeNull()
    // Their sum has come to its end as well, and stays there.
    const { inputTokens, outputTokens } = await stage.db.session.findUniqueOrThrow({ where: { id: s } })
    expect([inputTokens, outputTokens]).toEqual([BigInt(most), 16n])
  })

  it('PROMISE-057: call ids longer than an index entry, or that differ in what cannot be stored only: each call runs under an id of its own', async () => {
    const look = instant('look')
    let calls = 0
    const parts = (id: string, name = 'look'): LanguageModelV4StreamPart[] => [
      { type: 'tool-input-start', id, toolName: name },
      { type: 'tool-call', toolCallId: id, toolName: name, input: `{"n":${++calls}}` },
    ]
    // What does not compress, so that the index cannot hold it.
    const long = Array.from({ length: 4000 }, (_, n) => ((n * 2654435761) % 36).toString(36)).join('')
    const own = scriptedModel(
      [
        ...parts(`${long}a`),
        ...parts(`${long}b`),
        ...parts('id\0'),
        ...parts('id\ufffd'),
        ...parts('call_x', 'n'.repeat(100_000)),
        {
          type: 'finish',
          finishReason: { unified: 'tool-calls', raw: undefined },
          usage: { inputTokens: {}, outputTokens: {} } as never,
        },
      ],
      [
        { type: 'text-start', id: '0' },
        { type: 'text-delta', id: '0', delta: 'ok' },
        { type: 'text-end', id: '0' },
        // No usage, and a reason of its own.
        { type: 'finish', finishReason: { unified: 'why\0not' as never, raw: 'why' }, usage: undefined as never },
      ],
    )
    const { core } = await stage.start({ tools: [look.tool], models: { models: { 'own/x': { model: own.model } } } })
    const s = await stage.session({ model: 'own/x' })
    await prompt(core, s)
    await core.coordinator.idle()
    const called = await stage.payloads(s, 'tool.called')
    expect(new Set(called.map(({ callId }) => callId)).size).toBe(5)
    expect(Math.max(...called.map(({ callId }) => callId.length))).toBeLessThanOrEqual(256)
    expect(Math.max(...called.map(({ name }) => name.length))).toBeLessThanOrEqual(256)
    expect(called.map(({ callId }) => callId)).toContain('id\ufffd')
    expect(look.ran).toHaveLength(4)
    expect(await stage.payloads(s, 'step.ended')).toMatchObject([{ continues: true }, { finish: 'other' }])
    expect(await stage.claim(s)).toBeNull()
  })

  it('PROMISE-058: an answer of more parts than one append could end is refused as an answer, and the step fails', async () => {
    const ids = Array.from({ length: 5000 }, (_, n) => `t${n}`)
    const own = scriptedModel([
      ...ids.map((id): LanguageModelV4StreamPart => ({ type: 'reasoning-start', id })),
      ...ids.map((id): LanguageModelV4StreamPart => ({ type: 'reasoning-end', id })),
    ])
    const { core } = await stage.start({ models: { models: { 'own/x': { model: own.model } } } })
    const s = await stage.session({ model: 'own/x' })
    await prompt(core, s)
    await core.coordinator.idle()
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([
      { error: { code: 'PROVIDER_INVALID', message: 'The answer has more than 4096 parts and tool calls.' } },
    ])
    expect(own.calls).toHaveLength(1)
    expect(await stage.claim(s)).toBeNull()
  })
})
