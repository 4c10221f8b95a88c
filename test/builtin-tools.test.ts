import { expect, it } from 'vitest'
import { reservedToolNames, type ToolContext } from '../src/config.ts'
import type { Clock } from '../src/runner/clock.ts'
import { builtinTools, createBuiltinTools } from '../src/runner/tools/builtin.ts'

/** A clock that jumps to each timer as soon as it is set. */
function jumping(): Clock {
  let now = Date.UTC(2026, 0, 2, 3, 4, 5)
  return {
    now: () => now,
    setTimeout(fn, ms) {
      let cancelled = false
      queueMicrotask(() => {
        if (cancelled) return
        now += Math.max(ms, 0)
        fn()
      })
      return () => {
        cancelled = true
      }
    },
  }
}

function context(clock: Clock, more: Partial<ToolContext> = {}): ToolContext {
  const deadline = new Date(clock.now() + 600_000)
  return {
    sessionId: 's',
    messageId: 'm',
    callId: 'c',
    signal: new AbortController().signal,
    deadline,
    progress() {},
    ...more,
  }
}

function tool(name: string, clock: Clock) {
  const found = createBuiltinTools(clock).find((candidate) => candidate.name === name)!
  return (input: unknown, ctx: ToolContext) => {
    const checked = found.validate(input)
    if (!checked.ok) throw new Error(`${checked.field} ${checked.message}`)
    return found.execute(checked.value, ctx)
  }
}

it('OPS-13: the built-in tools have schemas, and names that a config file cannot take', () => {
  expect(builtinTools.map(({ name }) => name)).toEqual(['current_time', 'wait', 'ask_user'])
  for (const { name, jsonSchema } of builtinTools) {
    expect(reservedToolNames).toContain(name)
    expect(jsonSchema.type).toBe('object')
  }
})

it('TOOL-01: current_time tells the time in UTC, and in a zone; an unknown zone names the field', () => {
  const clock = jumping()
  const run = tool('current_time', clock)
  expect(run({}, context(clock))).toEqual({ utc: '2026-01-02T03:04:05.000Z' })
  expect(run({ timeZone: 'Asia/Tokyo' }, context(clock))).toMatchObject({ local: expect.stringContaining('12:04:05') })
  expect(() => run({ timeZone: 'Mars/Base' }, context(clock))).toThrow('timeZone must be an IANA time zone')
})

it('TOOL-12, TOOL-13: wait lasts as long as asked and reports progress on the way', async () => {
  const clock = jumping()
  const start = clock.now()
  const reports: unknown[] = []
  const ran = tool('wait', clock)({ ms: 120_000 }, context(clock, { progress: (update) => void reports.push(update) }))
  expect(await ran).toEqual({ waitedMs: 120_000 })
  expect(clock.now() - start).toBe(120_000)
  expect(reports).toHaveLength(10)
  expect(reports[4]).toEqual({ waitedMs: 60_000, ofMs: 120_000 })
})

it('TOOL-12: wait ends with the reason of its signal, also when that was aborted before', async () => {
  const clock: Clock = { now: () => 0, setTimeout: () => () => {} } // a timer that never comes
  const controller = new AbortController()
  const running = tool('wait', clock)({ ms: 1000 }, context(clock, { signal: controller.signal }))
  controller.abort(new Error('interrupted'))
  await expect(running).rejects.toThrow('interrupted')
  await expect(tool('wait', clock)({ ms: 1000 }, context(clock, { signal: controller.signal }))).rejects.toThrow(
    'interrupted',
  )
})

it('TOOL-11: wait does not outlast its deadline even if nobody aborts it', async () => {
  const clock = jumping()
  const start = clock.now()
  const running = tool('wait', clock)({ ms: 86_400_000 }, context(clock, { deadline: new Date(start + 5000) }))
  await expect(running).rejects.toThrow('the deadline of this call passed')
  expect(clock.now() - start).toBe(6000)
})

it('TOOL-07: wait refuses what is no sensible number of milliseconds', () => {
  const { validate } = builtinTools.find(({ name }) => name === 'wait')!
  for (const ms of [-1, 1.5, '5', 86_400_001, undefined])
    expect(validate({ ms })).toMatchObject({ ok: false, field: 'ms' })
})

it('ask_user takes a question with up to ten options, is marked as one, and never runs', () => {
  const tool = builtinTools.find(({ name }) => name === 'ask_user')!
  expect(tool.asks).toBe('question')
  const ok = (input: unknown) => tool.validate(input).ok
  expect(ok({ question: 'x'.repeat(2000), options: Array(10).fill('a') })).toBe(true)
  expect(ok({ question: 'Red?' })).toBe(true)
  for (const bad of [
    {},
    { question: '' },
    { question: 'x'.repeat(2001) },
    { question: 'x', options: Array(11).fill('a') },
  ])
    expect(ok(bad)).toBe(false)
  expect(() => tool.execute({ question: 'Red?' }, {} as ToolContext)).toThrow('answered by a person')
})
