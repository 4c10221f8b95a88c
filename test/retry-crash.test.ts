// A process that dies while a retry waits (design sections 6, 9 and 11).
import { afterEach, describe, expect, it } from 'vitest'
import { commitsSince, resetTime, scanned, statusIn } from './support/asking.ts'
import { eventually, type TestCore } from './support/core.ts'
import {
  cut,
  errorBody,
  finish,
  finishing,
  gate,
  reply,
  type Step,
  status,
  text,
  toolCall,
  wait,
} from './support/provider.ts'
import { instant, prompt, spoken, useStage } from './support/stage.ts'

const stage = useStage()
afterEach(() => resetTime(stage))

/** A session whose process dies in the back-off that follows this reply. */
async function diesInBackOff(options: Parameters<typeof stage.start>[0], ...first: Step[]) {
  const a = await stage.start(options)
  const s = await stage.session()
  stage.provider.script(first)
  await prompt(a.core, s, 'hi')
  const notice = await stage.logged(s, 'step.retry_scheduled')
  await stage.clock.armed()
  await a.kill()
  expect(await stage.claim(s)).toMatchObject({ phase: 'CONTINUE', owner: a.core.owner })
  return { s, notice, commits: (await stage.commits(s)).length }
}

const running = (s: string) => stage.db.message.count({ where: { sessionId: s, status: 'RUNNING' } })

/** The rest of the work, in one new execution of the survivor. */
async function goesOn(survivor: TestCore, s: string): Promise<void> {
  await eventually('the work to go on', async () =>
    (await stage.payloads(s, 'execution.settled')).some(({ outcome }) => outcome === 'SUCCEEDED'),
  )
  await survivor.core.coordinator.idle()
  stage.provider.expectDone()
  expect(await stage.payloads(s, 'execution.started')).toHaveLength(2)
  expect(await stage.payloads(s, 'step.recovered')).toMatchObject([{ phase: 'CONTINUE', handover: false }])
  expect(await running(s)).toBe(0)
  expect(await statusIn(stage, survivor, s)).toBe('IDLE')
  // Neither another scan nor the time of the old back-off makes anything more of it.
  await scanned(stage, survivor)
  await stage.clock.advance(60_000)
  await survivor.core.coordinator.idle()
  stage.provider.expectDone()
}

describe('a process that dies in a back-off', () => {
  it('RETRY-12: before output: the open step ends with its last error, still owed, and the work goes on in one new execution', async () => {
    const { s, notice, commits } = await diesInBackOff({}, ...status(503, errorBody(null, 'overloaded')))
    expect(await running(s)).toBe(1)
    const b = await stage.start()
    stage.provider.script(reply(text('at last'), finish()))
    expect(await scanned(stage, b)).toMatchObject({ taken: 1, quarantined: 0 })
    await goesOn(b, s)
    expect((await commitsSince(stage, s, commits)).slice(0, 2)).toEqual([
      ['step.failed', 'step.recovered'],
      ['execution.started'],
    ])
    const failed = await stage.payloads(s, 'step.failed')
    expect(failed).toMatchObject([{ messageId: notice.messageId, error: notice.error, continues: true }])
    expect(notice.error.code).toBe('PROVIDER_UNAVAILABLE')
    // The prompt is asked once more, under a new message, without a "continue" between.
    expect(stage.provider.requests).toHaveLength(2)
    expect(spoken(stage.provider.requests[1]!)).toEqual(['user: hi'])
  })

  it('RETRY-12: after output, which is kept: the step has its end already, and the new execution goes on from it', async () => {
    const { promise: shown, open } = gate()
    const begun = () => stage.db.event.count({ where: { type: 'text.started' } })
    const before = await begun()
    const opened = eventually('the text', async () => (await begun()) > before).then(open)
    const { s, commits } = await diesInBackOff({}, ...text('half'), ...wait(shown), ...cut())
    await opened
    expect(await running(s)).toBe(0)
    const b = await stage.start()
    stage.provider.script(reply(text('whole'), finish()))
    await scanned(stage, b)
    await goesOn(b, s)
    expect((await commitsSince(stage, s, commits))[0]).toEqual(['step.recovered'])
    expect(await stage.payloads(s, 'step.failed')).toMatchObject([{ continues: true }])
    expect(stage.provider.requests).toHaveLength(2)
    expect(spoken(stage.provider.requests[1]!)).toEqual(['user: hi', 'assistant: half', 'user: continue'])
  })

  it('RETRY-12: behind tools that had settled: none of them runs again, and their results go along', async () => {
    const look = instant('look', () => 'seen')
    const tools = [look.tool]
    // The stream breaks once the result is durable: a broken connection may take along what had arrived and was not read yet.
    const { promise: settled, open } = gate()
    const results = () => stage.db.event.count({ where: { type: 'tool.succeeded' } })
    const before = await results()
    const opened = eventually('the result', async () => (await results()) > before).then(open)
    const { s } = await diesInBackOff(
      { tools },
      ...toolCall('look', {}),
      ...finishing('tool_calls'),
      ...wait(settled),
      ...cut(),
    )
    await opened
    const b = await stage.start({ tools })
    stage.provider.script(reply(text('whole'), finish()))
    await scanned(stage, b)
    await goesOn(b, s)
    expect(look.ran).toHaveLength(1)
    expect(spoken(stage.provider.requests[1]!)).toEqual(['user: hi', 'call look {}', 'result seen', 'user: continue'])
  })

  it('RETRY-12: prompts that came meanwhile run in the new execution too', async () => {
    const { s } = await diesInBackOff({}, ...status(503))
    const b = await stage.start()
    await prompt(b.core, s, 'more')
    await b.core.coordinator.idle()
    expect(stage.provider.requests).toHaveLength(1)
    stage.provider.script(reply(text('both'), finish()))
    await scanned(stage, b)
    await goesOn(b, s)
    expect(spoken(stage.provider.requests[1]!)).toEqual(['user: hi', 'user: more'])
  })
})
