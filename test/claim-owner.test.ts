// What an owner may do when its claim is not, or may not be, its own any more (design sections 2, 6 and 9).
import { afterEach, describe, expect, it, vi } from 'vitest'
import type { EventType } from '../src/events.ts'
import { overHttp, passTime, resetTime } from './support/asking.ts'
import { atAppend } from './support/at-append.ts'
import { eventually, type TestCore } from './support/core.ts'
import { finish, finishing, gate, hang, reasoning, reply, text, toolCall, wait } from './support/provider.ts'
import { hasEvent, holdAppend, instant, probe, prompt, useStage } from './support/stage.ts'

const stage = useStage()
afterEach(async () => {
  vi.restoreAllMocks()
  await resetTime(stage)
})

let thefts = 0
/** Another process takes the session over behind its owner's back, and has it from now on. */
async function steal(sessionId: string) {
  const thief = { owner: 'own_.thief', executionId: `exe_.thief${++thefts}` }
  const expiresAt = new Date(Date.now() + 3_600_000)
  expect(await stage.db.claim.updateMany({ where: { sessionId }, data: { ...thief, expiresAt } })).toEqual({ count: 1 })
  return thief
}
/** What was refused, by what it was, and how often. */
const refused = async ({ core }: TestCore): Promise<Record<string, number>> =>
  Object.fromEntries(
    (await core.metrics.refusedStaleWrites.get()).values.map(({ labels, value }) => [String(labels.what), value]),
  )
const said = () => reply(text('done'), finish())

// First of the file: its scans would find what the tests below leave to nobody.
it('CLAIM-20: a node that drains for its shutdown acquires no claim, however it is woken; another one takes the work', async () => {
  const a = await stage.start()
  const b = await stage.start()
  const busy = await stage.session()
  const other = await stage.session()
  const open = gate()
  stage.provider.script(reply(text('a'), wait(open.promise), finish()))
  await prompt(a.core, busy)
  await stage.logged(busy, 'text.started')
  const { wake } = b.core.coordinator
  b.core.coordinator.wake = () => {}
  const stopping = a.stop()
  expect(a.core.stopping.aborted).toBe(true)
  await prompt(b.core, other)
  await prompt(b.core, busy, 'more', { delivery: 'QUEUE' })
  for (const s of [other, busy]) a.core.coordinator.wake(s)
  await a.recovery.scan()
  open.open()
  await stopping
  expect(await stage.payloads(other, 'execution.started')).toEqual([])
  expect(await stage.payloads(busy, 'execution.started')).toHaveLength(1)
  expect(await stage.payloads(busy, 'step.ended')).toHaveLength(1)
  expect(stage.provider.requests).toHaveLength(1)
  b.core.coordinator.wake = wake
  stage.provider.script(said(), said())
  await b.recovery.scan()
  await b.core.coordinator.idle()
  expect(await stage.payloads(other, 'step.ended')).toHaveLength(1)
  await passTime(stage)
  await b.recovery.scan()
  await b.core.coordinator.idle()
  expect(await stage.payloads(busy, 'step.ended')).toHaveLength(2)
})

