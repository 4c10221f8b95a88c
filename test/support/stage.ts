// The scene of the runner's tests: a database of its own for the file, a scripted provider and whole cores for each test, and a proof
// after each test that every session's tables are what its log says.
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest'
import type { ToolDefinition } from '../../src/config.ts'
import { connect, type Db } from '../../src/db.ts'
import { type EventPayloads, type EventType, event, type StoredEvent } from '../../src/events.ts'
import { type AdmitPromptInput, admitPrompt } from '../../src/runner/admit.ts'
import type { Core } from '../../src/runner/core.ts'
import { interruptSession } from '../../src/runner/interrupt.ts'
import { type TestClock, testClock } from './clock.ts'
import { type CoreOptions, eventually, startCore, type TestCore } from './core.ts'
import { createTestDatabase, type TestDatabase } from './database.ts'
import { type Fault, fault } from './faults.ts'
import { type Provider, type RecordedRequest, startProvider } from './provider.ts'

export const tenant = 'default'

let made = 0
export const newId = (prefix: 'ses_' | 'msg_') => `${prefix}stage${process.pid}x${++made}`.padEnd(14, '_')

export interface Stage {
  readonly provider: Provider
  readonly database: TestDatabase
  /** Reads beside every core. */
  readonly db: Db
  /** The clock of every core of this test. */
  readonly clock: TestClock
  /** Set by a test that leaves replies over, or asks for more than were scripted, on purpose. */
  leavesReplies: boolean
  /** A core that ends with the test. Its model is the scripted provider. */
  start(options?: Partial<CoreOptions>): Promise<TestCore>
  /** A new session with the scripted model. */
  session(over?: Partial<EventPayloads['session.created']>): Promise<string>
  events(sessionId: string): Promise<StoredEvent[]>
  types(sessionId: string): Promise<EventType[]>
  /** Types of the events, one list for each commit. */
  commits(sessionId: string): Promise<EventType[][]>
  payloads<T extends EventType>(sessionId: string, type: T): Promise<EventPayloads[T][]>
  /** Waits for the n-th event of this type. */
  logged<T extends EventType>(sessionId: string, type: T, n?: number): Promise<EventPayloads[T]>
  claim(sessionId: string): ReturnType<Db['claim']['findUnique']>
}

export function useStage(): Stage {
  let database: TestDatabase
  let db: Db
  let provider: Provider
  let clock: TestClock
  let cores: TestCore[] = []

  beforeAll(async () => {
    database = await createTestDatabase()
    db = connect(database.url, 3)
  })
  afterAll(async () => {
    await db?.$disconnect()
    await database?.drop()
  })
  beforeEach(async () => {
    provider = await startProvider()
    clock = testClock()
    cores = []
    stage.leavesReplies = false
  })
  afterEach(async () => {
    // What still hangs must not hold the test up: the request is gone, and with it the drain.
    await provider.close()
    await Promise.all(cores.map((each) => each.kill()))
    await database.prove()
    if (!stage.leavesReplies) provider.expectDone()
  })

  const events = async (sessionId: string) =>
    (await db.event.findMany({ where: { sessionId }, orderBy: { seq: 'asc' } })) as unknown as StoredEvent[]
  const payloads = async <T extends EventType>(sessionId: string, type: T) =>
    (await events(sessionId)).filter((each) => each.type === type).map(({ payload }) => payload as EventPayloads[T])

  const stage: Stage = {
    leavesReplies: false,
    get provider() {
      return provider
    },
    get database() {
      return database
    },
    get db() {
      return db
    },
    get clock() {
      return clock
    },
    async start({ models, config, ...rest } = {}) {
      const started = await startCore({
        url: database.url,
        models: { compatible: { baseUrl: provider.baseUrl }, ...models },
        config: { model: 'compatible/scripted', pollMs: 50, ...config },
        clock,
        ...rest,
      })
      cores.push(started)
      return started
    },
    async session(over = {}) {
      const id = newId('ses_')
      const core = cores[0]?.core
      if (core === undefined) throw new Error('a core has to be there before a session')
      const created = { tenant, title: null, instructions: null, model: 'compatible/scripted', ...over }
      await core.eventLog.append({ sessionId: id, events: [event('session.created', created)] })
      return id
    },
    events,
    types: async (sessionId) => (await events(sessionId)).map(({ type }) => type),
    async commits(sessionId) {
      const lists = new Map<string, EventType[]>()
      for (const { appendId, type } of await events(sessionId)) {
        if (!lists.has(appendId)) lists.set(appendId, [])
        lists.get(appendId)!.push(type)
      }
      return [...lists.values()]
    },
    payloads,
    logged: (sessionId, type, n = 1) =>
      eventually(`${type} ${n}`, async () => (await payloads(sessionId, type))[n - 1]),
    claim: (sessionId) => db.claim.findUnique({ where: { sessionId } }),
  }
  return stage
}

