import { afterEach, expect, it } from 'vitest'
import { recoveryIdOf } from '../src/ids.ts'
import { admitPrompt } from '../src/runner/admit.ts'
import { wake } from '../src/runner/core.ts'
import { approve, asked, calling, guarded, said, waiting } from './support/asking.ts'
import { eventually } from './support/core.ts'
import { cutOff } from './support/cut-off.ts'
import { type LossyWire, lossyWire } from './support/lost-reply.ts'
import { newId, prompt, tenant, useStage } from './support/stage.ts'

// The reply to a COMMIT is lost on the wire: what was done is done once, whoever repeats it.

const stage = useStage()
let wire: LossyWire | undefined
afterEach(async () => {
  await wire?.close()
  wire = undefined
})

async function startLossy(options: Parameters<typeof stage.start>[0] = {}) {
  wire = await lossyWire(stage.database.url)
  const started = await stage.start({ url: wire.url, ...options })
  return { ...started, wire }
}

it('DB-03: admission: repeated after a lost reply it is one input, one event, one run', async () => {
  const { core, wire } = await startLossy()
  const sessionId = await stage.session()
  stage.provider.script(said())
  const messageId = newId('msg_')
  const request = { sessionId, messageId, text: 'hi' }
  wire.lose(['holdfast_append', messageId, 'prompt.admitted'])
  expect(await admitPrompt(core, tenant, request)).toMatchObject({ outcome: 'ADMITTED' })
  expect(wire.lost()).toBe(1)
  // The client never got the answer, and asks again; here and at another process.
  const other = await stage.start()
  for (const each of [core, other.core])
    expect(await admitPrompt(each, tenant, request)).toMatchObject({
      type: 'PromptAdmission',
      executionRequested: false,
    })
  await stage.logged(sessionId, 'execution.settled')
  await core.coordinator.idle()
  expect((await stage.types(sessionId)).filter((type) => type.startsWith('prompt.'))).toEqual([
    'prompt.admitted',
    'prompt.promoted',
  ])
  expect(await stage.db.input.count({ where: { sessionId } })).toBe(1)
  expect(stage.provider.requests).toHaveLength(1)
})

it('DB-03: promotion and step.started: found to have been committed, one promotion and one request', async () => {
  const { core, wire } = await startLossy()
  const sessionId = await stage.session()
  stage.provider.script(said())
  wire.lose(['holdfast_append', sessionId, 'prompt.promoted'])
  await prompt(core, sessionId)
  await stage.logged(sessionId, 'execution.settled')
  expect(wire.lost()).toBe(1)
  await core.coordinator.idle()
  expect((await stage.commits(sessionId)).slice(0, 4)).toEqual([
    ['session.created'],
    ['prompt.admitted'],
    ['execution.started'],
    ['prompt.promoted', 'step.started'],
  ])
  expect(await stage.payloads(sessionId, 'prompt.promoted')).toHaveLength(1)
  expect(await stage.payloads(sessionId, 'step.ended')).toHaveLength(1)
  expect(stage.provider.requests).toHaveLength(1)
})

it('DB-03: decision: repeated after a lost reply it is the same decision, and the tool runs once', async () => {
  const { tool, ran } = guarded('deploy')
  const started = await startLossy({ tools: [tool] })
  const { core, wire } = started
  const sessionId = await stage.session()
  stage.provider.script(calling('deploy'), said())
  await prompt(core, sessionId)
  const interactionId = await asked(stage, sessionId)
  await waiting(stage, started, sessionId)
  wire.lose(['holdfast_append', interactionId, 'interaction.settled'])
  const first = await approve(core, interactionId)
  expect(wire.lost()).toBe(1)
  expect(first).toMatchObject({ type: 'InteractionPayload' })
  expect(await approve(core, interactionId)).toEqual(first)
  await eventually('the end', async () => (await stage.payloads(sessionId, 'execution.settled')).length === 2)
  expect(await stage.payloads(sessionId, 'interaction.settled')).toHaveLength(1)
  expect(await stage.payloads(sessionId, 'tool.started')).toHaveLength(1)
  expect(ran).toHaveLength(1)
})

it('DB-03: recovery: a takeover whose COMMIT is not answered is not decided a second time', async () => {
  const { core, recovery, wire } = await startLossy({ config: { livenessGraceMs: 60_000 } })
  const cut = await cutOff(core)
  stage.provider.script(said())
  wire.lose(['holdfast_append', cut.sessionId, 'step.recovered'])
  const first = await recovery.scan()
  expect(wire.lost()).toBe(1)
  expect(first).toMatchObject({ failed: 1, taken: 0 })
  await recovery.scan()
  wake(core, cut.sessionId)
  await eventually('the end', async () => (await cut.types()).includes('execution.settled'))
  await core.coordinator.idle()
  const types = await cut.types()
  expect(types.filter((type) => type === 'step.recovered')).toHaveLength(1)
  expect(types).not.toContain('quarantine.opened')
  expect(await stage.db.recovery.findMany({ where: { sessionId: cut.sessionId } })).toMatchObject([
    { id: recoveryIdOf(cut.executionId), wakePending: false },
  ])
  expect(await stage.db.input.count({ where: { sessionId: cut.sessionId, state: 'PROMOTED' } })).toBe(2)
  expect(stage.provider.requests).toHaveLength(1)
})