describe('a claim that was replaced', () => {
  it('CLAIM-07: while the step was prepared: no request, nothing written', async () => {
    const a = await stage.start()
    const s = await stage.session()
    // The model is resolved, and before its step begins another process has the session.
    const { resolve } = a.core.models
    let resolved = 0
    a.core.models = {
      ...a.core.models,
      resolve(id) {
        resolved++
        return resolve(id)
      },
    }
    const start = holdAppend(a.core, hasEvent('step.started'))
    const id = await prompt(a.core, s)
    await start.held
    expect(resolved).toBeGreaterThan(0)
    const thief = await steal(s)
    const before = await stage.events(s)
    start.release()
    await a.core.coordinator.idle()
    expect(stage.provider.requests).toEqual([])
    expect(await stage.events(s)).toEqual(before)
    expect(await stage.claim(s)).toMatchObject(thief)
    expect(await stage.db.input.findUnique({ where: { id } })).toMatchObject({ state: 'PENDING' })
    expect(await refused(a)).toEqual({ step: 1, claim: 1 })
    expect(a.core.leases.held()).toEqual([])
  })

  it.each([
    ['the first word', [], { append: 1, claim: 1 }],
    // Its chunk may be refused before the end of its text is.
    ['the end of a text', text('a'), expect.objectContaining({ claim: 1 })],
  ])(
    'CLAIM-08: before %s: nothing is stored, the request is given up and the step stops',
    async (_, first, refusals) => {
      const a = await stage.start()
      const s = await stage.session()
      const open = gate()
      stage.provider.script(reply(first, wait(open.promise), text('stale'), reasoning('stale'), hang()))
      await prompt(a.core, s)
      await stage.provider.request(0)
      if (first.length > 0) await stage.logged(s, 'text.started')
      const thief = await steal(s)
      const before = await stage.events(s)
      open.open()
      await a.core.coordinator.idle()
      await stage.provider.aborted(0)
      expect(await stage.events(s)).toEqual(before)
      expect(await stage.claim(s)).toMatchObject({ ...thief, phase: 'UNKNOWN' })
      const chunks = await stage.db.chunk.findMany({ where: { sessionId: s } })
      expect(chunks.map((chunk) => chunk.text).join('')).not.toContain('stale')
      expect(await refused(a)).toEqual(refusals)
      expect([...a.core.live.partsOf(s)]).toEqual([])
    },
  )

  it('CLAIM-09: before the dispatch of a tool: its start is refused and it does not run', async () => {
    const look = instant('look')
    const a = await stage.start({ tools: [look.tool] })
    const s = await stage.session()
    const start = holdAppend(a.core, hasEvent('tool.started'))
    stage.provider.script(reply(toolCall('look', {}), finish('tool_calls')))
    await prompt(a.core, s)
    await start.held
    const thief = await steal(s)
    const before = await stage.events(s)
    start.release()
    await a.core.coordinator.idle()
    expect(look.ran).toEqual([])
    expect(await stage.events(s)).toEqual(before)
    expect(await stage.claim(s)).toMatchObject(thief)
    expect(stage.provider.requests).toHaveLength(1)
  })
})

describe('a node that was frozen for longer than its lease', () => {
  it.each(['by its own count', 'by the fences alone'])(
    'CLAIM-11: and taken over finds out %s: requests, tools, appends, chunks and promotions are refused and counted',
    async (how) => {
      const look = probe('look')
      // Frozen: no renewal goes out and nothing is heard; what it wakes with is what it believed.
      const a = await stage.start({ tools: [look.tool], config: { leaseMs: 120_000, renewMs: 600_000 } })
      const open = gate()
      const talking = await stage.session()
      stage.provider.script(reply(text('a'), wait(open.promise), text('stale'), text('more'), hang()))
      await prompt(a.core, talking)
      await stage.logged(talking, 'text.started')
      const working = await stage.session()
      stage.provider.script(reply(toolCall('look', {}), finish('tool_calls')))
      await prompt(a.core, working)
      const { finish: late } = await look.run()
      await stage.logged(working, 'step.streamed')
      const calling = await stage.session()
      stage.provider.script(reply(wait(open.promise), toolCall('look', {}), finish('tool_calls')))
      await prompt(a.core, calling)
      await stage.provider.request(2)
      const promoting = await stage.session()
      const promotes = holdAppend(a.core, hasEvent('prompt.promoted'))
      await prompt(a.core, promoting)
      await promotes.held
      const sessions = [talking, working, calling, promoting]
      if (how === 'by its own count') {
        // Its step is begun and its request is due: no fence of the database stands between.
        const asking = await stage.session()
        const { append } = a.core.eventLog
        a.core.eventLog = {
          ...a.core.eventLog,
          async append(request) {
            const outcome = await append(request)
            if (request.sessionId === asking && hasEvent('step.started')(request)) await open.promise
            return outcome
          },
        }
        await prompt(a.core, asking)
        await stage.logged(asking, 'step.started')
        sessions.push(asking)
      }
      await a.core.live.flush()
      const requests = stage.provider.requests.length
      const thieves = new Map<string, object>()
      for (const s of sessions) thieves.set(s, await steal(s))
      const read = async () => ({
        events: await Promise.all(sessions.map((s) => stage.events(s))),
        chunks: await stage.db.chunk.findMany(),
        inputs: await stage.db.input.findMany({ where: { sessionId: promoting } }),
      })
      const before = await read()
      const [part] = a.core.live.partsOf(talking)
      if (how === 'by its own count') {
        const now = performance.now.bind(performance)
        vi.spyOn(performance, 'now').mockImplementation(() => now() + 120_000)
      }

      // It wakes.
      if (how !== 'by its own count') {
        a.core.live.add(talking, part!.messageId, part!.index, ' late')
        await a.core.live.flush()
        expect(await stage.db.chunk.findMany()).toEqual(before.chunks)
      }
      open.open()
      promotes.release()
      late('late')
      await eventually('the loss of all', async () => {
        // What only waits for its provider is told by its next renewal.
        await a.core.leases.renewNow()
        return a.core.leases.held().length === 0
      })
      await a.core.coordinator.idle()
      expect(await read()).toEqual(before)
      for (const s of sessions) expect(await stage.claim(s)).toMatchObject(thieves.get(s)!)
      expect(look.runs).toHaveLength(1)
      expect(stage.provider.requests).toHaveLength(requests)
      expect((await refused(a)).claim).toBe(sessions.length)
    },
  )
})

