import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { event } from '../src/events.ts'
import { createLiveText } from '../src/live-text.ts'
import type { StreamItem } from '../src/stream-item.ts'
import { testClock } from './support/clock.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { collectGarbage, heldMegabytes } from './support/memory.ts'
import {
  is,
  joined,
  names,
  type RunningStep,
  runningStep,
  type StreamProcess,
  seqs,
  streamProcess,
  takeUntil,
  until,
} from './support/stream-process.ts'

let database: TestDatabase
let owner: StreamProcess
let other: StreamProcess

beforeAll(async () => {
  database = await createTestDatabase()
  owner = streamProcess(database.url)
  other = streamProcess(database.url)
})
afterAll(async () => {
  await owner.close()
  await other.close()
  await database.drop()
})

const loneSurrogate = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/
const deltas = (items: StreamItem[]) => items.filter((item) => 'offset' in item)
const chunksOf = (step: RunningStep) =>
  owner.db.chunk.findMany({ where: { sessionId: step.sessionId }, orderBy: { offset: 'asc' } })

/** From LogSynced on, beside a step that is under way. */
async function followed(process: StreamProcess, step: RunningStep): Promise<AsyncIterableIterator<StreamItem>> {
  const stream = process.stream(step.sessionId)
  await takeUntil(stream, is('LogSynced'))
  return stream
}

