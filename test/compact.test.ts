// Compaction that goes as it should, and that fails without harm (design sections 1, 5 and 6).
import { afterEach, describe, expect, it } from 'vitest'
import { compactSession } from '../src/runner/compact.ts'
import type { Core } from '../src/runner/core.ts'
import { everything, overHttp, resetTime, said } from './support/asking.ts'
import type { TestCore } from './support/core.ts'
import {
  end,
  errorBody,
  finish,
  finishing,
  gate,
  hang,
  type RecordedRequest,
  reply,
  status,
  streamError,
  text,
  toolCall,
  toolCalls,
  wait,
} from './support/provider.ts'
import { instant, newId, probe, prompt, spoken, tenant, useStage } from './support/stage.ts'

const stage = useStage()
afterEach(() => resetTime(stage))

const contextTokens = 4000
const small = { models: { models: { 'compatible/scripted': { contextTokens } } } }
const overflow = () => status(400, errorBody('context_length_exceeded'))
/** An answer after which the next request is estimated to be too long. */
const filling = (word: string) => reply(text(word), finish('stop', { input: 3500, output: 10 }))
/** A text of about this many tokens. */
const long = (word: string, tokens: number) => word.padEnd(4 * tokens, '.')

const compaction = (core: Core, sessionId: string, messageId = newId('msg_')) =>
  compactSession(core, tenant, { sessionId, messageId })
const isSummary = ({ body }: RecordedRequest) => String(body.messages[0]?.content).includes('Write the summary')
/** What each request was: a summary, or what the user had said last. */
const kinds = () =>
  stage.provider.requests.map((request) =>
    isSummary(request)
      ? 'summary'
      : spoken(request)
          .findLast((line) => line.startsWith('user: '))!
          .slice(6, 26),
  )
const talk = async ({ core }: TestCore, s: string, words: string, answer = said(`re ${words}`)) => {
  stage.provider.script(answer)
  const id = await prompt(core, s, words)
  await core.coordinator.idle()
  return id
}
const messages = (sessionId: string) => stage.db.message.findMany({ where: { sessionId }, orderBy: { seq: 'asc' } })
const compactions = async (sessionId: string) =>
  (await messages(sessionId))
    .filter(({ kind }) => kind === 'COMPACTION')
    .map(({ id, status, automatic, summary, errorCode }) => ({ id, status, automatic, summary, errorCode }))

