import { expect, it } from 'vitest'
import { realClock } from '../src/runner/clock.ts'
import { sessionStream } from '../src/session-stream.ts'
import { approve, asked, guarded } from './support/asking.ts'
import { eventually } from './support/core.ts'
import { cutOff } from './support/cut-off.ts'
import { instant, interrupt, prompt, useStage } from './support/stage.ts'

const stage = useStage()

it('DB-04: on one connection tools, approvals, interrupts, recovery and readers of many sessions get by at once, and all come to rest', async () => {
  const look = instant('look')
  const deploy = guarded('deploy')
  const started = await stage.start({
    config: { dbPool: 1, scanMs: 50, pollMs: 50, livenessGraceMs: 200 },
    tools: [look.tool, deploy.tool],
    recovers: true,
    clock: realClock,
  })
  const { core } = started
  const many = (words: string) =>
    Promise.all(
      [1, 2, 3].map(async () => {
        const s = await stage.session({ model: 'demo/echo' })
        const following = sessionStream({ ...core, clock: undefined } as never, { sessionId: s, after: 0 })
        const told: string[] = []
        const reading = (async () => {
          for await (const item of following) {
            told.push(item.typename)
            if (item.typename === 'ExecutionSettled' && item.outcome !== 'WAITING') return
          }
        })()
        await prompt(core, s, words)
        return { s, told, reading }
      }),
    )
  const [looking, asking, stalling, cut] = await Promise.all([
    many('/tool look {}'),
    many('/tool deploy {}'),
    many('/stall'),
    Promise.all([1, 2, 3].map(() => cutOff(core, { model: 'demo/echo' }))),
  ])
  await Promise.all([
    ...asking.map(async ({ s }) => {
      expect(await approve(core, await asked(stage, s))).toMatchObject({ type: 'InteractionPayload' })
    }),
    ...stalling.map(async ({ s }) => {
      await stage.logged(s, 'step.started')
      expect(await interrupt(core, s)).toMatchObject({ interrupted: true })
    }),
    ...cut.map(({ types }) => eventually('the end', async () => (await types()).includes('execution.settled'))),
    ...[...looking, ...asking, ...stalling].map(({ reading }) => reading),
  ])
  await core.coordinator.idle()
  const outcomes = (which: { s: string }[]) =>
    Promise.all(
      which.map(async ({ s }) => (await stage.payloads(s, 'execution.settled')).map(({ outcome }) => outcome).at(-1)),
    )
  expect(await outcomes(looking)).toEqual(['SUCCEEDED', 'SUCCEEDED', 'SUCCEEDED'])
  expect(await outcomes(asking)).toEqual(['SUCCEEDED', 'SUCCEEDED', 'SUCCEEDED'])
  expect(await outcomes(stalling)).toEqual(['INTERRUPTED', 'INTERRUPTED', 'INTERRUPTED'])
  for (const { types } of cut) expect(await types()).toContain('step.recovered')
  expect([look.ran.length, deploy.ran.length]).toEqual([3, 3])
  expect(await stage.db.claim.count()).toBe(0)
  expect(await stage.db.input.count({ where: { wakePending: true } })).toBe(0)
  expect((await started.recovery.scan()).failed).toBe(0)
})
