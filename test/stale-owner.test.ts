// One owner that stands still, is taken over, and wakes with all it believed: whatever it does then is refused (design sections 2 and 9).
import { afterEach, expect, it } from 'vitest'
import { event, type NewEvent } from '../src/events.ts'
import { newExecutionId } from '../src/ids.ts'
import { compactSession } from '../src/runner/compact.ts'
import { HoldEnded } from '../src/runner/hold.ts'
import { passTime, resetTime } from './support/asking.ts'
import { eventually } from './support/core.ts'
import { quiet } from './support/cut-off.ts'
import { finish, gate, hang, reply, text, toolCall, wait } from './support/provider.ts'
import { instant, interrupt, newId, probe, prompt, tenant, useStage } from './support/stage.ts'
import { statementsDuring } from './support/statements.ts'

const stage = useStage()
afterEach(() => resetTime(stage))

const leaseMs = 120_000

it('CLAIM-07 to CLAIM-11: a stale owner that wakes is refused at publication, promotion, step end, interrupt settlement, tool, compaction, release, chunk, renewal and provider', async () => {
  const look = instant('look')
  const work = probe('work')
  const a = await stage.start({ tools: [look.tool, work.tool], config: { leaseMs, renewMs: 600_000, pollMs: 600_000 } })
  const b = await stage.start({ config: { leaseMs } })
  quiet(b.core)
  const { core } = a

  // What it asks of the database and of its own leases from its waking on, with what came of it.
  const appends: { sessionId: string; types: string[]; outcome: string }[] = []
  const starts: { sessionId: string; allowed: boolean }[] = []
  let isAwake = false
  /** Stops an append with this event: right before it reaches the database, or right behind its commit. */
  const stops = new Map<
    string,
    { type: NewEvent['type']; where: 'before' | 'behind'; reached: () => void; go: Promise<void> }
  >()
  const { append } = core.eventLog
  core.eventLog = {
    ...core.eventLog,
    async append(request) {
      const { sessionId, events } = request
      const stop = stops.get(sessionId)
      const isHere = stop !== undefined && events.some(({ type }) => type === stop.type)
      if (isHere && stop.where === 'before') {
        stop.reached()
        await stop.go
      }
      const outcome = await append(request)
      if (isAwake) appends.push({ sessionId, types: events.map(({ type }) => type), outcome: outcome.kind })
      if (isHere && stop.where === 'behind') {
        stop.reached()
        await stop.go
      }
      return outcome
    },
  }
  const { mayStart, mustStart, examine } = core.leases
  core.leases.mayStart = async (hold) => {
    const allowed = await mayStart(hold)
    if (isAwake) starts.push({ sessionId: hold.sessionId, allowed })
    return allowed
  }
  core.leases.mustStart = async (hold) => {
    const allowed = await mustStart(hold).then(
      () => true,
      (thrown) => {
        if (isAwake) starts.push({ sessionId: hold.sessionId, allowed: false })
        throw thrown
      },
    )
    if (isAwake) starts.push({ sessionId: hold.sessionId, allowed })
  }

  async function stopAt(sessionId: string, type: NewEvent['type'], where: 'before' | 'behind', begin: () => unknown) {
    const { promise: reached, open } = gate()
    const { promise: go, open: release } = gate()
    stops.set(sessionId, { type, where, reached: open, go })
    await begin()
    await reached
    return release
  }
  const answered = async (sessionId: string) => {
    stage.provider.script(reply(text('re'), finish()))
    await prompt(core, sessionId, 'before')
    await core.coordinator.idle()
  }
  const calls = (name: string) => reply(toolCall(name, {}), finish('tool_calls'))

  // Two of the sessions need a past, which comes first, as the core is idle then.
  const names =
    'summing summarising publishing promoting calling working dispatching releasing chunking ending interrupting waiting asking'
  const sessions: string[] = []
  for (const _ of names.split(' ')) sessions.push(await stage.session())
  const [
    summing,
    summarising,
    publishing,
    promoting,
    calling,
    working,
    dispatching,
    releasing,
    chunking,
    ending,
    interrupting,
    waiting,
    asking,
  ] = sessions
  await answered(summing!)
  await answered(summarising!)

  const compaction = (sessionId: string) => compactSession(core, tenant, { sessionId, messageId: newId('msg_') })
  const speaks = gate()
  stage.provider.script(reply(text('a'), wait(speaks.promise), finish()))
  await prompt(core, publishing!)
  await stage.logged(publishing!, 'text.started')
  const sums = gate()
  stage.provider.script(reply(wait(sums.promise), text('summary'), finish()))
  await compaction(summing!)
  await stage.logged(summing!, 'compaction.started')
  await stage.provider.request(3)
  stage.provider.script(calls('work'))
  await prompt(core, working!)
  const { finish: workIsDone } = await work.run()
  await stage.logged(working!, 'step.streamed')
  const chunked = stage.provider.requests.length
  stage.provider.script(reply(text('b'), hang()))
  await prompt(core, chunking!)
  await stage.logged(chunking!, 'text.started')
  stage.provider.script(reply(text('c'), hang()))
  await prompt(core, waiting!)
  await stage.logged(waiting!, 'text.started')
  const promotes = await stopAt(promoting!, 'prompt.promoted', 'before', () => prompt(core, promoting!))
  stage.provider.script(calls('look'))
  const startsTool = await stopAt(calling!, 'tool.started', 'before', () => prompt(core, calling!))
  stage.provider.script(calls('look'))
  const dispatches = await stopAt(dispatching!, 'tool.started', 'behind', () => prompt(core, dispatching!))
  stage.provider.script(reply(text('d'), finish()))
  const releases = await stopAt(releasing!, 'execution.settled', 'before', () => prompt(core, releasing!))
  stage.provider.script(reply(text('e'), finish()))
  const ends = await stopAt(ending!, 'step.ended', 'before', () => prompt(core, ending!))
  stage.provider.script(reply(text('f'), hang()))
  await prompt(core, interrupting!)
  await stage.logged(interrupting!, 'text.started')
  // Asked for by the other process, and it stops: its cleanup is what comes too late.
  let stopped: Promise<unknown> = Promise.resolve()
  const cleansUp = await stopAt(interrupting!, 'step.interrupted', 'before', () => {
    stopped = interrupt(b.core, interrupting!)
  })
  expect(core.leases.heldBy(interrupting!)).toMatchObject({ ended: 'cancelled' })
  const asks = await stopAt(asking!, 'step.started', 'behind', () => prompt(core, asking!))
  const summarises = await stopAt(summarising!, 'compaction.started', 'behind', () => compaction(summarising!))
  stage.provider.expectDone()
  await core.live.flush()
  expect(core.leases.held()).toHaveLength(sessions.length)

  // It stands still: no timer of its own fires, no bell is answered. Its leases run out, another process recovers all it had and goes on.
  const bells: string[] = []
  core.leases.examine = async ({ sessionId }) => {
    bells.push(sessionId)
  }
  await passTime(stage, leaseMs + 10_000)
  // What was asked to stop is settled for its lapsed owner by the process that waits for it; a scan would set it aside.
  expect(await stopped).toMatchObject({ type: 'InterruptSessionPayload', interrupted: true })
  expect(await b.recovery.scan()).toMatchObject({ taken: sessions.length - 1, failed: 0, quarantined: 0 })
  for (const sessionId of sessions) {
    const executionId = newExecutionId()
    const claimed = await b.core.eventLog.append({
      sessionId,
      events: [event('execution.started', { executionId })],
      claim: { kind: 'acquire', executionId, owner: b.core.owner, leaseMs: 600_000 },
    })
    expect(claimed).toMatchObject({ kind: 'appended' })
  }
  const read = async () => ({
    events: await Promise.all(sessions.map((sessionId) => stage.events(sessionId))),
    claims: await stage.db.claim.findMany({ where: { sessionId: { in: sessions } }, orderBy: { sessionId: 'asc' } }),
    inputs: await stage.db.input.findMany({ where: { sessionId: { in: sessions } }, orderBy: { id: 'asc' } }),
    chunks: await stage.db.chunk.findMany({ where: { sessionId: { in: sessions } } }),
  })
  const before = await read()
  expect(before.claims.map(({ owner }) => owner)).toEqual(sessions.map(() => b.core.owner))
  expect(before.chunks).toEqual([])
  const requests = stage.provider.requests.length
  const ran = look.ran.length
  const attempts = async () => (await core.metrics.providerAttempts.get()).values[0]!.value
  const attempted = await attempts()
  const { pathname } = new URL(a.link.url)
  const database = pathname.slice(1)
  expect(core.leases.held()).toHaveLength(sessions.length)

  // Bells come in the order of the commits: with those of the last session behind it, none is left that would tell it after its waking.
  await eventually('the bells of the takeover and of the new claim', async () => {
    return bells.filter((sessionId) => sessionId === sessions.at(-1)).length === 2
  })

  // It wakes. Its own count says that its leases run: only the fences of the database stand between.
  core.leases.examine = examine
  isAwake = true
  const isLost = (sessionId: string) =>
    eventually('the end of the hold', async () => core.leases.heldBy(sessionId) === undefined)
  const fenced: [string, string, NewEvent['type'], () => void][] = [
    ['promotion', promoting!, 'prompt.promoted', promotes],
    ['the start of a tool', calling!, 'tool.started', startsTool],
    ['the result of a tool', working!, 'tool.succeeded', () => workIsDone('late')],
    ['the end of a step', ending!, 'step.ended', ends],
    ['the settlement of an interrupt', interrupting!, 'step.interrupted', cleansUp],
    ['publication', publishing!, 'text.ended', speaks.open],
    ['compaction', summing!, 'compaction.ended', sums.open],
    ['release', releasing!, 'execution.settled', releases],
  ]
  for (const [what, sessionId, type, go] of fenced) {
    const tried = () => appends.filter((one) => one.sessionId === sessionId)
    expect(tried(), what).toEqual([])
    go()
    await eventually(what, async () => tried().length > 0)
    await isLost(sessionId)
    expect(tried(), what).toEqual([{ sessionId, types: expect.arrayContaining([type]), outcome: 'fenced' }])
  }

  // A chunk that is refused ends the hold by itself: no event of it was tried, and no renewal.
  const [part] = core.live.partsOf(chunking!)
  const bound: unknown[][] = []
  const written = await statementsDuring(
    database,
    async () => {
      core.live.add(chunking!, part!.messageId, part!.index, 'stale')
      await core.live.flush()
      await isLost(chunking!)
    },
    bound,
  )
  expect(written.filter((_, n) => JSON.stringify(bound[n]).includes(chunking!))[0]).toMatch(/holdfast_write_chunks/)
  expect(written.filter((sql) => /holdfast_renew/.test(sql))).toEqual([])
  expect(appends.filter(({ sessionId }) => sessionId === chunking)).toEqual([])
  await stage.provider.aborted(chunked)

  // The others only wait. Their renewal is refused; what was about to be started outside is not.
  const renewed: unknown[][] = []
  const holds = core.leases.held()
  expect(new Set(holds.map(({ sessionId }) => sessionId))).toEqual(new Set([waiting, asking, dispatching, summarising]))
  const renewals = await statementsDuring(database, () => core.leases.renewNow(), renewed)
  const n = renewals.findIndex((sql) => /holdfast_renew/.test(sql))
  for (const { executionId } of holds) expect(JSON.stringify(renewed[n])).toContain(executionId)
  for (const { ended, signal } of holds) {
    expect(ended).toBe('lost')
    expect(signal.reason).toBeInstanceOf(HoldEnded)
  }
  await isLost(waiting!)
  for (const [sessionId, go] of [
    [asking!, asks],
    [dispatching!, dispatches],
    [summarising!, summarises],
  ] as const) {
    expect(starts).not.toContainEqual({ sessionId, allowed: false })
    go()
    await isLost(sessionId)
    expect(starts.filter((one) => one.sessionId === sessionId)).toEqual([{ sessionId, allowed: false }])
    expect(appends.filter((one) => one.sessionId === sessionId)).toEqual([])
  }
  await core.coordinator.idle()

  expect(await read()).toEqual(before)
  expect(stage.provider.requests).toHaveLength(requests)
  expect(await attempts()).toBe(attempted)
  expect(look.ran).toHaveLength(ran)
  expect(work.runs).toHaveLength(1)
  expect(core.leases.held()).toEqual([])
  const counted = (await core.metrics.refusedStaleWrites.get()).values
  const of = (what: string) => counted.find(({ labels }) => labels.what === what)?.value ?? 0
  expect({ step: of('step'), compaction: of('compaction'), settle: of('settle') }).toEqual({
    step: 1,
    compaction: 1,
    settle: 1,
  })
  expect(of('append')).toBeGreaterThanOrEqual(3)
  expect(of('chunk')).toBeGreaterThanOrEqual(1)
  expect(of('claim')).toBeGreaterThanOrEqual(holds.length)
})
