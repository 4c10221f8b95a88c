// What a client has built from events is what a query shows, at every point where a session rests, the wait for a person among them; and
// no number that is stored takes an answer from anybody (points 14 and 15 of the promise).
import { print } from 'graphql'
import { afterEach, expect, it } from 'vitest'
import {
  emptyView,
  type Item,
  reduce,
  SessionLogDocument,
  SessionSnapshotDocument,
  type SessionView,
  viewOfSnapshot,
} from '../src/client/index.ts'
import { event } from '../src/events.ts'
import { compactSession } from '../src/runner/compact.ts'
import { boundOutput } from '../src/runner/tools/output.ts'
import { verifySession } from '../src/verify.ts'
import { approve, asked, overHttp, resetTime, scanned, waiting } from './support/asking.ts'
import { eventually, type TestCore } from './support/core.ts'
import { onDatabase } from './support/faults.ts'
import { finish, hang, reply, status, text, toolCall } from './support/provider.ts'
import { interrupt, newId, probe, prompt, tenant, useStage } from './support/stage.ts'

const stage = useStage()
afterEach(() => resetTime(stage))

const spent = { input: 100, output: 20, reasoning: 7, cached: 40 }
const usage = { inputTokens: 100, outputTokens: 20, reasoningTokens: 7, cachedInputTokens: 40 }
const calling = () => reply(text('I will'), toolCall('deploy', {}, 'call_d'), finish('tool_calls', spent))

/** Compares what the events come to with what a query shows; gives the view. */
const compared = (core: TestCore, id: string): Promise<SessionView> =>
  overHttp(core, async (ask) => {
    const shown = await ask(print(SessionSnapshotDocument), { id, last: 200, inputs: null })
    const log = await ask(print(SessionLogDocument), { id, first: 200 })
    expect([shown.errors, log.errors]).toEqual([undefined, undefined])
    const view = (log.data.session.events as Item[]).reduce<SessionView>(reduce, emptyView(id))
    expect(view).toEqual(viewOfSnapshot(shown.data.session))
    return view
  })

const lastStep = ({ messages }: SessionView) => messages.findLast(({ type }) => type === 'AssistantMessage')

it('PROMISE-145: a view built from events is the query while a call waits, after its interrupt, after an end, a failure and a compaction', async () => {
  const deploy = probe('deploy', { needsApproval: true })
  const a = await stage.start({ tools: [deploy.tool] })
  const s = await stage.session()
  const idle = () => a.core.coordinator.idle()

  stage.provider.script(calling())
  await prompt(a.core, s)
  await waiting(stage, a, s)
  expect(lastStep(await compared(a, s))).toMatchObject({ status: 'RUNNING', finish: 'tool-calls', usage })

  await interrupt(a.core, s)
  expect(lastStep(await compared(a, s))).toMatchObject({ status: 'INTERRUPTED', finish: 'tool-calls', usage })

  stage.provider.script(reply(text('half'), hang()))
  await prompt(a.core, s)
  await stage.logged(s, 'text.started', 2)
  await interrupt(a.core, s)
  expect(lastStep(await compared(a, s))).toMatchObject({ status: 'INTERRUPTED', finish: null })

  stage.provider.script(reply(text('done'), finish('stop', spent)), status(401), reply(text('a summary'), finish()))
  await prompt(a.core, s)
  await idle()
  expect(lastStep(await compared(a, s))).toMatchObject({ status: 'ENDED', finish: 'stop', usage })
  await prompt(a.core, s)
  await idle()
  expect(lastStep(await compared(a, s))).toMatchObject({ status: 'FAILED', finish: null })
  await compactSession(a.core, tenant, { sessionId: s, messageId: newId('msg_') })
  await stage.logged(s, 'compaction.ended')
  await idle()
  await compared(a, s)
})

it('PROMISE-146: and after a recovery of a step whose stream had ended', async () => {
  const deploy = probe('deploy', { needsApproval: true })
  const a = await stage.start({ tools: [deploy.tool] })
  const s = await stage.session()
  stage.provider.script(calling())
  await prompt(a.core, s)
  await waiting(stage, a, s)
  await approve(a.core, await asked(stage, s))
  await deploy.run()
  await a.kill()
  const b = await stage.start({ tools: [deploy.tool] })
  stage.provider.script(reply(text('on'), finish()))
  await scanned(stage, b)
  await eventually('the recovery', async () => (await stage.types(s)).includes('step.recovered'))
  await b.core.coordinator.idle()
  const recovered = await compared(b, s)
  expect(recovered.messages.filter((message) => message.type === 'AssistantMessage').at(-2)).toMatchObject({
    status: 'FAILED',
    finish: 'tool-calls',
    usage,
  })
})