describe.each(['the owner', 'another process'])('live text, read in %s', (where) => {
  const reader = () => (where === 'the owner' ? owner : other)

  it('STREAM-08, STREAM-09: deltas have no seq, begin at 0, join to the text that ends the part, and stand in no replay', async () => {
    const step = await runningStep(owner)
    const stream = await followed(reader(), step)
    await step.begin()
    const whole = Array.from({ length: 60 }, (_, n) => `word ${n} `)
    const taking = takeUntil(stream, is('TextEnded'))
    for (const word of whole) {
      step.add(word)
      await new Promise((resolve) => setImmediate(resolve))
    }
    await step.end(whole.join(''))
    const items = await taking
    expect(items[0]).toMatchObject({ typename: 'TextStarted', messageId: step.messageId, index: 0 })
    expect(deltas(items).length).toBeGreaterThan(0)
    expect(deltas(items).every((item) => item.seq === null)).toBe(true)
    expect(deltas(items)[0]).toMatchObject({
      offset: 0,
      sessionId: step.sessionId,
      messageId: step.messageId,
      at: expect.any(Date),
    })
    expect(joined(items)).toBe(whole.join(''))
    expect(joined([...items, ...items])).toBe(whole.join(''))
    await stream.return!()
    const replay = await takeUntil(reader().stream(step.sessionId), is('LogSynced'))
    expect(names(replay)).toEqual([
      'SessionCreated',
      'PromptAdmitted',
      'ExecutionStarted',
      'PromptPromoted',
      'StepStarted',
      'TextStarted',
      'TextEnded',
      'LogSynced',
    ])
    // What Session.events reads.
    expect((await owner.eventLog.read(step.sessionId, 0, 100)).map(({ type }) => type)).toEqual([
      'session.created',
      'prompt.admitted',
      'execution.started',
      'prompt.promoted',
      'step.started',
      'text.started',
      'text.ended',
    ])
  })

  it('STREAM-10: a stream that starts in the middle gets TextStarted, one delta from 0 with the text so far, LogSynced, then no hole', async () => {
    const step = await runningStep(owner)
    await step.begin()
    step.add('The answer so far')
    await owner.live.flush()
    const stream = reader().stream(step.sessionId)
    const items = await takeUntil(stream, is('LogSynced'))
    expect(names(items).slice(-3)).toEqual(['TextStarted', 'TextDelta', 'LogSynced'])
    expect(deltas(items)).toMatchObject([{ offset: 0, text: 'The answer so far', index: 0 }])
    // Behind the start event's seq: without TextStarted, the rest the same.
    const behind = reader().stream(step.sessionId, 6)
    expect(names(await takeUntil(behind, is('LogSynced')))).toEqual(['TextDelta', 'LogSynced'])
    await behind.return!()
    const taking = takeUntil(stream, is('TextEnded'))
    step.add(', and on')
    await step.end('The answer so far, and on')
    items.push(...(await taking))
    expect(joined(items)).toBe('The answer so far, and on')
    await stream.return!()
  })

  it('STREAM-27: behind the end of text, reasoning or tool input no delta of that part follows', async () => {
    const step = await runningStep(owner)
    const { sessionId, messageId, executionId } = step
    const stream = await followed(reader(), step)
    const taking = takeUntil(stream, is('StepEnded'))
    await step.begin('REASONING', 0)
    step.add('thinking', 0)
    await owner.live.flush()
    await step.end('thinking', 'REASONING', 0)
    await step.begin('TEXT', 1)
    step.add('saying', 1)
    await owner.live.flush()
    await step.append(event('tool.input_started', { messageId, index: 2, callId: 'call_1', name: 'look' }))
    owner.live.begin({ sessionId, messageId, index: 2, kind: 'TOOL_INPUT', callId: 'call_1' }, executionId)
    owner.live.add(sessionId, messageId, 2, '{"at":')
    await owner.live.flush()
    await step.end('saying', 'TEXT', 1)
    // A stray rest of a part that is over: it must not be heard of.
    owner.live.add(sessionId, messageId, 1, 'stray')
    owner.live.add(sessionId, messageId, 2, '"home"}')
    await owner.live.flush()
    await owner.live.end(sessionId, messageId, 2)
    await step.append(
      event('tool.called', { messageId, index: 2, callId: 'call_1', name: 'look', toolInput: { at: 'home' } }),
    )
    await step.append(event('tool.started', { messageId, callId: 'call_1' }))
    await step.append(event('tool.succeeded', { messageId, callId: 'call_1', output: 'ok' }))
    await step.settle()
    const items = await taking
    for (const [ends, index] of [
      ['ReasoningEnded', 0],
      ['TextEnded', 1],
      ['ToolCalled', 2],
    ] as const) {
      const at = items.findIndex(is(ends))
      expect(items.slice(at).filter((item) => 'offset' in item && item.index === index)).toEqual([])
    }
    expect(joined(items, 0)).toBe('thinking')
    expect(joined(items, 1)).toBe('saying')
    expect('{"at":"home"}'.startsWith(joined(items, 2))).toBe(true)
    const input = items.find(is('ToolInputDelta'))
    if (input !== undefined) expect(input).toMatchObject({ callId: 'call_1', index: 2, offset: 0 })
    await stream.return!()
  })

  it('STREAM-27: input that is no JSON fails without ToolCalled; no delta of it follows', async () => {
    const step = await runningStep(owner)
    const { sessionId, messageId, executionId } = step
    const stream = await followed(reader(), step)
    await step.append(event('tool.input_started', { messageId, index: 0, callId: 'call_1', name: 'look' }))
    owner.live.begin({ sessionId, messageId, index: 0, kind: 'TOOL_INPUT', callId: 'call_1' }, executionId)
    owner.live.add(sessionId, messageId, 0, '{"broken')
    await owner.live.flush()
    const items = await takeUntil(stream, is('ToolInputDelta'))
    expect(items.at(-1)).toMatchObject({ callId: 'call_1', offset: 0, text: '{"broken' })
    const error = { code: 'TOOL_INPUT' as const, message: 'not JSON' }
    await step.append(event('tool.failed', { messageId, callId: 'call_1', error }))
    await takeUntil(stream, is('ToolFailed'))
    const taking = takeUntil(stream, is('StepEnded'))
    owner.live.add(sessionId, messageId, 0, ' more')
    await owner.live.flush()
    await owner.live.end(sessionId, messageId, 0)
    await step.settle()
    expect(names(await taking)).toEqual(['StepStreamed', 'StepEnded'])
    await stream.return!()
  })

  it('STREAM-25: a reader slower than the text gets larger deltas instead of more; they join to the text', async () => {
    const step = await runningStep(owner)
    const stream = await followed(reader(), step)
    await step.begin()
    let whole = ''
    const items: StreamItem[] = []
    for (let turn = 0; turn < 8; turn++) {
      for (let n = 0; n < 500; n++) {
        whole += `${turn}.${n} `
        step.add(`${turn}.${n} `)
      }
      await owner.live.flush()
      items.push((await stream.next()).value)
    }
    await step.end(whole)
    items.push(...(await takeUntil(stream, is('TextEnded'))))
    expect(deltas(items).length).toBeLessThanOrEqual(9)
    expect(joined(items)).toBe(whole)
    await stream.return!()
  })

  it('never splits a surrogate pair that the model has sent whole', async () => {
    const step = await runningStep(owner)
    const stream = await followed(reader(), step)
    await step.begin()
    const items: StreamItem[] = []
    const taking = (async () => {
      for await (const item of stream) {
        items.push(item)
        if (item.typename === 'TextEnded') return
      }
    })()
    let said = ''
    for (const piece of ['a\ud83d', '\ude00b', '\ud83d\ude80', 'end']) {
      step.add(piece)
      said += piece
      const whole = said.replace(/[\ud800-\udbff]$/, '')
      // No chunk is written while a half stands at its end.
      if (where === 'another process' && whole !== said) continue
      await until(() => joined(items) === whole, `the reader of ${JSON.stringify(whole)}`)
    }
    await step.end('a\u{1f600}b\u{1f680}end')
    await taking
    expect(deltas(items).length).toBeGreaterThanOrEqual(where === 'the owner' ? 4 : 3)
    for (const delta of deltas(items)) expect((delta as { text: string }).text).not.toMatch(loneSurrogate)
    expect(joined(items)).toBe('a\u{1f600}b\u{1f680}end')
    await stream.return!()
  })
})