/** Admits a prompt, which starts it unless `resume` is false; gives its id. */
export async function prompt(
  core: Core,
  sessionId: string,
  text = 'hi',
  over: Partial<AdmitPromptInput> = {},
): Promise<string> {
  const messageId = newId('msg_')
  const admitted = await admitPrompt(core, tenant, { sessionId, messageId, text, ...over })
  expect(admitted).toMatchObject({ type: 'PromptAdmission', outcome: 'ADMITTED' })
  return messageId
}

export const interrupt = (core: Core, sessionId: string, executionId?: string) =>
  interruptSession(core, tenant, { sessionId, executionId })

export { hasEvent, holdAppend, spyAppends } from './at-append.ts'

/** Makes the database itself refuse every append of the session that holds an event of this type. */
export const refuseEvents = ({ database }: Stage, sessionId: string, type: EventType): Promise<Fault> =>
  fault(database.url, { when: `NEW."sessionId" = '${sessionId}' AND NEW.type = '${type}'`, sqlState: 'HF001' })

/** Another process takes the session over behind its owner's back. */
export async function stealClaim(db: Db, sessionId: string): Promise<void> {
  const changed = await db.claim.updateMany({
    where: { sessionId },
    data: { owner: 'own_.thief', executionId: 'exe_.thief' },
  })
  expect(changed.count).toBe(1)
}

/** A tool whose runs a test sees and ends. */
export function probe(name: string, over: Partial<ToolDefinition> = {}) {
  const runs: {
    input: unknown
    context: Parameters<ToolDefinition['execute']>[1]
    finish: (output?: unknown) => void
    fail: (error: Error) => void
  }[] = []
  const tool: ToolDefinition = {
    name,
    description: `the tool ${name}`,
    inputSchema: { type: 'object' },
    execute: (input, context) =>
      new Promise((resolve, reject) => {
        runs.push({ input, context, finish: (output = 'done') => resolve(output as never), fail: reject })
      }),
    ...over,
  }
  return {
    tool,
    runs,
    /** Resolves when run `n` (from 0) has begun. */
    async run(n = 0) {
      return eventually(`run ${n} of ${name}`, async () => runs[n])
    },
  }
}

/** A tool that answers at once, and counts. */
export function instant(name: string, answer: (input: never) => unknown = () => 'done') {
  const ran: unknown[] = []
  const tool: ToolDefinition = {
    name,
    description: `the tool ${name}`,
    inputSchema: { type: 'object' },
    execute(input) {
      ran.push(input)
      return answer(input as never) as never
    },
  }
  return { tool, ran }
}

/** The messages of a request as `role: text`, tool calls as `call name args`, results as `result text`. */
export function spoken({ body }: RecordedRequest): string[] {
  return body.messages.flatMap(({ role, content, tool_calls, tool_call_id }) => {
    const text = typeof content === 'string' ? content : JSON.stringify(content)
    if (tool_call_id !== undefined) return [`result ${text}`]
    const calls = (tool_calls ?? []) as { function: { name: string; arguments: string } }[]
    const said = content === null || content === undefined || content === '' ? [] : [`${role}: ${text}`]
    return [...said, ...calls.map((call) => `call ${call.function.name} ${call.function.arguments}`)]
  })
}