describe('asked for', () => {
  it('COMP-01, PROMO-18: it counts as a steer in the order and as a barrier, and queued inputs do not hold it back', async () => {
    const a = await stage.start()
    const s = await stage.session()
    await talk(a, s, 'zero')
    const open = gate()
    stage.provider.script(reply(wait(open.promise), text('A'), finish()))
    await prompt(a.core, s, 'first')
    await stage.provider.request(1)
    await prompt(a.core, s, 'one')
    await prompt(a.core, s, 'two', { delivery: 'QUEUE' })
    const messageId = newId('msg_')
    expect(await compaction(a.core, s, messageId)).toEqual({ type: 'CompactSessionPayload', messageId })
    expect(await stage.db.input.findUnique({ where: { id: messageId } })).toMatchObject({
      kind: 'COMPACTION',
      delivery: 'STEER',
      state: 'PENDING',
      wakePending: true,
    })
    await prompt(a.core, s, 'three')
    stage.provider.script(said('B'), said('the summary'), said('C'), said('D'))
    open.open()
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(kinds()).toEqual(['zero', 'first', 'one', 'summary', 'three', 'two'])
    const order = (await stage.types(s)).filter((type) => /^(prompt\.promoted|step\.|compaction\.)/.test(type))
    expect(order.slice(-11)).toEqual([
      'prompt.promoted',
      'compaction.started',
      'compaction.ended',
      'prompt.promoted',
      'step.started',
      'step.streamed',
      'step.ended',
      'prompt.promoted',
      'step.started',
      'step.streamed',
      'step.ended',
    ])
    for (const request of stage.provider.requests.slice(0, 4))
      expect(JSON.stringify(request.body.messages)).not.toContain('three')
  })

  it('PROMO-18: a step with tools is not ended first: the compaction runs before the step that is owed', async () => {
    const look = instant('look')
    const a = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    await talk(a, s, 'zero')
    const open = gate()
    stage.provider.script(
      reply(wait(open.promise), toolCall('look', {}), finish('tool_calls')),
      said('the summary'),
      said('at last'),
    )
    await prompt(a.core, s, 'look')
    await stage.provider.request(1)
    await compaction(a.core, s)
    open.open()
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(kinds()).toEqual(['zero', 'look', 'summary', 'look'])
    expect(spoken(stage.provider.requests[3]!).slice(-2)).toEqual(['call look {}', 'result done'])
  })

  it('COMP-02, COMP-03: once per id; an id that is something else, or unknown sessions, write nothing', async () => {
    const a = await stage.start()
    const s = await stage.session()
    const other = await stage.session()
    const promptId = await talk(a, s, 'hi')
    const messageId = newId('msg_')
    stage.provider.script(said('the summary'))
    const first = await compaction(a.core, s, messageId)
    const [again, atOnce] = await Promise.all([compaction(a.core, s, messageId), compaction(a.core, s, messageId)])
    await a.core.coordinator.idle()
    const before = await everything(stage, s)
    expect([again, atOnce, await compaction(a.core, s, messageId)]).toEqual([first, first, first])
    for (const id of [promptId, messageId]) {
      const sessionId = id === promptId ? s : other
      expect(await compaction(a.core, sessionId, id)).toMatchObject({ type: 'PromptConflictError', messageId: id })
    }
    const nowhere = newId('ses_')
    expect(await compaction(a.core, nowhere)).toMatchObject({ type: 'SessionNotFoundError', sessionId: nowhere })
    expect(await compaction(a.core, s, 'msg_.server')).toMatchObject({ type: 'InvalidInputError', field: 'messageId' })
    await a.core.coordinator.idle()
    expect(await everything(stage, s)).toEqual(before)
    expect(await stage.db.event.count({ where: { sessionId: other } })).toBe(1)
    expect(await compactions(s)).toHaveLength(1)
    stage.provider.expectDone()
  })

  it('COMP-04, COMP-05, COMP-06: the summary stands for what is before the tail; a second one replaces the first', async () => {
    const a = await stage.start(small)
    const s = await stage.session({ instructions: 'be brief' })
    await talk(a, s, 'alpha')
    await talk(a, s, 'beta')
    const first = newId('msg_')
    stage.provider.script(said('SUMMARY-1'))
    await compaction(a.core, s, first)
    await a.core.coordinator.idle()
    expect(await stage.payloads(s, 'compaction.started')).toEqual([{ messageId: first, automatic: false }])
    expect(await stage.payloads(s, 'compaction.ended')).toMatchObject([{ messageId: first, summary: 'SUMMARY-1' }])
    expect(await compactions(s)).toMatchObject([{ id: first, status: 'COMPLETED', summary: 'SUMMARY-1' }])
    const asked = stage.provider.requests[2]!
    expect(isSummary(asked)).toBe(true)
    expect(asked.body.tools).toBeUndefined()
    expect(spoken(asked)[1]).toContain('> User: alpha')
    // The transcript is as long as before.
    const query = `query ($id: ID!) { session(id: $id) { messages(first: 50) { edges { node {
      __typename id ... on UserMessage { text } ... on CompactionMessage { compactionStatus summary } } } } } }`
    const { data } = await overHttp(a, (ask) => ask(query, { id: s }))
    expect(data.session.messages.edges.map(({ node }: { node: object }) => node)).toMatchObject([
      { text: 'alpha' },
      { __typename: 'AssistantMessage' },
      { text: 'beta' },
      { __typename: 'AssistantMessage' },
      { id: first, compactionStatus: 'COMPLETED', summary: 'SUMMARY-1' },
    ])

    await talk(a, s, 'gamma')
    expect(spoken(stage.provider.requests[3]!)).toEqual([
      'system: be brief',
      'user: Summary of the conversation so far:\n\nSUMMARY-1',
      'user: beta',
      'assistant: re beta',
      'user: gamma',
    ])

    stage.provider.script(said('SUMMARY-2'))
    await compaction(a.core, s)
    await a.core.coordinator.idle()
    const second = spoken(stage.provider.requests[4]!)[1]!
    expect(second).toContain('SUMMARY-1')
    expect(second).toContain('> User: beta')
    expect(second).not.toContain('alpha')
    await talk(a, s, 'delta')
    const last = spoken(stage.provider.requests[5]!)
    expect(last).toEqual([
      'system: be brief',
      'user: Summary of the conversation so far:\n\nSUMMARY-2',
      'user: gamma',
      'assistant: re gamma',
      'user: delta',
    ])
  })

  it('COMP-14: with nothing to compact it fails once, without a request, and later prompts run', async () => {
    const a = await stage.start()
    const s = await stage.session()
    await compaction(a.core, s)
    await a.core.coordinator.idle()
    expect(stage.provider.requests).toHaveLength(0)
    expect(await stage.payloads(s, 'compaction.failed')).toHaveLength(1)
    await talk(a, s, 'hi')
    expect(kinds()).toEqual(['hi'])
    expect(await stage.payloads(s, 'compaction.failed')).toHaveLength(1)
  })

  it('COMP-15: an empty summary, or one of tool calls alone, is no summary: nothing runs, and history is as before', async () => {
    const look = instant('look')
    const a = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    await talk(a, s, 'alpha')
    for (const answer of [reply(text(' \n'), finish()), reply(toolCall('look', {}), finish('tool_calls')), finish()]) {
      stage.provider.script(answer)
      await compaction(a.core, s)
      await a.core.coordinator.idle()
    }
    expect((await compactions(s)).map(({ status, summary }) => [status, summary])).toEqual([
      ['FAILED', null],
      ['FAILED', null],
      ['FAILED', null],
    ])
    expect(look.ran).toEqual([])
    expect(await stage.db.toolCall.count({ where: { sessionId: s } })).toBe(0)
    await talk(a, s, 'beta')
    expect(spoken(stage.provider.requests.at(-1)!)).toEqual(['user: alpha', 'assistant: re alpha', 'user: beta'])
  })

  it('COMP-19: a provider that hangs over the summary ends as a failure of the compaction, and the session goes on', async () => {
    const a = await stage.start({ config: { idleMs: 90_000 } })
    const s = await stage.session()
    await talk(a, s, 'alpha')
    stage.provider.script(hang())
    await compaction(a.core, s)
    await stage.provider.request(1)
    await stage.clock.armed(90_000)
    await stage.clock.advance(90_000)
    await a.core.coordinator.idle()
    expect(await stage.payloads(s, 'compaction.failed')).toMatchObject([{ error: { code: 'PROVIDER_UNAVAILABLE' } }])
    expect(await stage.payloads(s, 'execution.settled')).toMatchObject([{}, { outcome: 'SUCCEEDED' }])
    await talk(a, s, 'beta')
    expect(spoken(stage.provider.requests.at(-1)!)).toEqual(['user: alpha', 'assistant: re alpha', 'user: beta'])
  })
})

