// Whatever a tool throws or gives: its call settles, and what could not be understood is said.
import { describe, expect, it } from 'vitest'
import { prepareTool, type ToolDefinition } from '../src/config.ts'
import { createLog } from '../src/log.ts'
import { runTool, type ToolOutcome } from '../src/runner/tools/run-tool.ts'
import { asError } from '../src/thrown.ts'
import { testClock } from './support/clock.ts'
import { oddResults, oddThrows } from './support/odd-values.ts'
import { finish, reply, text, toolCalls } from './support/provider.ts'
import { probe, prompt, useStage } from './support/stage.ts'

/** Runs it without a session around it. */
function run(execute: () => unknown, late: (outcome: ToolOutcome) => void = () => {}) {
  const made = prepareTool({
    name: 'odd',
    description: 'odd',
    inputSchema: { type: 'object' },
    execute,
  } as ToolDefinition)
  if (!('tool' in made)) throw new Error(made.issues[0]?.message)
  const clock = testClock()
  const { signal } = new AbortController()
  const ids = { sessionId: 's', messageId: 'm', callId: 'c' }
  const told = { progress() {}, unshown() {}, late }
  return { clock, outcome: runTool({ tool: made.tool, input: {}, ...ids, timeoutMs: 1000, signal, clock, ...told }) }
}

type Settle = (value: unknown) => void
const thenable = (then: (ok: Settle, no: Settle) => unknown): object =>
  Object.defineProperty({}, 'then', { value: then })

describe('a call of a tool settles', () => {
  it.each(Object.entries(oddThrows))(
    'PROMISE-010: that throws %s, at once or later, and says what it can',
    async (_what, [make, said]) => {
      const now = await run(() => {
        throw make()
      }).outcome
      const later = await run(() => Promise.reject(make())).outcome
      for (const outcome of [now, later]) {
        expect(outcome).toMatchObject({
          kind: 'failed',
          error: { code: 'TOOL_ERROR', message: expect.stringMatching(said) },
        })
        expect(outcome).toMatchObject({ thrown: expect.any(Error) })
      }
    },
  )

  it.each(Object.entries(oddResults))(
    'PROMISE-011: that gives %s: it ran, and where its output has no form stands in the error',
    async (_what, [make, said]) => {
      const outcome = await run(() => make()).outcome
      expect(outcome).toMatchObject({
        kind: 'failed',
        error: { code: 'TOOL_ERROR', message: expect.stringMatching(said) },
      })
    },
  )

  it('PROMISE-011: whose thenable settles twice, or gives what plain JSON is made of: that is its output', async () => {
    const twice = thenable((ok) => [ok('first'), ok('second')])
    const plain = Object.assign(Object.create(null), {
      at: new Date(0),
      gone: undefined,
      list: [undefined, Number.NaN],
    })
    expect(await run(() => twice).outcome).toEqual({ kind: 'succeeded', output: 'first' })
    expect(await run(() => plain).outcome).toEqual({
      kind: 'succeeded',
      output: { at: '1970-01-01T00:00:00.000Z', list: [null, null] },
    })
  })

  it('PROMISE-012: at its deadline, though its thenable never does; how it ends after that is told once and has no effect', async () => {
    let fail = (_reason: unknown) => {}
    const late: ToolOutcome[] = []
    const { clock, outcome } = run(
      () => thenable((_ok, no) => (fail = no)),
      (ended) => late.push(ended),
    )
    await clock.armed(1000)
    // A thenable is only asked a turn later.
    await new Promise((resolve) => setImmediate(resolve))
    await clock.advance(1000)
    expect(await outcome).toMatchObject({ kind: 'failed', error: { code: 'TOOL_TIMEOUT' } })
    fail(Object.create(null))
    await new Promise((resolve) => setImmediate(resolve))
    expect(late).toMatchObject([{ kind: 'failed', error: { message: expect.stringMatching(/without a prototype/) } }])
    expect(clock.timers()).toEqual([])
  })
})

it('PROMISE-010: a log line about anything that was thrown is written, and coercing it never throws', () => {
  const lines: string[] = []
  const log = createLog('info', { write: (line: string) => void lines.push(line) })
  for (const [make] of Object.values(oddThrows)) {
    log.error({ err: make() }, 'told')
    expect(typeof asError(make()).message).toBe('string')
  }
  expect(lines.filter((line) => JSON.parse(line).msg === 'told')).toHaveLength(Object.keys(oddThrows).length)
})