describe('between two sources', () => {
  it('STREAM-11: one delta of a provider that stalls then is out at once here, and in its chunk within 100 ms', async () => {
    const step = await runningStep(owner)
    const stream = await followed(owner, step)
    const remote = await followed(other, step)
    await step.begin()
    step.add('only this')
    const added = performance.now()
    expect((await takeUntil(stream, is('TextDelta'))).at(-1)).toMatchObject({ text: 'only this', offset: 0 })
    await until(async () => (await chunksOf(step)).length === 1, 'the chunk')
    // 100 ms, and what a loaded machine adds.
    expect(performance.now() - added).toBeLessThan(1_000)
    expect(await chunksOf(step)).toMatchObject([{ offset: 0, text: 'only this', index: 0 }])
    expect((await takeUntil(remote, is('TextDelta'))).at(-1)).toMatchObject({ text: 'only this' })
    await Promise.all([stream.return!(), remote.return!()])
  })

  it('STREAM-12: while 200 sessions stream in one process each flush is one statement for all of them, 100 ms behind the text, each fenced by its own claim', async () => {
    const steps = await Promise.all(Array.from({ length: 200 }, () => runningStep(owner)))
    /** When each statement was begun, and how many parts it carried. */
    const statements: { at: number; parts: number }[] = []
    const counting = new Proxy(owner.db, {
      get: (db, name) =>
        name === '$queryRaw'
          ? (...args: Parameters<typeof db.$queryRaw>) => {
              statements.push({ at: performance.now(), parts: (JSON.parse(String(args[1])) as unknown[]).length })
              return db.$queryRaw(...args)
            }
          : Reflect.get(db, name),
    })
    // The interval is the one that servers have.
    const live = createLiveText({ db: counting, owner: owner.owner })
    for (const { sessionId, messageId, executionId, append } of steps) {
      await append(event('text.started', { messageId, index: 0 }))
      live.begin({ sessionId, messageId, index: 0, kind: 'TEXT', callId: null }, executionId)
    }
    const sessionIds = steps.map((step) => step.sessionId)
    const written = (where: object = {}) => owner.db.chunk.count({ where: { sessionId: { in: sessionIds }, ...where } })
    const rounds = 10
    const behind: number[] = []
    for (let round = 1; round <= rounds; round++) {
      const added = performance.now()
      // Many deltas between two flushes, as models send them.
      for (let n = 0; n < 5; n++)
        for (const { sessionId, messageId } of steps) live.add(sessionId, messageId, 0, `${round} `)
      await until(async () => (await written()) === 200 * round, `the chunks of round ${round}`)
      expect(statements.map(({ parts }) => parts)).toEqual(Array(round).fill(200))
      behind.push(statements.at(-1)!.at - added)
    }
    // Each flush waits for the timer; a loaded machine may be late with some, not with all.
    expect(Math.min(...behind)).toBeGreaterThan(50)
    expect(Math.min(...behind)).toBeLessThan(150)
    // One of them loses its claim: in the statement that all share it alone is refused.
    const [lost] = steps
    await owner.db.claim.update({ where: { sessionId: lost!.sessionId }, data: { phase: 'CANCELLING' } })
    for (const { sessionId, messageId } of steps) live.add(sessionId, messageId, 0, 'late')
    await until(async () => (await written()) === 200 * rounds + 199, 'the chunks of the others')
    expect(statements).toHaveLength(rounds + 1)
    expect(await written({ sessionId: lost!.sessionId })).toBe(rounds)
    await live.close()
  }, 60_000)

  it('LOG-18: the end event removes the chunks of its part in its own commit, and a chunk behind it is refused', async () => {
    const step = await runningStep(owner)
    await step.begin()
    step.add('some text')
    await owner.live.flush()
    expect(await chunksOf(step)).toHaveLength(1)
    await step.end('some text')
    expect(await chunksOf(step)).toEqual([])
    const late = createLiveText({ db: owner.db, owner: owner.owner })
    late.begin(
      { sessionId: step.sessionId, messageId: step.messageId, index: 0, kind: 'TEXT', callId: null },
      step.executionId,
    )
    late.add(step.sessionId, step.messageId, 0, 'too late')
    await late.flush()
    await late.close()
    expect(await chunksOf(step)).toEqual([])
  })

  it('STREAM-10: chunks that have a gap are read up to it, and the rest when it is closed', async () => {
    const step = await runningStep(owner)
    await step.append(event('text.started', { messageId: step.messageId, index: 0 }))
    const chunk = (offset: number, text: string) =>
      owner.db.chunk.create({ data: { sessionId: step.sessionId, messageId: step.messageId, index: 0, offset, text } })
    await chunk(0, 'one ')
    await chunk(8, 'three')
    const stream = other.stream(step.sessionId, 6)
    const items = await takeUntil(stream, is('LogSynced'))
    expect(deltas(items)).toMatchObject([{ offset: 0, text: 'one ' }])
    await chunk(4, 'two ')
    other.doorbell.ring([step.sessionId], true)
    items.push(...(await takeUntil(stream, is('TextDelta'))))
    expect(joined(items)).toBe('one two three')
    await stream.return!()
  })

  it('STREAM-10: text that moves from chunks to this process and back is continued where it was, without a hole or a repeat', async () => {
    const step = await runningStep(owner)
    const { sessionId, messageId, executionId } = step
    await step.append(event('text.started', { messageId, index: 0 }))
    const chunk = (offset: number, text: string) =>
      owner.db.chunk.create({ data: { sessionId, messageId, index: 0, offset, text } })
    await chunk(0, 'abc')
    const stream = owner.stream(sessionId, 6)
    const items = await takeUntil(stream, is('LogSynced'))
    owner.live.begin({ sessionId, messageId, index: 0, kind: 'TEXT', callId: null }, executionId)
    owner.live.add(sessionId, messageId, 0, 'abcdefg')
    items.push(...(await takeUntil(stream, is('TextDelta'))))
    await owner.live.drop(sessionId)
    await owner.db.chunk.deleteMany({ where: { sessionId } })
    await chunk(0, 'abcde')
    await chunk(5, 'fghi')
    owner.doorbell.ring([sessionId])
    items.push(...(await takeUntil(stream, is('TextDelta'))))
    expect(deltas(items)).toMatchObject([{ text: 'abc' }, { text: 'defg', offset: 3 }, { text: 'hi', offset: 7 }])
    await stream.return!()
  })

  it('STREAM-06: chunks arrive within the poll interval when their doorbell is lost', async () => {
    const deaf = streamProcess(database.url, { deaf: true, pollMs: 100 })
    const step = await runningStep(owner)
    await step.begin()
    const stream = await followed(deaf, step)
    const next = stream.next()
    step.add('unheard')
    expect((await next).value).toMatchObject({ typename: 'TextDelta', text: 'unheard' })
    await stream.return!()
    await deaf.close()
  })

  it('parallel parts all get their turn, however busy the first one is', async () => {
    const step = await runningStep(owner)
    const stream = await followed(owner, step)
    await step.begin('TEXT', 0)
    await step.begin('TEXT', 1)
    await takeUntil(stream, (item) => item.typename === 'TextStarted' && item.index === 1)
    const indices: number[] = []
    for (let n = 0; n < 6; n++) {
      step.add('busy', 0)
      step.add('quiet', 1)
      indices.push(((await stream.next()).value as { index: number }).index)
    }
    expect(indices.filter((index) => index === 1)).toHaveLength(3)
    await stream.return!()
  })
})

