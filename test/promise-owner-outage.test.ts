// What the database does not answer for a moment says nothing about a session: its owner asks again for as long as it waits with an append,
// so that no interrupt is left undone and nothing is set aside for a person.
import { expect, it } from 'vitest'
import type { Db } from '../src/db.ts'
import { compactSession } from '../src/runner/compact.ts'
import type { Core } from '../src/runner/core.ts'
import { said } from './support/asking.ts'
import { atAppend, hasEvent } from './support/at-append.ts'
import { eventually } from './support/core.ts'
import { quiet } from './support/cut-off.ts'
import { fault } from './support/faults.ts'
import { finish, hang, reply, text } from './support/provider.ts'
import { interrupt, newId, prompt, tenant, useStage } from './support/stage.ts'

const stage = useStage()
/** More often than any read is tried that has no patience. */
const tries = 9

const unreachable = () => Promise.reject(Object.assign(new Error('injected'), { code: 'P1001' }))

/** The reads of this core that hold these words are not answered, so many times. */
function silenced(core: Core, words: string) {
  const met = { count: 0 }
  core.db = new Proxy(core.db, {
    get: (target, property) =>
      property !== '$queryRaw'
        ? Reflect.get(target, property)
        : (...sql: Parameters<Db['$queryRaw']>) =>
            [sql[0]].flat().join(' ').includes(words) && ++met.count <= tries
              ? unreachable()
              : target.$queryRaw(...sql),
  }) as Db
  return met
}

/** This core's first looks at why its fence failed are not answered. */
function unanswered(core: Core) {
  const { examine } = core.leases
  const met = { count: 0 }
  core.leases.examine = (hold) => (++met.count <= 2 ? unreachable() : examine(hold))
  return met
}

/** It was interrupted to the end by its own process, and goes on with what is asked next. */
async function expectInterrupted(s: string) {
  expect((await stage.payloads(s, 'execution.settled')).at(-1)).toMatchObject({ outcome: 'INTERRUPTED' })
  expect(await stage.claim(s)).toBeNull()
  expect(await stage.types(s)).not.toContain('quarantine.opened')
}

it('PROMISE-064: an interrupt is cleaned up by its owner, however often it has to ask what is open', async () => {
  const errors: unknown[] = []
  const { core } = await stage.start({ log: (line) => void (line.level === 'error' && errors.push(line.msg)) })
  const s = await stage.session()
  stage.provider.script(reply(text('half'), hang()))
  await prompt(core, s)
  await stage.logged(s, 'text.started')
  const met = silenced(core, `n.state = 'OPEN'), '[]') AS interactions`)
  expect(await interrupt(core, s)).toMatchObject({ type: 'InterruptSessionPayload', interrupted: true })
  await core.coordinator.idle()
  expect(met.count).toBeGreaterThan(tries)
  await expectInterrupted(s)
  expect(errors).toEqual([])
})

it('PROMISE-065: the claim of a failed drain is settled by its own process when the database can write again', async () => {
  const { core } = await stage.start()
  const s = await stage.session()
  const failed = atAppend(core, hasEvent('step.ended'), (go, nth) =>
    nth === 1 ? Promise.reject(new Error('out of the blue')) : go(),
  )
  const full = await fault(stage.database.url, {
    when: `NEW."sessionId" = '${s}' AND NEW.type = 'step.recovered'`,
    sqlState: '53100',
    times: tries,
  })
  stage.provider.script(said('one'), said('two'))
  await prompt(core, s)
  await core.coordinator.idle()
  expect(failed.count).toBeGreaterThan(0)
  expect(await full.fired()).toBeGreaterThan(tries)
  await full.lift()
  stage.provider.expectDone()
  expect((await stage.payloads(s, 'execution.settled')).at(-1)).toMatchObject({ outcome: 'SUCCEEDED' })
  expect(await stage.claim(s)).toBeNull()
})

it('PROMISE-065: and is let go of once it is lost', async () => {
  const { core } = await stage.start()
  const s = await stage.session()
  atAppend(core, hasEvent('step.ended'), () => Promise.reject(new Error('out of the blue')))
  let asked = 0
  core.settleFailedDrain = (hold) => {
    if (++asked === 2) hold.end('lost')
    return unreachable()
  }
  stage.provider.script(said())
  await prompt(core, s)
  await core.coordinator.idle()
  expect(asked).toBe(2)
  expect(core.leases.held()).toEqual([])
})

it.each(['step', 'compaction'] as const)(
  'PROMISE-066: an owner whose fence failed in a %s asks why until it is answered, and cleans an interrupt up',
  async (what) => {
    const [a, b] = [await stage.start(), await stage.start()]
    quiet(b.core)
    const s = await stage.session()
    if (what === 'compaction') {
      stage.provider.script(said())
      await prompt(a.core, s)
      await a.core.coordinator.idle()
    }
    const met = unanswered(a.core)
    const end = what === 'step' ? 'step.ended' : 'compaction.ended'
    let interrupted: Promise<unknown> = Promise.resolve()
    atAppend(a.core, hasEvent(end), async (go, nth) => {
      if (nth === 1) {
        interrupted = interrupt(b.core, s)
        await eventually('CANCELLING', async () => (await stage.claim(s))?.phase === 'CANCELLING')
      }
      return go()
    })
    stage.provider.script(reply(text('whole'), finish()))
    if (what === 'step') await prompt(a.core, s)
    else await compactSession(a.core, tenant, { sessionId: s, messageId: newId('msg_') })
    await a.core.coordinator.idle()
    await eventually('an end', async () => (await stage.claim(s)) === null)
    expect(met.count).toBeGreaterThan(2)
    expect(await interrupted).toMatchObject({ interrupted: true })
    await expectInterrupted(s)
  },
)
