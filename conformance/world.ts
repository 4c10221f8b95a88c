import { randomUUID } from 'node:crypto'
import { poll } from './arrivals.ts'
import { eventFields } from './contract.ts'
import { type Anything, ask, type Target } from './http.ts'
import { expectEqual, Skipped } from './outcome.ts'
import { type Watching, watchEventStream, watchSocket } from './watching.ts'
import { openSocket, type Socket } from './websocket.ts'

export type Transport = 'sse' | 'websocket'
export const transports: readonly Transport[] = ['sse', 'websocket']

/** An item of a stream, or an event of `Session.events`: they look the same. */
export interface Item {
  __typename: string
  seq: number | null
  sessionId: string
  at: string
  [field: string]: Anything
}

/** What one check works with. All sessions are its own; `end` stops what still runs in them and puts them into the archive. */
export interface World {
  target: Target
  ask(query: string, variables?: Record<string, unknown>): Promise<Anything>
  /** A new session; answers its id. */
  session(over?: Record<string, unknown>): Promise<string>
  /** Has to be called for a session that the check creates by itself. */
  own(sessionId: string): string
  admit(sessionId: string, text: string, over?: Record<string, unknown>): Promise<Anything>
  /** Admits a prompt and waits until the session is at rest again; answers its log. */
  run(sessionId: string, text: string): Promise<Item[]>
  /** Waits until the last event is the end of an execution, and answers the log. */
  rest(sessionId: string, executions?: number): Promise<Item[]>
  /** Waits until the log has an event of this type; answers it. */
  logged(sessionId: string, typename: string, n?: number): Promise<Item>
  log(sessionId: string, after?: number): Promise<Item[]>
  seq(sessionId: string): Promise<number>
  watch(sessionId: string, after?: number, via?: Transport): Promise<Watching>
  socket(options?: Parameters<typeof openSocket>[1]): Promise<Socket>
  /** Closes what is still open, and fails if the log of a session does not replay to what its tables say. */
  end(): Promise<void>
}

export const newSessionId = () => `ses_${randomUUID()}`
export const newMessageId = () => `msg_${randomUUID()}`

const create = `mutation ($input: CreateSessionInput!) { createSession(input: $input) {
  __typename
  ... on CreateSessionPayload { created session { id } }
  ... on Error { message }
} }`
export const admission = `mutation ($input: AdmitPromptInput!) { admitPrompt(input: $input) {
  __typename
  ... on PromptAdmission { outcome executionRequested input { id state wakePending delivery admittedSeq promotedSeq createdAt text attachments { name mediaType url } } }
  ... on Error { message }
  ... on PromptConflictError { sessionId messageId differingFields }
  ... on SessionNotFoundError { sessionId }
  ... on InvalidInputError { field }
  ... on LimitExceededError { limit retryAfterMs }
} }`
const read = `query ($id: ID!, $after: Int) { session(id: $id) { events(after: $after, first: 1000) ${eventFields} } }`
const leave = `mutation ($id: ID!) {
  interruptSession(input: { sessionId: $id }) { __typename }
  archiveSession(input: { sessionId: $id }) { __typename }
}`

export function createWorld(target: Target): World {
  const sessions: string[] = []
  const open: { close(): void }[] = []
  const keep = <T extends { close(): void }>(one: T): T => {
    open.push(one)
    return one
  }

  const world: World = {
    target,
    ask: (query, variables) => ask(target, query, variables),
    async session(over = {}) {
      const input = { sessionId: newSessionId(), title: 'conformance', model: target.model, ...over }
      sessions.push(input.sessionId)
      const { createSession } = await world.ask(create, { input })
      if (createSession.__typename === 'LimitExceededError') throw new Skipped(createSession.message)
      expectEqual('createSession', createSession, {
        __typename: 'CreateSessionPayload',
        created: true,
        session: { id: input.sessionId },
      })
      return input.sessionId
    },
    own(sessionId) {
      sessions.push(sessionId)
      return sessionId
    },
    async admit(sessionId, text, over = {}) {
      const input = { sessionId, messageId: newMessageId(), text, ...over }
      return (await world.ask(admission, { input })).admitPrompt
    },
    async run(sessionId, text) {
      const before = (await world.log(sessionId)).filter(isExecutionStart).length
      await world.admit(sessionId, text)
      return world.rest(sessionId, before + 1)
    },
    rest: (sessionId, executions = 1) =>
      poll(
        `the end of ${executions} executions`,
        () => world.log(sessionId),
        (log) => log.filter(isExecutionStart).length >= executions && log.at(-1)?.__typename === 'ExecutionSettled',
      ),
    async logged(sessionId, typename, n = 1) {
      const found = (log: Item[]) => log.filter((item) => item.__typename === typename)[n - 1]
      const log = await poll(
        `${typename} ${n} in the log`,
        () => world.log(sessionId),
        (each) => found(each) !== undefined,
      )
      return found(log)!
    },
    async log(sessionId, after = 0) {
      const items: Item[] = []
      for (;;) {
        const page: Item[] = (await world.ask(read, { id: sessionId, after: items.at(-1)?.seq ?? after })).session
          .events
        items.push(...page)
        if (page.length < 1000) return items
      }
    },
    seq: async (sessionId) =>
      (await world.ask('query ($id: ID!) { session(id: $id) { seq } }', { id: sessionId })).session.seq,
    async watch(sessionId, after = 0, via = 'websocket') {
      if (via === 'sse') return keep(await watchEventStream(target, sessionId, after))
      return keep(watchSocket(await world.socket(), sessionId, after))
    },
    socket: async (options) => keep(await openSocket(target, options)),
    async end() {
      for (const one of open.splice(0)) one.close()
      for (const id of sessions.splice(0)) {
        await world.ask(leave, { id })
        const { verifySession } = await world.ask(
          'query ($id: ID!) { verifySession(id: $id) { consistent differences } }',
          { id },
        )
        expectEqual(`verifySession of ${id}`, verifySession, { consistent: true, differences: [] })
      }
    },
  }
  return world
}

const isExecutionStart = (item: Item) => item.__typename === 'ExecutionStarted'