describe('tool progress', () => {
  it('TOOL-13: shows the latest note of a running call, with seq null; nothing before its start or behind its terminal, nothing in the log', async () => {
    const step = await runningStep(owner)
    const { sessionId, messageId } = step
    const stream = await followed(owner, step)
    const call = { messageId, callId: 'call_1' }
    const progress = (value: string) => owner.live.progress(sessionId, { ...call, progress: value })
    await step.append(
      event('tool.input_started', { ...call, index: 0, name: 'dig' }),
      event('tool.called', { ...call, index: 0, name: 'dig', toolInput: {} }),
      event('tool.started', call),
    )
    // The reader is away: only the latest is kept, and it waits for the start that the reader has not seen yet.
    for (const value of ['1 %', '2 %', '50 %']) progress(value)
    const items = await takeUntil(stream, is('ToolProgress'))
    expect(names(items)).toEqual(['ToolInputStarted', 'ToolCalled', 'ToolStarted', 'ToolProgress'])
    expect(items.at(-1)).toMatchObject({ progress: '50 %', callId: 'call_1', messageId, seq: null })
    progress('99 %')
    await step.append(event('tool.succeeded', { ...call, output: 'dug' }))
    progress('100 %')
    expect(names(await takeUntil(stream, is('ToolSucceeded')))).toEqual(['ToolSucceeded'])
    const taking = takeUntil(stream, is('StepEnded'))
    progress('101 %')
    owner.live.progress(sessionId, { messageId, callId: 'call_that_never_started', progress: '1 %' })
    await step.settle()
    expect(names(await taking)).toEqual(['StepStreamed', 'StepEnded'])
    expect((await owner.eventLog.read(sessionId, 0, 100)).map((stored) => stored.type)).not.toContain('tool.progress')
    await stream.return!()
  })

  it('TOOL-13: a stream that starts while the call runs hears of it too', async () => {
    const step = await runningStep(owner)
    const call = { messageId: step.messageId, callId: 'call_1' }
    await step.append(
      event('tool.input_started', { ...call, index: 0, name: 'dig' }),
      event('tool.called', { ...call, index: 0, name: 'dig', toolInput: {} }),
      event('tool.started', call),
    )
    const stream = await followed(owner, step)
    const next = stream.next()
    owner.live.progress(step.sessionId, { ...call, progress: { done: 1 } })
    expect((await next).value).toMatchObject({ typename: 'ToolProgress', progress: { done: 1 } })
    await stream.return!()
  })
})

