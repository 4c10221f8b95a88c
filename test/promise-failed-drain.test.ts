// A drain that fails unexpectedly does not wait for its lease: recovery's own path settles it at once, bounded as every recovery is.
import { expect, it } from 'vitest'
import { atAppend } from './support/at-append.ts'
import { eventually } from './support/core.ts'
import { finish, reply, text, toolCall, wait } from './support/provider.ts'
import { hasEvent, interrupt, probe, prompt, refuseEvents, useStage } from './support/stage.ts'

const stage = useStage()
const out = () => Promise.reject(new Error('out of the blue'))
const said = (words = 'ok') => reply(text(words), finish())

it('PROMISE-060: it is settled at once, after its own tools have ended, and goes on in a new execution; the log says why', async () => {
  const lines: Record<string, unknown>[] = []
  let end = () => {}
  const ending = new Promise<void>((resolve) => {
    end = resolve
  })
  const signals: AbortSignal[] = []
  const stays = probe('stays', {
    execute: async (_input, { signal }) => {
      signals.push(signal)
      await ending
      return 'ended late'
    },
  })
  const { core } = await stage.start({ tools: [stays.tool], log: (line) => lines.push(line) })
  const s = await stage.session()
  const met = atAppend(core, hasEvent('step.streamed'), (go, nth) => (nth === 1 ? out() : go()))
  const order: string[] = []
  const { waits, settleFailedDrain } = core
  core.waits = {
    ...waits,
    begin(by, what, mayMs) {
      order.push(what)
      const over = waits.begin(by, what, mayMs)
      return () => {
        order.push(`${what} over`)
        over()
      }
    },
  }
  core.settleFailedDrain = (hold) => {
    order.push('settling')
    return settleFailedDrain(hold)
  }
  stage.provider.script(reply(text('half'), toolCall('stays', {}, 'call_s'), finish('tool_calls')), said('whole'))
  await prompt(core, s, 'go')
  // Told to stop, the tool has not ended yet: nothing is settled over its head.
  const signal = await eventually('the tool', async () => signals[0])
  await eventually('the signal', async () => signal.aborted || undefined)
  await eventually('what comes next', async () => order.includes('stop') || order.includes('settling') || undefined)
  expect(order).not.toContain('settling')
  expect(await stage.claim(s)).toMatchObject({ phase: 'UNKNOWN', owner: core.owner })
  expect(await stage.types(s)).not.toContain('tool.failed')
  end()
  await core.coordinator.idle()
  stage.provider.expectDone()
  expect(met.count).toBeGreaterThan(0)
  expect(order.filter((each) => /stop|settling/.test(each))).toEqual(['stop', 'stop over', 'settling'])
  expect(await stage.payloads(s, 'tool.failed')).toMatchObject([
    { callId: 'call_s', error: { code: 'OUTCOME_UNKNOWN' } },
  ])
  expect(await stage.payloads(s, 'step.recovered')).toMatchObject([{ phase: 'UNKNOWN', handover: false }])
  expect((await stage.payloads(s, 'step.ended')).length).toBe(1)
  expect((await stage.payloads(s, 'text.ended')).map((part) => part.text)).toEqual(['half', 'whole'])
  expect(await stage.claim(s)).toBeNull()
  expect(core.leases.held()).toEqual([])
  expect(lines.filter(({ msg }) => msg === 'a drain failed')).toMatchObject([
    { level: 'error', sessionId: s, err: { message: 'out of the blue' } },
  ])
})

it('PROMISE-061: one that fails again and again is parked after the recoveries that are allowed, with as many requests', async () => {
  const { core } = await stage.start({ config: { recoveryAttempts: 2 } })
  const s = await stage.session()
  const met = atAppend(core, hasEvent('step.ended'), out)
  stage.provider.script(said('1'), said('2'), said('3'))
  await prompt(core, s, 'go')
  await core.coordinator.idle()
  stage.provider.expectDone()
  expect(met.count).toBe(3)
  expect(stage.provider.requests).toHaveLength(3)
  expect((await stage.payloads(s, 'session.parked')).map(({ reason }) => reason)).toEqual([
    expect.stringContaining('cut off 3 times'),
  ])
  expect(await stage.claim(s)).toBeNull()
  // Woken again it stays where it is: a person has to say go on.
  core.coordinator.wake(s)
  await core.coordinator.idle()
  expect(stage.provider.requests).toHaveLength(3)
})

it('PROMISE-062: what the database refuses of that too is left to the lease, and a scan sets it aside', async () => {
  const lines: Record<string, unknown>[] = []
  const { core, recovery } = await stage.start({ log: (line) => lines.push(line) })
  const s = await stage.session()
  const fault = await refuseEvents(stage, s, 'execution.settled')
  stage.provider.script(said())
  await prompt(core, s, 'go')
  await core.coordinator.idle()
  expect(await fault.fired()).toBeGreaterThan(1)
  expect(await stage.claim(s)).toMatchObject({ phase: 'SAFE', owner: core.owner })
  expect(core.leases.held()).toEqual([])
  expect(lines.map(({ msg }) => String(msg)).filter((msg) => msg.includes('could not be settled'))).toHaveLength(1)
  await stage.database.shiftClock(60_000)
  expect(await recovery.scan()).toMatchObject({ quarantined: 1 })
  await fault.lift()
})

it('PROMISE-063: an interrupt whose cleanup fails is brought to its end for whoever asked, at once', async () => {
  const { core } = await stage.start()
  const s = await stage.session()
  const met = atAppend(core, hasEvent('step.interrupted'), (go, nth) => (nth === 1 ? out() : go()))
  let open = () => {}
  const held = new Promise<void>((resolve) => {
    open = resolve
  })
  stage.provider.script(reply(text('half'), wait(held), finish()))
  await prompt(core, s, 'go')
  await stage.logged(s, 'text.started')
  expect(await interrupt(core, s)).toMatchObject({ type: 'InterruptSessionPayload', interrupted: true })
  open()
  await core.coordinator.idle()
  expect(met.count).toBe(2)
  expect((await stage.payloads(s, 'execution.settled')).map(({ outcome }) => outcome)).toEqual(['INTERRUPTED'])
  expect(await stage.claim(s)).toBeNull()
})
