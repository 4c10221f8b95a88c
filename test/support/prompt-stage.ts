// A stage for prompts and what becomes of them: a database of the file, and for each test a scripted provider and as many whole cores as
// it asks for. When a test is over every session has to be as its log says, and every scripted reply has to have been asked for.

import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest'
import type { AppendOutcome, AppendRequest } from '../../src/event-log.ts'
import { type EventPayloads, type EventType, event, noUsage } from '../../src/events.ts'
import { continuationIdOf } from '../../src/ids.ts'
import { type AdmitPromptInput, admitPrompt } from '../../src/runner/admit.ts'
import { createSession } from '../../src/runner/sessions.ts'
import { endParts, failTools, readOpen } from '../../src/runner/settle-open.ts'
import { statusOf } from '../../src/schema/status.ts'
import { type CoreOptions, eventually, startCore, type TestCore } from './core.ts'
import { createTestDatabase, type TestDatabase } from './database.ts'
import { type Provider, type RecordedRequest, startProvider } from './provider.ts'

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
export async function everything({ core }: Played, sessionId: string): Promise<unknown> {
  const where = { where: { sessionId } }
  return {
    session: await core.db.session.findUniqueOrThrow({ where: { id: sessionId } }),
    events: await core.db.event.findMany({ ...where, orderBy: { seq: 'asc' } }),
    inputs: await core.db.input.findMany({ ...where, orderBy: { id: 'asc' } }),
    messages: await core.db.message.findMany({ ...where, orderBy: { id: 'asc' } }),
    claims: await core.db.claim.findMany(where),
  }
}

/** As the API shows it. */
export async function statusIn({ core }: Played, sessionId: string): Promise<string> {
  const rows = await core.db.$queryRaw<{ status: string }[]>`
    SELECT (${statusOf(core.config.scanMs)})::text AS status FROM "Session" s WHERE s.id = ${sessionId}`
  return rows[0]!.status
}

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

/**
 * Stands in the door of a core's log: `act` is called with each append that carries an event of `type`, and says what becomes of it.
 * Counts, so that a test can tell that it did stand in the way.
 */
export function atAppend(
  { core }: Played,
  type: EventType,
  act: (go: () => Promise<AppendOutcome>, nth: number, request: AppendRequest) => Promise<AppendOutcome>,
): { count: number } {
  const { eventLog } = core
  const { append } = eventLog
  const met = { count: 0 }
  eventLog.append = (request) => {
    if (!request.events.some((one) => one.type === type)) return append(request)
    met.count++
    return act(() => append(request), met.count, request)
  }
  return met
}

/** One statement from beside every core. */
export async function onDatabase({ database }: Stage, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  await client.query(sql)
  await client.end()
}

/**
 * Makes the database itself refuse: `when` is a condition on NEW and OLD. Counts outside of transactions, so that what was rolled back
 * is counted too. `atCommit`: refuses when everything else of the transaction has been done.
 */
export async function fault(
  { database }: Stage,
  {
    table,
    operation,
    when,
    atCommit = false,
  }: { table: string; operation: 'INSERT' | 'UPDATE' | 'DELETE'; when: string; atCommit?: boolean },
): Promise<{ fired(): Promise<number>; mend(): Promise<void> }> {
  const client = new pg.Client({ connectionString: database.url })
  client.on('error', () => {})
  await client.connect()
  const name = `fault_${++ids}`
  await client.query(`
    CREATE SEQUENCE ${name};
    CREATE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM nextval('${name}'); RAISE EXCEPTION 'injected fault'; END $$;
    CREATE ${atCommit ? 'CONSTRAINT' : ''} TRIGGER ${name} ${atCommit ? 'AFTER' : 'BEFORE'} ${operation} ON "${table}"
      ${atCommit ? 'DEFERRABLE INITIALLY DEFERRED' : ''} FOR EACH ROW WHEN (${when}) EXECUTE FUNCTION ${name}()`)
  return {
    async fired() {
      const { rows } = await client.query(`SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS n FROM ${name}`)
      return Number(rows[0].n)
    },
    async mend() {
      await client.query(`DROP FUNCTION ${name}() CASCADE; DROP SEQUENCE ${name}`)
      await client.end()
    },
  }
}

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