describe('a node that cannot know', () => {
  it('CLAIM-14: because the database is out of reach: provider and tools are stopped before the lease ends', async () => {
    const stopped: number[] = []
    const work = {
      name: 'work',
      description: 'works',
      inputSchema: { type: 'object' },
      execute: (_: unknown, { signal }: { signal: AbortSignal }) =>
        new Promise<string>((resolve) =>
          signal.addEventListener('abort', () => {
            stopped.push(Date.now())
            resolve('stopped')
          }),
        ),
    }
    const a = await stage.start({ tools: [work], config: { leaseMs: 5000, renewMs: 500 } })
    const s = await stage.session()
    stage.provider.script(reply(toolCall('work', {}), finishing('tool_calls'), hang()))
    await prompt(a.core, s)
    await stage.logged(s, 'tool.started')
    // It has been renewed at least once since.
    const first = (await stage.claim(s))!.expiresAt.getTime()
    await eventually('a renewal', async () => (await stage.claim(s))!.expiresAt.getTime() > first)
    a.link.cut()
    expect(stopped).toEqual([])
    await stage.provider.aborted(0)
    await eventually('the signal', async () => stopped.length > 0)
    const { expiresAt } = (await stage.claim(s))!
    expect(Date.now()).toBeLessThan(expiresAt.getTime())
    // By its own count and not at once: a short cut is no reason to stop.
    expect(stopped[0]!).toBeGreaterThan(expiresAt.getTime() - 5000 + 500)
    a.link.mend()
    await a.core.coordinator.idle()
    expect((await stage.types(s)).at(-1)).toBe('tool.started')
  })

  /** Holds the event loop up right behind the first commit that holds an event of this type. */
  function blockBehind({ core }: TestCore, type: EventType, ms: number) {
    atAppend(core, hasEvent(type), async (go, nth) => {
      const outcome = await go()
      if (nth === 1) {
        expect(outcome).toMatchObject({ kind: 'appended' })
        const until = performance.now() + ms
        while (performance.now() < until);
      }
      return outcome
    })
  }

  it.each([
    ['a provider request', 'step.started', 0],
    ['a tool', 'tool.started', 1],
  ] as const)(
    'CLAIM-15: because its event loop stood still for longer than the lease, right before %s: that is not started',
    async (_, type, requests) => {
      const look = instant('look')
      const a = await stage.start({ tools: [look.tool], config: { leaseMs: 1500, renewMs: 400 } })
      const s = await stage.session()
      blockBehind(a, type, 1700)
      stage.leavesReplies = requests === 0
      stage.provider.script(reply(toolCall('look', {}), finish('tool_calls')))
      await prompt(a.core, s)
      await a.core.coordinator.idle()
      expect(stage.provider.requests).toHaveLength(requests)
      expect(look.ran).toEqual([])
      expect((await stage.types(s)).at(-1)).toBe(type)
      expect(a.core.leases.held()).toEqual([])
      expect(await refused(a)).toEqual({ claim: 1 })
    },
  )
})