describe('before a step', () => {
  it('COMP-07: a history that has grown too long is compacted while the input is still pending, then it is promoted', async () => {
    const a = await stage.start(small)
    const s = await stage.session()
    await talk(a, s, 'alpha')
    await talk(a, s, 'beta', filling('B'))
    const open = gate()
    stage.provider.script(reply(wait(open.promise), text('the summary'), finish()), said('G'))
    const gamma = await prompt(a.core, s, 'gamma')
    await stage.provider.request(2)
    expect(await stage.db.input.findUnique({ where: { id: gamma } })).toMatchObject({ state: 'PENDING' })
    const before = (await stage.commits(s)).length
    open.open()
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(kinds()).toEqual(['alpha', 'beta', 'summary', 'gamma'])
    expect(await stage.payloads(s, 'compaction.started')).toMatchObject([{ automatic: true }])
    expect((await stage.commits(s)).slice(before, before + 2)).toEqual([
      ['compaction.ended'],
      ['prompt.promoted', 'step.started'],
    ])
    expect(spoken(stage.provider.requests[3]!)).toEqual([
      'user: Summary of the conversation so far:\n\nthe summary',
      'user: beta',
      'assistant: B',
      'user: gamma',
    ])
  })

  it('COMP-07: where the provider reports no usage the whole history is estimated', async () => {
    const uncounted = (word: string) => reply(text(word), finishing(), end().slice(1))
    const a = await stage.start(small)
    const s = await stage.session()
    await talk(a, s, long('one', 1200), uncounted('A'))
    await talk(a, s, long('two', 1200), uncounted('B'))
    stage.provider.script(said('the summary'), uncounted('C'))
    await prompt(a.core, s, long('three', 1200))
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(kinds().map((kind) => kind.replace(/\.+$/, ''))).toEqual(['one', 'two', 'summary', 'three'])
    expect(await compactions(s)).toMatchObject([{ status: 'COMPLETED', automatic: true }])
  })

  it('PROMO-24: a compaction gives no steps back: those before its tail are counted still', async () => {
    const look = instant('look')
    const a = await stage.start({ ...small, tools: [look.tool], config: { stepLimit: 3 } })
    const s = await stage.session()
    const step = (n: number) => reply(toolCall('look', { n }), finish('tool_calls', { input: 3500, output: 10 }))
    stage.provider.script(step(1), said('summary one'), step(2), said('summary two'), said('at the limit'))
    await prompt(a.core, s, 'go')
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    const steps = stage.provider.requests.filter((request) => !isSummary(request))
    expect(stage.provider.requests).toHaveLength(5)
    expect(steps.map(({ body }) => body.tool_choice)).toEqual(['auto', 'auto', 'none'])
    expect(look.ran).toHaveLength(2)
  })

  it('TOOL-10: nor does it make the loop guard forget the calls before its tail', async () => {
    const look = instant('look')
    const a = await stage.start({ ...small, tools: [look.tool] })
    const s = await stage.session()
    const step = (input: number) => reply(toolCall('look', { at: 'sea' }), finish('tool_calls', { input, output: 10 }))
    stage.provider.script(step(3500), said('summary one'), step(3500), said('summary two'), step(10), said())
    await prompt(a.core, s, 'go')
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(look.ran).toHaveLength(2)
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([{ error: { code: 'LOOP_GUARD' } }])
  })

  it('COMP-08: without a known context size nothing is compacted in advance, and an overflow is recovered all the same', async () => {
    const a = await stage.start()
    const s = await stage.session()
    await talk(a, s, 'alpha')
    await talk(a, s, 'beta', reply(text('B'), finish('stop', { input: 900_000 })))
    await talk(a, s, 'gamma')
    expect(await compactions(s)).toEqual([])
    stage.provider.script(overflow(), said('the summary'), said('D'))
    await prompt(a.core, s, 'delta')
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(kinds()).toEqual(['alpha', 'beta', 'gamma', 'delta', 'summary', 'delta'])
    expect((await stage.payloads(s, 'step.ended')).length).toBe(4)
  })

  it('COMP-18: instructions above the context fail the step in one append that names both sizes, without any request', async () => {
    const a = await stage.start({ models: { models: { 'compatible/scripted': { contextTokens: 500 } } } })
    const s = await stage.session({ instructions: long('be brief', 800) })
    const id = await prompt(a.core, s)
    await a.core.coordinator.idle()
    expect(stage.provider.requests).toHaveLength(0)
    expect((await stage.commits(s)).slice(-2)).toEqual([
      ['execution.started'],
      ['prompt.promoted', 'step.started', 'step.failed', 'execution.settled'],
    ])
    const { error } = (await stage.payloads(s, 'step.failed'))[0]!
    expect(error.code).toBe('CONTEXT_OVERFLOW')
    expect(error.message).toMatch(/800/)
    expect(error.message).toMatch(/500/)
    expect(await compactions(s)).toEqual([])
    expect(await stage.db.input.findUnique({ where: { id } })).toMatchObject({ state: 'PROMOTED' })
  })

  it('COMP-13: after three compactions without a clean step the next one fails instead, also after a restart', async () => {
    let a = await stage.start(small)
    const s = await stage.session()
    await talk(a, s, 'alpha')
    await talk(a, s, 'beta', filling('B'))
    // Each message is nearly all of the context, so that a compaction before it is never enough; and no step ends clean.
    for (const word of ['one', 'two', 'three']) {
      stage.provider.script(said(`summary ${word}`), status(400, errorBody('invalid_request_error')))
      await prompt(a.core, s, long(word, 3300))
      await a.core.coordinator.idle()
      stage.provider.expectDone()
      await a.kill()
      a = await stage.start(small)
    }
    expect(await compactions(s)).toHaveLength(3)
    expect(await stage.db.session.findUnique({ where: { id: s } })).toMatchObject({ compactions: 3 })
    const requests = stage.provider.requests.length
    await prompt(a.core, s, long('four', 3300))
    await a.core.coordinator.idle()
    expect(stage.provider.requests).toHaveLength(requests)
    expect((await stage.commits(s)).at(-1)).toEqual([
      'prompt.promoted',
      'step.started',
      'step.failed',
      'execution.settled',
    ])
    expect((await stage.payloads(s, 'step.failed')).at(-1)).toMatchObject({ error: { code: 'CONTEXT_OVERFLOW' } })
    expect(await compactions(s)).toHaveLength(3)
  })
})

