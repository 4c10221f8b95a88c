// What a process holds after many steps is what it held after a third of them, and what it has stored has grown by the same for each.
import { getEventListeners } from 'node:events'
import { expect, it } from 'vitest'
import { testClock } from './support/clock.ts'
import { instantModel } from './support/instant-model.ts'
import { heldMegabytes } from './support/memory.ts'
import { admit, atAppend, atRest, newSession, type Played, useStage } from './support/prompt-stage.ts'

const stage = useStage()

/** Fewer than there are places for drains, so that none yields to another. */
const sessionCount = 40
/** Even, and in each third: one prompt and one step for each. */
const rounds = 2 * Math.ceil(Number(process.env.HOLDFAST_STEPS ?? 1200) / sessionCount / 6)
const steps = 3 * rounds * sessionCount
/** Far fewer than there are steps: a stage's connections to the database, each with both of its ends here, and some to spare. */
const socketsAtMost = 36

async function rowsOf({ core: { db } }: Played): Promise<Record<string, number>> {
  const tables = ['event', 'input', 'message', 'part', 'claim', 'chunk', 'recovery', 'quarantine'] as const
  const counts = await Promise.all(tables.map((table) => (db[table] as typeof db.event).count()))
  return Object.fromEntries(tables.map((table, n) => [table, counts[n]!]))
}

/** What a step that leaves something behind would leave it in. */
const leftIn = ({ core }: Played) => ({
  leases: core.leases.held().length,
  drains: core.coordinator.size(),
  onDoorbell: core.doorbell.listeners(),
  onLiveText: core.live.listeners(),
  onStop: getEventListeners(core.stopping, 'abort').length,
  onProcess: process.eventNames().map((name) => `${String(name)} ${process.listenerCount(name)}`),
})

it(`OPS-10, DRAIN-10: ${steps} steps, each for work that a drain found at its end, leave stack, memory, timers and listeners as they were, and rows for each as for the first`, async () => {
  const clock = testClock()
  let depth = 0
  const model = instantModel(() => {
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 1000
    depth = Math.max(depth, new Error('here').stack!.split('\n').length)
    Error.stackTraceLimit = stackTraceLimit
  })
  const a = await stage.start({ models: { models: { 'local/instant': { model } } }, clock })
  const asked = new Map<string, number>()
  let last = 0
  const found: Record<string, number> = { stale: 0, appended: 0 }
  atAppend(a, 'execution.settled', async (go, _nth, { sessionId }) => {
    const round = asked.get(sessionId)!
    if (round === last) return go()
    asked.set(sessionId, round + 1)
    // By turns: found by this drain, which goes on, and by the look that follows its end.
    if (round % 2 === 1) await admit(a, sessionId, `${round}`)
    const outcome = await go()
    if (round % 2 === 0) await admit(a, sessionId, `${round}`)
    found[outcome.kind]!++
    return outcome
  })
  const sessions: string[] = []
  for (let n = 0; n < sessionCount; n++) sessions.push(await newSession(a, 'local/instant'))
  const play = async (prompts: number) => {
    last = prompts
    depth = 0
    for (const sessionId of sessions) asked.set(sessionId, 1)
    await Promise.all(sessions.map((sessionId) => admit(a, sessionId, 'first')))
    await atRest(a)
    const rows = await rowsOf(a)
    // How many connections are open follows from how busy the machine is: they have a bound, the others are counted.
    const resources = process.getActiveResourcesInfo()
    const sockets = resources.filter((kind) => kind === 'TCPSocketWrap').length
    const handles = resources.filter((kind) => !/^(TCP\w+|Immediate|Timeout|\w+Req\w*)$/.test(kind)).sort()
    const waits = resources.filter((kind) => kind === 'Timeout').length
    return { rows, sockets, handles, waits, depth, timers: clock.timers(), left: leftIn(a), held: heldMegabytes() }
  }
  // What is made once: connections, statements, code.
  const { rows } = await play(4)
  found.stale = 0
  found.appended = 0
  const points = [await play(rounds), await play(rounds), await play(rounds)] as const

  const [first, second, third] = points
  expect(found).toEqual({ stale: steps / 2, appended: steps / 2 - 3 * sessionCount })
  const executions = rounds / 2
  const grown = { event: 5 * rounds + 2 * executions, input: rounds, message: 2 * rounds }
  points.forEach((point, n) => {
    for (const [table, before] of Object.entries(rows))
      expect(point.rows[table]! - before, `${table} after third ${n + 1}`).toBe(
        (n + 1) * sessionCount * (grown[table as 'event'] ?? 0),
      )
    expect(point.timers).toEqual([])
  })
  expect([second.left, third.left]).toEqual([first.left, first.left])
  expect([second.depth, third.depth]).toEqual([first.depth, first.depth])
  expect(first.depth).toBeLessThan(30)
  for (const { handles, sockets, waits } of points) {
    expect(handles).toEqual(first.handles)
    expect(sockets).toBeLessThan(socketsAtMost)
    // One for each connection that rests, to close it.
    expect(waits).toBeLessThan(socketsAtMost)
  }
  expect(third.held - first.held).toBeLessThan(4)
}, 1_200_000)