it('CLAIM-19: on one process or several nothing of any execution is written or run without its claim row', async () => {
  const violation = `INSERT INTO unclaimed (type, id) SELECT NEW.type, NEW."sessionId" WHERE NOT EXISTS (SELECT 1 FROM "Claim" c
    WHERE c."sessionId" = NEW."sessionId" AND (NEW.payload->>'executionId' IS NULL OR c."executionId" = NEW.payload->>'executionId'))`
  await stage.db.$executeRawUnsafe('CREATE TABLE unclaimed (type text, id text)')
  await stage.db.$executeRawUnsafe(`CREATE FUNCTION see_unclaimed() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN ${violation}; RETURN NULL; END $$`)
  // Once all of a commit is there.
  await stage.db.$executeRawUnsafe(`CREATE CONSTRAINT TRIGGER see_unclaimed AFTER INSERT ON "Event" DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.type IN ('execution.started', 'step.started', 'text.started', 'tool.called', 'tool.started', 'tool.succeeded',
      'step.streamed', 'step.ended', 'step.retry_scheduled')) EXECUTE FUNCTION see_unclaimed()`)
  const claims: unknown[] = []
  const look = instant('look')
  const tool = {
    ...look.tool,
    execute: async (_: unknown, { sessionId }: { sessionId: string }) => {
      claims.push(await stage.claim(sessionId))
      return 'seen'
    },
  }
  const nodes = [await stage.start({ tools: [tool] }), await stage.start({ tools: [tool] })]
  const sessions: string[] = []
  for (let n = 0; n < 6; n++) {
    const s = await stage.session()
    sessions.push(s)
    stage.provider.script(reply(toolCall('look', {}), finish('tool_calls')), said())
    await prompt(nodes[n % 2]!.core, s)
    for (const { core } of nodes) await core.coordinator.idle()
  }
  stage.provider.expectDone()
  expect(claims).toHaveLength(6)
  for (const claim of claims) expect(claim).toMatchObject({ phase: 'UNKNOWN' })
  for (const s of sessions) {
    const [started] = await stage.payloads(s, 'execution.started')
    for (const step of await stage.payloads(s, 'step.started')) expect(step.executionId).toBe(started!.executionId)
  }
  expect(await stage.db.$queryRawUnsafe('SELECT * FROM unclaimed')).toEqual([])
  await stage.db.$executeRawUnsafe('DROP TABLE unclaimed CASCADE')
  await stage.db.$executeRawUnsafe('DROP FUNCTION see_unclaimed() CASCADE')
})

it('CLAIM-22: session.execution is the row while it runs, and null when there is none', async () => {
  const a = await stage.start()
  const s = await stage.session()
  const shown = () =>
    overHttp(a, async (ask) => {
      const { data } = await ask(
        'query ($s: ID!) { session(id: $s) { status execution { id phase owner expiresAt } } }',
        {
          s,
        },
      )
      return data.session
    })
  expect(await shown()).toEqual({ status: 'IDLE', execution: null })
  const open = gate()
  stage.provider.script(reply(text('a'), wait(open.promise), finish()))
  await prompt(a.core, s)
  await stage.logged(s, 'text.started')
  const { executionId, owner, phase, expiresAt } = (await stage.claim(s))!
  expect(phase).toBe('UNKNOWN')
  expect(owner).toBe(a.core.owner)
  const { status, execution } = await shown()
  expect(status).toBe('RUNNING')
  expect(execution).toEqual({ id: executionId, phase, owner, expiresAt: execution.expiresAt })
  expect(new Date(execution.expiresAt)).toEqual(expiresAt)
  open.open()
  await a.core.coordinator.idle()
  expect(await shown()).toEqual({ status: 'IDLE', execution: null })
})
