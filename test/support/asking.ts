// People in a test: what they decide, and processes that die while a person is asked.
import { expect } from 'vitest'
import type { ToolDefinition } from '../../src/config.ts'
import type { EventType } from '../../src/events.ts'
import { serveHttp } from '../../src/http/serve.ts'
import type { Core } from '../../src/runner/core.ts'
import { answerQuestion, decideApproval, dismissQuestion } from '../../src/runner/decide.ts'
import { atAppend, hasEvent } from './at-append.ts'
import { eventually, type TestCore } from './core.ts'
import { finish, gate, reply, text, toolCalls } from './provider.ts'
import { instant, type Stage, tenant } from './stage.ts'
import { everythingOf, statusOfOne } from './stored.ts'

type Approval = Parameters<typeof decideApproval>[2]

export const approve = (core: Core, interactionId: string, over: Partial<Approval> = {}) =>
  decideApproval(core, tenant, { interactionId, decision: 'APPROVE', ...over })
export const goOnWithout = (core: Core, interactionId: string, feedback?: string) =>
  decideApproval(core, tenant, { interactionId, decision: 'DECLINE_AND_CONTINUE', feedback })
export const declineAndStop = (core: Core, interactionId: string, feedback?: string) =>
  decideApproval(core, tenant, { interactionId, decision: 'DECLINE_AND_STOP', feedback })
export const answerTo = (core: Core, interactionId: string, answer: unknown) =>
  answerQuestion(core, tenant, { interactionId, answer })
export const dismiss = (core: Core, interactionId: string) => dismissQuestion(core, tenant, { interactionId })

/** A tool that needs an approval, answers at once and counts. */
export function guarded(name = 'deploy', over: Partial<ToolDefinition> = {}) {
  const { tool, ran } = instant(name, () => `${name} ran`)
  return { tool: { ...tool, needsApproval: true, ...over } as ToolDefinition, ran }
}

export const said = (word = 'done') => reply(text(word), finish())
/** A whole reply that calls these tools, `call_<name>` each. */
export const calling = (...calls: (string | { name: string; args?: unknown; id?: string })[]) =>
  reply(
    toolCalls(
      ...calls.map((each) => {
        const { name, args = {}, id = `call_${name}` } = typeof each === 'string' ? { name: each } : each
        return { name, args, id }
      }),
    ),
    finish('tool_calls'),
  )

/** The id of the n-th interaction of the session, once it is asked. */
export const asked = async (stage: Stage, sessionId: string, n = 1) =>
  (await stage.logged(sessionId, 'interaction.requested', n)).interactionId

/** Waits until the session waits for a person, for the n-th time, and its process has let go of it. */
export async function waiting(stage: Stage, { core }: TestCore, sessionId: string, n = 1): Promise<void> {
  await eventually(`WAITING ${n}`, async () => {
    const ends = await stage.payloads(sessionId, 'execution.settled')
    return ends.filter(({ outcome }) => outcome === 'WAITING').length >= n
  })
  await core.coordinator.idle()
}

export const interaction = (stage: Stage, id: string) => stage.db.interaction.findUniqueOrThrow({ where: { id } })
export const call = (stage: Stage, sessionId: string, callId: string) =>
  stage.db.toolCall.findFirstOrThrow({ where: { sessionId, callId } })

/** As the API shows it. */
export const statusIn = (stage: Stage, { core }: TestCore, sessionId: string) =>
  statusOfOne(stage.db, sessionId, core.config.scanMs)

/** All that a decision could have written. */
export const everything = ({ db }: Stage, sessionId: string) => everythingOf(db, sessionId)

/** Types of the events after the n-th, one list for each commit. */
export const commitsSince = async (stage: Stage, sessionId: string, commits: number) =>
  (await stage.commits(sessionId)).slice(commits)

/**
 * Kills the process at its next append that holds an event of this type: before it reaches the database, or when it has been committed
 * and the process does not know yet. `died` resolves when nothing of the process is left.
 */
export function dieAt(victim: TestCore, type: EventType, when: 'before' | 'after'): { died: Promise<void> } {
  const gone = gate()
  let dead: Promise<void>
  atAppend(victim.core, hasEvent(type), async (go, nth) => {
    if (nth > 1) return go()
    if (when === 'after') expect(await go()).toMatchObject({ kind: 'appended' })
    dead = victim.kill()
    gone.open()
    throw new Error('the process has died')
  })
  return { died: gone.promise.then(() => dead) }
}

let shifted = 0
/** The database's clock goes on by this much; leases that nobody renews run out. */
export async function passTime({ database }: Stage, ms = 60_000): Promise<void> {
  shifted += ms
  await database.shiftClock(shifted)
}
/** For afterEach. */
export async function resetTime({ database }: Stage): Promise<void> {
  if (shifted !== 0) await database.shiftClock(0)
  shifted = 0
}

/** The survivor's scan once the leases of the dead have run out, and all that follows from it here. */
export async function scanned(stage: Stage, survivor: TestCore) {
  await passTime(stage)
  const report = await survivor.recovery.scan()
  await survivor.core.coordinator.idle()
  expect(report.failed).toBe(0)
  return report
}

/** The API of a core over real HTTP, for as long as `work` takes. */
export async function overHttp<T>(
  { core }: TestCore,
  // biome-ignore lint/suspicious/noExplicitAny: tests read whatever they asked for
  work: (ask: (query: string, variables?: object) => Promise<any>) => Promise<T>,
): Promise<T> {
  const server = await serveHttp(core, { host: '127.0.0.1', port: 0 })
  try {
    return await work(async (query, variables) => {
      const response = await fetch(`${server.url}graphql`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ query, variables }),
      })
      return response.json()
    })
  } finally {
    await server.close(1000)
  }
}