it('PROMISE-147: an output of exactly 2000 lines is not cut for its final newline; 2001 lines are', () => {
  const lines = (count: number) => Array.from({ length: count }, (_, n) => `line ${n + 1}\n`).join('')
  expect(boundOutput(lines(2000))).toBe(lines(2000))
  const cut = boundOutput(lines(2001)) as string
  expect(cut).toMatch(/line 1000\n\[\.\.\. \d+ bytes, 1 lines left out \.\.\.\]\nline 1002\n/)
  expect(cut.endsWith('line 2001\n')).toBe(true)
})

it('PROMISE-150: counts beyond what a number keeps, stored by an earlier version, take no answer from anybody', async () => {
  const a = await stage.start()
  const odd = await stage.session()
  const other = await stage.session({ title: 'fine' })
  const messageId = 'msg_.odd'
  const told = { inputTokens: 1e17, outputTokens: 2, reasoningTokens: 0, cachedInputTokens: 2 ** 60 }
  const most = Number.MAX_SAFE_INTEGER
  const executionId = 'exe_.odd'
  for (const events of [
    [
      event('execution.started', { executionId }),
      event('step.started', { messageId, model: 'demo/echo', executionId }),
    ],
    [event('step.ended', { messageId, finish: 'stop', usage: told, continues: false })],
  ])
    await a.core.eventLog.append({ sessionId: odd, events })
  // As a row says it, and as the log does, which keeps what it was told.
  expect(await verifySession(stage.db, odd)).toMatchObject({ consistent: true })
  const read = () =>
    overHttp(a, async (ask) => {
      const query = `{ sessions(first: 50) { edges { node { id usage { inputTokens cachedInputTokens }
        messages(last: 5) { edges { node { ... on AssistantMessage { usage { inputTokens cachedInputTokens } } } } }
        events(first: 50) { ... on StepEnded { usage { inputTokens cachedInputTokens } } } } } } }`
      const { data, errors } = await ask(query)
      expect(errors).toBeUndefined()
      return data.sessions.edges.map(({ node }: { node: { id: string } }) => node)
    })
  const shown = { usage: { inputTokens: most, cachedInputTokens: most } }
  const expectShown = async () => {
    const nodes = await read()
    expect(nodes.map(({ id }: { id: string }) => id)).toContain(other)
    expect(nodes.find(({ id }: { id: string }) => id === odd)).toMatchObject({
      ...shown,
      messages: { edges: [{ node: shown }] },
      events: expect.arrayContaining([expect.objectContaining(shown)]),
    })
  }
  await expectShown()
  await onDatabase(
    stage.database.url,
    `SET session_replication_role = replica;
     UPDATE "Session" SET "inputTokens" = 1e17, "cachedInputTokens" = 9223372036854775807 WHERE id = '${odd}';
     UPDATE "Message" SET "inputTokens" = 1e17, "cachedInputTokens" = 9223372036854775807 WHERE id = '${messageId}'`,
  )
  await expectShown()
  // One more step: the sum neither leaves its column nor refuses the end of the step.
  const next = { ...told, inputTokens: most }
  await a.core.eventLog.append({
    sessionId: odd,
    events: [event('step.started', { messageId: 'msg_.next', model: 'demo/echo', executionId })],
  })
  const end = event('step.ended', { messageId: 'msg_.next', finish: 'stop', usage: next, continues: false })
  await onDatabase(stage.database.url, `UPDATE "Session" SET "inputTokens" = "inputTokens" WHERE id = '${odd}'`)
  expect(await a.core.eventLog.append({ sessionId: odd, events: [end] })).toMatchObject({ kind: 'appended' })
  await onDatabase(
    stage.database.url,
    `UPDATE "Message" SET "inputTokens" = ${most}, "cachedInputTokens" = ${most} WHERE id = '${messageId}'`,
  )
  expect(await verifySession(stage.db, odd)).toMatchObject({ consistent: true })
})
