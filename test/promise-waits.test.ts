// Nothing in a drain waits without a bound: what each waits for is known, and a wait that is too old is told, counted and ended.
import { expect, it } from 'vitest'
import { createLog } from '../src/log.ts'
import { createMetrics } from '../src/metrics.ts'
import { createHold, reading } from '../src/runner/hold.ts'
import { createWaits, databaseWaitMs, OverdueWait } from '../src/runner/waits.ts'
import { finish, gate, reply, text, toolCall, wait } from './support/provider.ts'
import { probe, prompt, useStage } from './support/stage.ts'

function watched() {
  const lines: Record<string, unknown>[] = []
  const log = createLog('info', { write: (line: string) => void lines.push(JSON.parse(line)) })
  const metrics = createMetrics()
  let at = 0
  const waits = createWaits({ log, overdueWaits: metrics.overdueWaits, now: () => at })
  waits.close()
  /** Lets time pass with a look every second, as the timer makes one. */
  const pass = (ms: number) => {
    for (let left = ms; left > 0; left -= 1000) {
      at += Math.min(left, 1000)
      waits.look()
    }
  }
  const jump = (ms: number) => {
    at += ms
    waits.look()
  }
  return { lines, metrics, waits, pass, jump }
}

const never = () => new Promise<never>(() => {})

it('PROMISE-018: a read that never answers fails at its bound; the log names wait, session and age once, and a metric counts it', async () => {
  const { lines, metrics, waits, pass } = watched()
  const hold = createHold('ses_waits', 'exe_.1', 'own_.me', waits)
  const read = reading(hold, never).catch((thrown: unknown) => thrown)
  pass(databaseWaitMs)
  expect(waits.size()).toEqual({ waits: 1, overdue: 0 })
  pass(3000)
  expect(await read).toBeInstanceOf(OverdueWait)
  expect(lines).toMatchObject([
    {
      level: 'error',
      sessionId: 'ses_waits',
      executionId: 'exe_.1',
      what: 'read',
      mayMs: databaseWaitMs,
      waitedMs: databaseWaitMs + 1000,
    },
  ])
  expect(await metrics.text()).toContain('holdfast_overdue_waits_total{what="read"} 1')
})

it('PROMISE-018: a wait that is only told goes on, and its end is told too; one that ends in time is neither', async () => {
  const { lines, waits, pass } = watched()
  const done = waits.begin({ sessionId: 'ses_waits' }, 'place', 5000)
  expect(await waits.during({ sessionId: 'ses_waits' }, 'append', 1000, Promise.resolve('in time'))).toBe('in time')
  await expect(
    waits.during({ sessionId: 'ses_waits' }, 'append', 1000, Promise.reject(new Error('its own'))),
  ).rejects.toThrow('its own')
  pass(7000)
  expect(waits.size()).toEqual({ waits: 1, overdue: 1 })
  done()
  expect(lines.map(({ msg }) => msg)).toEqual([
    'a session waits for longer than it may',
    'a wait that was overdue has ended',
  ])
  expect(waits.size()).toEqual({ waits: 0, overdue: 0 })
})

it('PROMISE-019: time in which the whole process stood still makes no wait overdue', () => {
  const { lines, waits, pass, jump } = watched()
  waits.begin({ sessionId: 'ses_waits' }, 'append', 60_000)
  pass(2000)
  jump(3_600_000)
  pass(20_000)
  expect(lines).toEqual([])
  pass(60_000)
  expect(lines).toHaveLength(1)
})

const stage = useStage()

it('PROMISE-018: what a running session waits for is known while it waits, and nothing is left when it rests', async () => {
  const look = probe('look')
  const { core } = await stage.start({ tools: [look.tool] })
  const s = await stage.session()
  const names: string[] = []
  const { begin, during } = core.waits
  core.waits.begin = (by, what, mayMs) => {
    names.push(what)
    return begin(by, what, mayMs)
  }
  core.waits.during = (by, what, mayMs, waited) => {
    names.push(what)
    return during(by, what, mayMs, waited)
  }
  const open = gate()
  stage.provider.script(
    reply(text('a'), toolCall('look', {}), wait(open.promise), finish('tool_calls')),
    reply(text('ok'), finish()),
  )
  await prompt(core, s)
  open.open()
  const run = await look.run()
  expect(core.waits.size().waits).toBeGreaterThan(0)
  run.finish()
  await core.coordinator.idle()
  expect(new Set(names)).toEqual(new Set(['liveness lock', 'read', 'append', 'live text', 'request', 'tool']))
  await expect.poll(() => core.waits.size()).toEqual({ waits: 0, overdue: 0 })
})
