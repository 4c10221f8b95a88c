import { expect, it } from 'vitest'
import { interruptSession } from '../src/runner/interrupt.ts'
import { testClock } from './support/clock.ts'
import {
  admit,
  atRest,
  claimOf,
  events,
  eventually,
  newSession,
  tenant,
  typesOf,
  usersIn,
  useStage,
} from './support/prompt-stage.ts'
import { finish, gate, hang, reply, status, text, wait } from './support/provider.ts'

// A drain that only waits, in a back-off, has no place among those that run.

const stage = useStage()
const said = (word: string) => reply(text(word), finish())
const asked = () => stage.provider.requests.map(usersIn)

it('DRAIN-06: a session in its back-off gives its place to others, queues for one again, and never runs beyond the bound', async () => {
  const clock = testClock()
  // The silence of the others is none: only the back-off's time passes.
  const a = await stage.start({ config: { maxDrains: 1, idleMs: 3_600_000 }, clock })
  const [limited, first, second] = [await newSession(a), await newSession(a), await newSession(a)]
  const [one, two] = [gate(), gate()]
  const refused = status(429, {}, { 'retry-after': '600' })
  stage.provider.script(
    refused,
    reply(wait(one.promise), text('A'), finish()),
    reply(wait(two.promise), text('B'), finish()),
    said('C'),
  )
  await admit(a, limited, 'limited')
  const drains = async () => (await a.core.metrics.text()).match(/holdfast_drains_in_progress (\d+)/)![1]
  await eventually('its back-off', async () => (await typesOf(a, limited)).includes('step.retry_scheduled'))
  await eventually('its place to be free', async () => (await drains()) === '0')
  expect(a.core.coordinator.size()).toEqual({ running: 1, queued: 0 })
  await admit(a, first, 'first')
  await stage.provider.request(1)
  await admit(a, second, 'second')
  // Its wait is over, and the place is taken: it goes behind the one that queued before it.
  await clock.advance(900_000)
  expect(a.core.coordinator.size()).toEqual({ running: 2, queued: 2 })
  expect(a.core.coordinator.othersWait()).toBe(true)
  expect(await drains()).toBe('1')
  one.open()
  await stage.provider.request(2)
  expect(await claimOf(a, limited)).toMatchObject({ phase: 'CONTINUE' })
  expect(stage.provider.requests).toHaveLength(3)
  two.open()
  await atRest(a)
  expect(asked()).toEqual([['limited'], ['first'], ['second'], ['limited']])
  for (const sessionId of [limited, first, second])
    expect((await events(a, sessionId, 'execution.settled')).map(({ payload }) => payload.outcome)).toEqual([
      'SUCCEEDED',
    ])
  expect(await drains()).toBe('0')
})

it.each(['in its back-off', 'while it waits for a place'])(
  'DRAIN-06: interrupt and shutdown end a session %s at once, though there is no place',
  async (when) => {
    const clock = testClock()
    // The silence of the others is none: only the back-off's time passes.
    const a = await stage.start({ config: { maxDrains: 1, idleMs: 3_600_000 }, clock })
    const [stopped, left, busy] = [await newSession(a), await newSession(a), await newSession(a)]
    for (const sessionId of [stopped, left]) {
      stage.provider.script(status(503))
      await admit(a, sessionId, 'limited')
      await eventually('its back-off', async () => (await typesOf(a, sessionId)).includes('step.retry_scheduled'))
      await clock.armed()
    }
    stage.provider.script(hang())
    await admit(a, busy, 'busy')
    await stage.provider.request(2)
    if (when !== 'in its back-off') {
      await clock.advance(5000)
      expect(a.core.coordinator.size()).toEqual({ running: 3, queued: 2 })
    }
    expect(await interruptSession(a.core, tenant, { sessionId: stopped })).toMatchObject({ interrupted: true })
    expect((await events(a, stopped, 'execution.settled')).map(({ payload }) => payload.outcome)).toEqual([
      'INTERRUPTED',
    ])
    await eventually('its end', async () => a.core.coordinator.size().running === 2)
    // The one that waits leaves as soon as the process stops; the one that runs keeps its grace.
    const stopping = a.stop()
    await eventually('the other to leave', async () => a.core.coordinator.size().running === 1)
    expect(stage.provider.requests[2]!.aborted).toBe(false)
    expect(a.core.leases.held().map(({ sessionId }) => sessionId)).toContain(left)
    for (const hold of a.core.leases.held()) hold.end('shutdown')
    await stopping
    expect(await claimOf(await stage.start(), left)).toMatchObject({ phase: 'CONTINUE' })
  },
)
