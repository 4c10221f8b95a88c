// Discarding what was set aside continues nothing: neither it, nor what an earlier recovery left to be taken up.
import { expect, it } from 'vitest'
import { event } from '../src/events.ts'
import { continuationIdOf, newExecutionId, newMessageId, newQuarantineId } from '../src/ids.ts'
import { resolveQuarantine } from '../src/recovery/quarantine.ts'
import { takeOver } from '../src/recovery/takeover.ts'
import { inStep, prompt, quiet } from './support/cut-off.ts'
import { tenant, useStage } from './support/stage.ts'

const stage = useStage()

it('PROMISE-110: DISCARD of an execution that was cut off before it promoted withdraws the continuation it was to take up, and nothing else', async () => {
  const { core, recovery } = await stage.start({ config: { livenessGraceMs: 60_000 } })
  const woken = quiet(core)
  const cut = await inStep(core)
  const { sessionId } = cut
  expect(await takeOver(core, sessionId, cut.executionId, { kind: 'expired' })).toBe('recovered')
  const continuation = continuationIdOf(cut.executionId)
  // Another process was about to take it up, and was gone.
  const executionId = newExecutionId()
  await core.eventLog.append({
    sessionId,
    events: [event('execution.started', { executionId })],
    claim: { kind: 'acquire', executionId, owner: 'own_.gone', leaseMs: -1000 },
  })
  const quarantineId = newQuarantineId()
  const admitted = newMessageId()
  const opened = { quarantineId, executionId, quarantineKind: 'EXECUTION' as const, reason: 'odd' }
  await cut.append([event('quarantine.opened', opened), prompt(admitted, false)])
  const { length } = await cut.events()

  await resolveQuarantine(core, tenant, { id: quarantineId, action: 'DISCARD' })
  expect(await cut.types(length)).toEqual(['quarantine.resolved', 'prompt.withdrawn', 'execution.settled'])
  expect(await core.db.input.findMany({ where: { sessionId, state: { not: 'PROMOTED' } } })).toMatchObject([
    { id: continuation, state: 'WITHDRAWN', wakePending: false },
    { id: admitted, state: 'PENDING' },
  ])
  expect(await core.db.recovery.findMany({ where: { sessionId } })).toMatchObject([{ wakePending: false }])
  woken.length = 0
  expect(await recovery.scan()).toMatchObject({ quarantined: 0, woken: 0 })
  expect(woken).toEqual([])
})

it('PROMISE-286: DISCARD of an execution whose step is open ends that step and no more: what people admitted since is still to run', async () => {
  const { core } = await stage.start({ config: { livenessGraceMs: 60_000 } })
  quiet(core)
  const cut = await inStep(core)
  const { sessionId, executionId, messageId } = cut
  // Its step was promoted for, and is owed until it ends.
  expect(await core.db.session.findUnique({ where: { id: sessionId } })).toMatchObject({ stepOwed: true })
  const quarantineId = newQuarantineId()
  const admitted = newMessageId()
  const opened = { quarantineId, executionId, quarantineKind: 'EXECUTION' as const, reason: 'odd' }
  await cut.append([event('quarantine.opened', opened), prompt(admitted)])
  const { length } = await cut.events()

  await resolveQuarantine(core, tenant, { id: quarantineId, action: 'DISCARD' })
  expect(await cut.types(length)).toEqual(['quarantine.resolved', 'step.failed', 'execution.settled'])
  expect(await core.db.message.findUnique({ where: { id: messageId } })).toMatchObject({ status: 'FAILED' })
  expect(await core.db.input.findUnique({ where: { id: admitted } })).toMatchObject({
    state: 'PENDING',
    wakePending: true,
  })
})
