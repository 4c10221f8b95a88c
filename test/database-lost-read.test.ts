import { afterEach, expect, it } from 'vitest'
import type { EventType } from '../src/events.ts'
import type { Core } from '../src/runner/core.ts'
import { approve, asked, calling, guarded, said, waiting } from './support/asking.ts'
import { type LossyWire, lossyWire } from './support/lost-reply.ts'
import { status } from './support/provider.ts'
import { hasEvent, interrupt, prompt, useStage } from './support/stage.ts'

// The connection breaks under one read of a drain: what is asked again costs neither the step nor a recovery.

const stage = useStage()
let wire: LossyWire | undefined
afterEach(async () => {
  await wire?.close()
  wire = undefined
})

async function startLossy(options: Parameters<typeof stage.start>[0] = {}) {
  wire = await lossyWire(stage.database.url)
  const errors: string[] = []
  const log = (line: Record<string, unknown>) => void (line.level === 'error' && errors.push(String(line.msg)))
  const started = await stage.start({ url: wire.url, log, ...options })
  return { ...started, wire, errors }
}

/** The session went through one execution, or so many, and none of them failed, was released or recovered. */
async function wentOn(sessionId: string, executions = 1) {
  await stage.logged(sessionId, 'execution.settled', executions)
  const types = await stage.types(sessionId)
  expect(types.filter((type) => type === 'execution.started')).toHaveLength(executions)
  expect(types).not.toContain('step.failed')
  expect(types).not.toContain('step.recovered')
  expect((await stage.payloads(sessionId, 'execution.settled')).at(-1)).toMatchObject({ outcome: 'SUCCEEDED' })
  expect(await stage.db.session.findUnique({ where: { id: sessionId } })).toMatchObject({ recoveries: 0 })
}

/** Calls `act` when the append of this event is done, before its caller goes on. */
function after(core: Core, type: EventType, act: () => void) {
  const { append } = core.eventLog
  core.eventLog = {
    ...core.eventLog,
    async append(request) {
      const outcome = await append(request)
      if (hasEvent(type)(request)) act()
      return outcome
    },
  }
}

/** Words of the statement that asks for a session's work. */
const work = ['armedInteractions', 'backingOff']

it('the question for work, before there is a claim', async () => {
  const { core, wire, errors } = await startLossy()
  const sessionId = await stage.session()
  stage.provider.script(said())
  wire.lose([...work, sessionId])
  await prompt(core, sessionId)
  await wentOn(sessionId)
  expect(wire.lost()).toBe(1)
  expect(errors).toEqual([])
})

it.each([
  ['the question for work', work, 1],
  ['the question for work, three times over', work, 3],
  ['the history that a request is prepared from', ['"instructions"', '"compactions"', 'SELECT'], 1],
])('at a boundary: %s', async (_what, words, times) => {
  const { core, wire, errors } = await startLossy()
  const sessionId = await stage.session()
  stage.provider.script(said())
  after(core, 'execution.started', () => wire.lose([...words, sessionId], times))
  await prompt(core, sessionId)
  await wentOn(sessionId)
  expect(wire.lost()).toBe(times)
  expect(errors).toEqual([])
  expect(stage.provider.requests).toHaveLength(1)
})

it('what is asked for a call: approvals that are remembered, the time at which it expires, and what was decided', async () => {
  const { tool, ran } = guarded('deploy', { approvalExpiresMs: 60_000 })
  const started = await startLossy({ tools: [tool] })
  const { core, wire, errors } = started
  const sessionId = await stage.session()
  stage.provider.script(calling('deploy'), said())
  wire.lose(['COUNT', '"Interaction"', '"remember"'])
  await prompt(core, sessionId)
  const interactionId = await asked(stage, sessionId)
  expect(wire.lost()).toBe(1)
  await waiting(stage, started, sessionId)
  wire.lose(['editedInput', 'jsonb_agg', sessionId])
  await approve(core, interactionId)
  await wentOn(sessionId, 2)
  expect(wire.lost()).toBe(2)
  expect(ran).toHaveLength(1)
  expect(errors).toEqual([])
})

it.each(['an approval that expires', 'a retry'])('the time of the database, for %s', async (what) => {
  const { tool } = guarded('deploy', { approvalExpiresMs: 60_000 })
  const started = await startLossy({ tools: [tool] })
  const { core, wire, errors } = started
  const sessionId = await stage.session()
  const isRetry = what === 'a retry'
  stage.provider.script(...(isRetry ? [status(503), said()] : [calling('deploy'), said()]))
  wire.lose(['SELECT holdfast_now() AS now'])
  await prompt(core, sessionId)
  if (isRetry) {
    await stage.logged(sessionId, 'step.retry_scheduled')
    await stage.clock.armed()
    await stage.clock.advance(3000)
    await wentOn(sessionId)
  } else {
    const interactionId = await asked(stage, sessionId)
    // Decided any earlier, the same execution would carry it out.
    await waiting(stage, started, sessionId)
    await approve(core, interactionId)
    await wentOn(sessionId, 2)
  }
  expect(wire.lost()).toBe(1)
  expect(errors).toEqual([])
  expect((await stage.types(sessionId)).includes('step.recovered')).toBe(false)
})

it('INT-01: what the cleanup of an interrupt settles', async () => {
  const { core, wire, errors } = await startLossy()
  const sessionId = await stage.session()
  stage.provider.script([{ kind: 'hang' }])
  await prompt(core, sessionId)
  await stage.provider.request(0)
  after(core, 'interrupt.requested', () => wire.lose(['interactionState', sessionId]))
  expect(await interrupt(core, sessionId)).toMatchObject({ interrupted: true })
  expect(wire.lost()).toBe(1)
  expect(await stage.types(sessionId)).toContain('step.interrupted')
  expect(await stage.db.quarantine.count({ where: { sessionId } })).toBe(0)
  expect(errors).toEqual([])
})
