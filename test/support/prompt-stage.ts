// A stage for prompts and what becomes of them: a database of the file, and for each test a scripted provider and as many whole cores as
// it asks for. When a test is over every session has to be as its log says, and every scripted reply has to have been asked for.

import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest'
import { type EventPayloads, type EventType, event, noUsage } from '../../src/events.ts'
import { continuationIdOf } from '../../src/ids.ts'
import { type AdmitPromptInput, admitPrompt } from '../../src/runner/admit.ts'
import { createSession } from '../../src/runner/sessions.ts'
import { endParts, failTools, readOpen } from '../../src/runner/settle-open.ts'
import { type Act, hasEvent, atAppend as standAtAppend } from './at-append.ts'
import { type CoreOptions, eventually, startCore, type TestCore } from './core.ts'
import { createTestDatabase, type TestDatabase } from './database.ts'
import { type Provider, type RecordedRequest, startProvider } from './provider.ts'
import { everythingOf, statusOfOne } from './stored.ts'

export const tenant = 'default'

export type Played = TestCore & {
  /** Session ids, one for each wake that reached the coordinator. */
  wakes: string[]
}

let ids = 0
/** Ids that no other test of the run uses. */
export const newSessionId = () => `ses_prompts-${process.pid}-${++ids}`
export const newMessageId = () => `msg_prompts-${process.pid}-${++ids}`

export interface Stage {
  database: TestDatabase
  provider: Provider
  /** A core that knows compatible/scripted; stopped when the test is over. */
  start(options?: Partial<CoreOptions>): Promise<Played>
  /** Set by a test that leaves replies over on purpose. */
  leavesReplies: boolean
}

/** Call it once per file, at the top level. */
export function useStage(): Stage {
  const stage = { leavesReplies: false } as Stage
  let cores: Played[] = []
  beforeAll(async () => {
    stage.database = await createTestDatabase()
  })
  beforeEach(async () => {
    stage.provider = await startProvider()
    stage.leavesReplies = false
  })
  stage.start = async (options = {}) => {
    const played = {
      ...(await startCore({
        url: stage.database.url,
        models: { compatible: { baseUrl: stage.provider.baseUrl } },
        ...options,
      })),
      wakes: [] as string[],
    }
    const { wake } = played.core.coordinator
    played.core.coordinator.wake = (sessionId) => {
      played.wakes.push(sessionId)
      wake(sessionId)
    }
    cores.push(played)
    return played
  }
  afterEach(async () => {
    await stage.provider.close()
    await Promise.all(cores.map((core) => core.stop()))
    cores = []
    await stage.database.shiftClock(0)
    await stage.database.prove()
    if (!stage.leavesReplies) stage.provider.expectDone()
  })
  afterAll(async () => {
    await stage.database?.drop()
  })
  return stage
}

export async function newSession({ core }: Played, model = 'compatible/scripted'): Promise<string> {
  const sessionId = newSessionId()
  expect(await createSession(core, tenant, { sessionId, model })).toMatchObject({ created: true })
  return sessionId
}

/** Admits a prompt; gives its id. */
export async function admit(
  { core }: Played,
  sessionId: string,
  text: string,
  more: Partial<AdmitPromptInput> = {},
): Promise<string> {
  const messageId = newMessageId()
  const outcome = await admitPrompt(core, tenant, { sessionId, messageId, text, ...more })
  expect(outcome).toMatchObject({ type: 'PromptAdmission', outcome: 'ADMITTED' })
  return messageId
}

/** Events of the session in order, of one type or all. */
export async function events<T extends EventType>(
  { core }: Played,
  sessionId: string,
  type?: T,
): Promise<{ type: EventType; seq: number; appendId: string; payload: EventPayloads[T] }[]> {
  const where = { sessionId, ...(type ? { type } : {}) }
  return (await core.db.event.findMany({ where, orderBy: { seq: 'asc' } })) as never
}

export const typesOf = async (core: Played, sessionId: string) =>
  (await events(core, sessionId)).map(({ type }) => type)

export const inputOf = ({ core }: Played, id: string) => core.db.input.findUniqueOrThrow({ where: { id } })
export const sessionOf = ({ core }: Played, id: string) => core.db.session.findUniqueOrThrow({ where: { id } })
export const claimOf = ({ core }: Played, sessionId: string) => core.db.claim.findUnique({ where: { sessionId } })

/** Everything that is stored of a session, to show that nothing was written. */
export const everything = ({ core }: Played, sessionId: string) => everythingOf(core.db, sessionId)

/** As the API shows it. */
export const statusIn = ({ core }: Played, sessionId: string) => statusOfOne(core.db, sessionId, core.config.scanMs)

/** The conversation as a request carries it: `user: a`, `assistant: b`, `tool: …`. */
export const conversation = ({ body }: RecordedRequest): string[] =>
  body.messages.map(
    ({ role, content }) => `${role}: ${typeof content === 'string' ? content : JSON.stringify(content)}`,
  )

export const usersIn = (request: RecordedRequest): string[] =>
  conversation(request).flatMap((line) => (line.startsWith('user: ') ? [line.slice(6)] : []))

/** Waits until no core has anything queued or running. */
export async function atRest(...cores: Played[]): Promise<void> {
  for (;;) {
    for (const { core } of cores) await core.coordinator.idle()
    if (cores.every(({ core: { coordinator } }) => coordinator.size().queued + coordinator.size().running === 0)) return
  }
}

/** `act` says what becomes of each append of this core that carries an event of `type`. */
export const atAppend = ({ core }: Played, type: EventType, act: Act) => standAtAppend(core, hasEvent(type), act)

/**
 * What recovery decides for the execution of a dead owner, by hand: phase READY leaves everything as it is, phase UNKNOWN fails the
 * open step. Gives the continuation's id.
 */
export async function recoverByHand({ core }: Played, sessionId: string): Promise<string> {
  const claim = await core.db.claim.findUniqueOrThrow({ where: { sessionId } })
  const { executionId, owner, phase } = claim
  if (phase !== 'READY' && phase !== 'UNKNOWN') throw new Error(`not made for ${phase}`)
  const open = await readOpen(core.db, sessionId)
  const error = { code: 'OUTCOME_UNKNOWN' as const, message: 'its process is gone' }
  const continuationMessageId = continuationIdOf(executionId)
  const assistantMessageId = open.step?.messageId ?? null
  const outcome = await core.eventLog.append({
    sessionId,
    fence: { executionId, owner, phases: [phase], live: false },
    claim: { kind: 'remove' },
    expectedSeq: open.seq,
    events: [
      ...endParts(open),
      ...failTools(open, () => error),
      ...(open.step === null
        ? []
        : [event('step.failed', { messageId: open.step.messageId, error, usage: noUsage, continues: false })]),
      event('step.recovered', { executionId, assistantMessageId, continuationMessageId, phase, handover: false }),
    ],
  })
  expect(outcome).toMatchObject({ kind: 'appended' })
  return continuationMessageId
}

export { eventually }