describe('slow readers of live text', () => {
  it('STREAM-13: text that nobody takes ends the stream when the limit passes, in the owner and elsewhere', async () => {
    for (const local of [true, false]) {
      const clock = testClock()
      const stalling = streamProcess(database.url, { clock, stallMs: 60_000 })
      const step = await runningStep(stalling)
      const reading = local ? stalling : streamProcess(database.url, { clock, stallMs: 60_000 })
      const stream = await followed(reading, step)
      await step.begin()
      await takeUntil(stream, is('TextStarted'))
      step.add('nobody takes this')
      await stalling.live.flush()
      const ended = async () => {
        await clock.advance(1_000)
        return reading.counts.slowConsumers === 1
      }
      const from = clock.now()
      await until(ended, 'the end')
      expect(clock.now() - from).toBeGreaterThanOrEqual(60_000)
      expect((await stream.next()).value).toMatchObject({ cause: 'SLOW_CONSUMER', resumeAfter: 6 })
      await stalling.close()
      if (!local) await reading.close()
    }
  })

  it('STREAM-25: a reader that takes one item per second while a thousand deltas flow is never ended: its deltas get larger instead of more, join to the text and cost no memory', async () => {
    const clock = testClock()
    const patient = streamProcess(database.url, { clock, stallMs: 60_000 })
    const step = await runningStep(patient)
    const stream = await followed(patient, step)
    await step.begin()
    let length = 0
    const sizes: number[] = []
    const oneSecond = async () => {
      for (let n = 0; n < 1000; n++) step.add('0123456789')
      length += 10_000
      await clock.advance(1_000)
      const { value } = await stream.next()
      if (value.typename !== 'TextDelta') return expect(value.typename).toBe('TextStarted')
      // What is given is not kept, neither here nor there: only where it stood.
      expect(value.offset).toBe(sizes.reduce((sum, size) => sum + size, 0))
      sizes.push(value.text.length)
    }
    for (let second = 0; second < 30; second++) await oneSecond()
    collectGarbage()
    const before = process.memoryUsage().heapUsed
    // Three times as long as the limit.
    for (let second = 0; second < 180; second++) await oneSecond()
    collectGarbage()
    // The text itself (2 MB), and not the 180 000 deltas of it.
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(12 * 1024 * 1024)
    expect(patient.counts.slowConsumers).toBe(0)
    // One a second, each with all that has come since the one before.
    expect(new Set(sizes.slice(1))).toEqual(new Set([10_000]))
    const whole = '0123456789'.repeat(length / 10)
    await step.end(whole)
    const rest = await takeUntil(stream, is('TextEnded'))
    expect(deltas(rest).length).toBeLessThanOrEqual(1)
    for (const item of deltas(rest)) if ('text' in item) sizes.push(item.text.length)
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(whole.length)
    expect(rest.at(-1)).toMatchObject({ text: whole })
    await stream.return!()
    await patient.close()
  })

  it('STREAM-14: 50 readers that never take anything cost no memory while ten minutes of deltas flow', async () => {
    const crowd = streamProcess(database.url, { flushMs: 100 })
    const step = await runningStep(crowd)
    // A thousand deltas a second, as fast as they can be made; each minute ends one part.
    const minute = async (index: number) => {
      await step.begin('TEXT', index)
      for (let n = 0; n < 60_000; n++) {
        step.add('tok ', index)
        if (n % 2000 === 0) await new Promise((resolve) => setImmediate(resolve))
      }
      await step.end('tok '.repeat(60_000), 'TEXT', index)
    }
    // What the flow itself takes without any reader is not what is measured.
    for (let index = 0; index < 3; index++) await minute(index)
    const streams = Array.from({ length: 50 }, () => crowd.stream(step.sessionId, 11))
    for (const stream of streams) await takeUntil(stream, is('LogSynced'))
    const before = heldMegabytes()
    for (let index = 3; index < 13; index++) await minute(index)
    expect(heldMegabytes() - before).toBeLessThan(64)
    // They were there all the time: each still gets what it has missed.
    expect(crowd.live.listeners()).toBe(50)
    expect((await streams[0]!.next()).value).toMatchObject({ typename: 'TextStarted', index: 3 })
    await Promise.all(streams.map((stream) => stream.return!()))
    expect(crowd.live.listeners() + crowd.doorbell.listeners()).toBe(0)
    await crowd.close()
  }, 120_000)

  it('STREAM-14: a reader that stops in the middle of a page keeps one event of it, and misses none when it goes on', async () => {
    const step = await runningStep(owner)
    for (let n = 0; n < 100; n++)
      await step.append(
        event('synthetic.appended', { messageId: `${step.messageId}n${n}`, text: 'b'.repeat(50_000), hidden: true }),
      )
    const streams = Array.from({ length: 30 }, () => owner.stream(step.sessionId))
    collectGarbage()
    const before = process.memoryUsage().heapUsed
    for (const stream of streams) await stream.next()
    // 30 pages of 5 MB each, if they were kept.
    await until(() => {
      collectGarbage()
      return process.memoryUsage().heapUsed - before < 20 * 1024 * 1024
    }, 'the pages to be let go')
    const items = await takeUntil(streams[0]!, is('LogSynced'))
    expect(seqs(items)).toEqual(Array.from({ length: 104 }, (_, n) => n + 2))
    await Promise.all(streams.map((stream) => stream.return!()))
  }, 60_000)
})