describe('a session', () => {
  const stage = useStage()
  const names = [
    'an object without prototype',
    'an Error whose message throws',
    'an Error whose message is no text',
    'a proxy that throws',
  ]

  it('PROMISE-013: whose tools throw and give odd things goes on: each is run once, each call has an end, the model is told, nothing is left running', async () => {
    const ran: string[] = []
    const tool: ToolDefinition = {
      name: 'odd',
      description: 'does odd things',
      inputSchema: { type: 'object' },
      execute(input) {
        const { how, what } = input as { how: string; what: string }
        ran.push(`${how} ${what}`)
        if (how === 'throws') throw oddThrows[what]![0]()
        if (how === 'rejects') return Promise.reject(oddThrows[what]![0]())
        return oddResults[what]![0]() as never
      },
    }
    const { core } = await stage.start({ tools: [tool] })
    const s = await stage.session()
    const calls = [
      ...names.flatMap((what) => ['throws', 'rejects'].map((how) => ({ how, what }))),
      ...['a Map', 'a getter that throws', 'a then that throws'].map((what) => ({ how: 'gives', what })),
    ]
    stage.provider.script(
      reply(toolCalls(...calls.map((args, n) => ({ name: 'odd', args, id: `call_${n}` }))), finish('tool_calls')),
      reply(text('ok'), finish()),
    )
    await prompt(core, s)
    await core.coordinator.idle()
    stage.provider.expectDone()
    expect(ran.toSorted()).toEqual(calls.map(({ how, what }) => `${how} ${what}`).toSorted())
    const failed = await stage.payloads(s, 'tool.failed')
    expect(failed.map(({ error }) => error.code)).toEqual(calls.map(() => 'TOOL_ERROR'))
    expect(failed.every(({ error }) => error.message.length > 10)).toBe(true)
    expect(await stage.claim(s)).toBeNull()
    expect((await stage.payloads(s, 'execution.settled')).map(({ outcome }) => outcome)).toEqual(['SUCCEEDED'])
  })

  it('PROMISE-012: whose tool fails after its deadline goes on, and the log says whose it was', async () => {
    const lines: Record<string, unknown>[] = []
    const slow = probe('slow', { timeoutMs: 1000 })
    const { core } = await stage.start({ tools: [slow.tool], log: (line) => lines.push(line) })
    const s = await stage.session()
    stage.provider.script(
      reply(toolCalls({ name: 'slow', args: {}, id: 'call_late' }), finish('tool_calls')),
      reply(text('ok'), finish()),
    )
    await prompt(core, s)
    const run = await slow.run()
    await stage.clock.advance(1000)
    await core.coordinator.idle()
    run.fail(Object.create(null))
    await new Promise((resolve) => setImmediate(resolve))
    expect(lines.filter(({ msg }) => String(msg).includes('after its deadline'))).toMatchObject([
      { level: 'warn', sessionId: s, callId: 'call_late', tool: 'slow', outcome: 'failed' },
    ])
    expect((await stage.payloads(s, 'tool.failed')).map(({ error }) => error.code)).toEqual(['TOOL_TIMEOUT'])
  })

  it('PROMISE-014: whose rules throw odd things: a check that fails refuses the call with words, needsApproval asks', async () => {
    const lines: Record<string, unknown>[] = []
    const throws = () => {
      throw Object.create(null)
    }
    const asked = { ...probe('asked').tool, needsApproval: throws as never }
    const { z } = await import('zod')
    const checked = { ...probe('checked').tool, inputSchema: z.object({ a: z.string().refine(throws) }) }
    const { core } = await stage.start({ tools: [asked, checked], log: (line) => lines.push(line) })
    const s = await stage.session()
    const calls = [
      { name: 'asked', args: {}, id: 'call_a' },
      { name: 'checked', args: { a: 'x' }, id: 'call_c' },
    ]
    stage.provider.script(reply(toolCalls(...calls), finish('tool_calls')))
    await prompt(core, s)
    await core.coordinator.idle()
    expect(await stage.payloads(s, 'tool.failed')).toMatchObject([
      {
        callId: 'call_c',
        error: {
          code: 'TOOL_INPUT',
          message: expect.stringMatching(/cannot be checked: an object without a prototype/),
        },
      },
    ])
    expect(await stage.payloads(s, 'interaction.requested')).toMatchObject([{ callId: 'call_a', kind: 'APPROVAL' }])
    expect(lines.filter(({ msg }) => String(msg).startsWith('needsApproval failed'))).toHaveLength(1)
  })
})