describe('within a step that overflows', () => {
  async function talked() {
    const a = await stage.start()
    const s = await stage.session()
    await talk(a, s, 'alpha')
    await talk(a, s, 'beta')
    return { a, s }
  }

  it('COMP-09: one compaction and one retry; nothing is promoted twice, and what arrives meanwhile waits', async () => {
    const { a, s } = await talked()
    const open = gate()
    stage.provider.script(overflow(), reply(wait(open.promise), text('the summary'), finish()), said('G'), said('L'))
    const gamma = await prompt(a.core, s, 'gamma')
    await stage.provider.request(3)
    const late = await prompt(a.core, s, 'late')
    expect(await stage.claim(s)).toMatchObject({ phase: 'UNKNOWN' })
    open.open()
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(kinds().slice(2)).toEqual(['gamma', 'summary', 'gamma', 'late'])
    expect(spoken(stage.provider.requests[4]!)).toEqual([
      'user: Summary of the conversation so far:\n\nthe summary',
      'user: gamma',
    ])
    const promoted = (await stage.payloads(s, 'prompt.promoted')).map(({ messageId }) => messageId)
    expect(promoted.slice(2)).toEqual([gamma, late])
    expect(await stage.payloads(s, 'step.started')).toHaveLength(4)
    expect(await stage.payloads(s, 'compaction.started')).toMatchObject([{ automatic: true }])
    expect(await stage.types(s)).not.toContain('step.failed')
  })

  it('COMP-10: a second overflow in that step ends it, after three requests', async () => {
    const { a, s } = await talked()
    stage.provider.script(overflow(), said('the summary'), overflow())
    await prompt(a.core, s, 'gamma')
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(stage.provider.requests).toHaveLength(5)
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([
      { error: { code: 'CONTEXT_OVERFLOW' }, continues: false },
    ])
    expect((await stage.payloads(s, 'execution.settled')).at(-1)).toMatchObject({ outcome: 'FAILED' })
  })

  it('COMP-11: an overflow after some output compacts nothing and keeps the partial answer', async () => {
    const { a, s } = await talked()
    stage.provider.script(reply(text('half an '), streamError('context_length_exceeded')))
    await prompt(a.core, s, 'gamma')
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(await compactions(s)).toEqual([])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([{ error: { code: 'CONTEXT_OVERFLOW' } }])
    const { messageId } = (await stage.payloads(s, 'step.failed'))[0]!
    expect(await stage.db.part.findMany({ where: { messageId } })).toMatchObject([{ text: 'half an ', complete: true }])
  })

  it('COMP-12: a summary that fails leaves the original overflow as the end of the step', async () => {
    const { a, s } = await talked()
    stage.provider.script(overflow(), status(500, errorBody('server_error')))
    await prompt(a.core, s, 'gamma')
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    expect(stage.provider.requests).toHaveLength(4)
    const order = (await stage.types(s)).filter((type) => /^(compaction|step\.failed)/.test(type))
    expect(order).toEqual(['compaction.started', 'compaction.failed', 'step.failed'])
    expect(await stage.payloads(s, 'compaction.failed')).toMatchObject([{ error: { code: 'PROVIDER_UNAVAILABLE' } }])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([{ error: { code: 'CONTEXT_OVERFLOW' } }])
    await talk(a, s, 'delta')
    expect(kinds().at(-1)).toBe('delta')
  })

  it('STEP-24: with text, two tools and an overflow: the tools are settled first, then the overflow that was held is the end', async () => {
    const look = probe('look')
    const also = probe('also')
    const a = await stage.start({ tools: [look.tool, also.tool] })
    const s = await stage.session()
    stage.provider.script(
      reply(
        text('I look'),
        toolCalls({ name: 'look', args: {} }, { name: 'also', args: {} }),
        finishing('tool_calls'),
        streamError('context_length_exceeded'),
      ),
    )
    await prompt(a.core, s)
    const runs = [await look.run(), await also.run()]
    await (await stage.provider.request(0)).ended
    for (const run of runs) {
      expect(await stage.types(s)).not.toContain('step.failed')
      run.finish()
    }
    await a.core.coordinator.idle()
    stage.provider.expectDone()
    const order = (await stage.types(s)).filter((type) =>
      /^(step\.(failed|streamed|ended)|tool\.succ|compact)/.test(type),
    )
    expect(order).toEqual(['tool.succeeded', 'tool.succeeded', 'step.failed'])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([
      { error: { code: 'CONTEXT_OVERFLOW' }, continues: false },
    ])
  })
})
