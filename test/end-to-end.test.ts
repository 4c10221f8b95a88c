// The whole way as a web frontend goes it: Apollo Client with HTTP for operations and a WebSocket for subscriptions, typed documents from
// codegen, a real server process's parts, and a scripted provider over HTTP.

import { readFileSync } from 'node:fs'
import { ApolloClient, HttpLink, InMemoryCache } from '@apollo/client/core'
import { ApolloLink } from '@apollo/client/link'
import { GraphQLWsLink } from '@apollo/client/link/subscriptions'
import { buildSchema, isAbstractType, OperationTypeNode } from 'graphql'
import { createClient } from 'graphql-ws'
import { afterAll, beforeAll, expect, it } from 'vitest'
import WebSocket from 'ws'
import * as documents from '../src/client/generated/graphql.ts'
import { emptyView, reduce } from '../src/client/reduce.ts'
import { loadConfig } from '../src/config.ts'
import { createLog } from '../src/log.ts'
import { type Running, start } from '../src/start.ts'
import { eventually } from './support/core.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import {
  finish,
  finishing,
  type Provider,
  reasoning,
  reply,
  startProvider,
  text,
  toolCalls,
} from './support/provider.ts'

let database: TestDatabase
let provider: Provider
let server: Running
let socket: ReturnType<typeof createClient>
let client: ApolloClient

/** What Apollo has to know of interfaces and unions, from the printed schema. */
function possibleTypes(): Record<string, string[]> {
  const schema = buildSchema(readFileSync(new URL('../schema.graphql', import.meta.url), 'utf8'))
  const abstract = Object.values(schema.getTypeMap()).filter(isAbstractType)
  return Object.fromEntries(abstract.map((type) => [type.name, schema.getPossibleTypes(type).map(({ name }) => name)]))
}

beforeAll(async () => {
  database = await createTestDatabase()
  provider = await startProvider()
  const config = await loadConfig({
    env: {
      DATABASE_URL: database.url,
      PORT: '0',
      OPENAI_COMPATIBLE_BASE_URL: provider.baseUrl,
      HOLDFAST_MODEL: 'compatible/scripted',
    },
    cwd: import.meta.dirname,
  })
  server = await start({ config, log: createLog('silent') })
  socket = createClient({ url: `${server.url.replace('http', 'ws')}graphql`, webSocketImpl: WebSocket, lazy: true })
  const http = new HttpLink({ uri: `${server.url}graphql`, fetch: losing })
  const isSubscription: Parameters<typeof ApolloLink.split>[0] = ({ operationType }) =>
    operationType === OperationTypeNode.SUBSCRIPTION
  client = new ApolloClient({
    link: ApolloLink.split(isSubscription, new GraphQLWsLink(socket), http),
    cache: new InMemoryCache({ possibleTypes: possibleTypes() }),
    defaultOptions: { query: { fetchPolicy: 'no-cache' }, mutate: { fetchPolicy: 'no-cache' } },
  })
})
afterAll(async () => {
  client?.stop()
  await socket?.dispose()
  await server?.close()
  await provider?.close()
  await database?.drop()
})

/** Answers that are still to be lost, and those that were: the server has said everything, and the client hears nothing of it. */
const answers = { toLose: 0, lost: 0 }
const losing: typeof fetch = async (...request) => {
  const response = await fetch(...request)
  if (answers.toLose === 0) return response
  answers.toLose--
  expect(response.status).toBe(200)
  await response.text()
  answers.lost++
  throw new TypeError('fetch failed')
}

let made = 0
const newId = (prefix: 'ses_' | 'msg_') => `${prefix}apollo${process.pid}-${++made}`

async function newSession(): Promise<string> {
  const sessionId = newId('ses_')
  const { data } = await client.mutate({
    mutation: documents.CreateSessionDocument,
    variables: { input: { sessionId, title: 'A walk' } },
  })
  expect(data?.createSession).toMatchObject({ __typename: 'CreateSessionPayload', created: true })
  return sessionId
}

const admit = (sessionId: string, words: string, messageId = newId('msg_')) =>
  client.mutate({
    mutation: documents.AdmitPromptDocument,
    variables: { input: { sessionId, messageId, text: words } },
  })

type Item = NonNullable<documents.SessionEventsSubscription['sessionEvents']>

function follow(sessionId: string, after: number, take: (item: Item) => void) {
  return client
    .subscribe({ query: documents.SessionEventsDocument, variables: { sessionId, after }, fetchPolicy: 'no-cache' })
    .subscribe({ next: ({ data }) => data && take(data.sessionEvents) })
}

const snapshot = async (id: string) =>
  (await client.query({ query: documents.SessionSnapshotDocument, variables: { id } })).data!.session!

it('STREAM-09: a prompt over Apollo: text, reasoning and two parallel tool calls stream in, then the answer', async () => {
  provider.script(
    reply(
      reasoning('which ', 'clock'),
      text('Let me ', 'see.'),
      toolCalls({ name: 'current_time', args: {}, id: 'call_a' }, { name: 'wait', args: { ms: 5 }, id: 'call_b' }),
      finishing('tool_calls'),
      finish('tool_calls', { input: 7, output: 3 }).slice(1),
    ),
    reply(text('It is ', 'late.'), finish('stop', { input: 20, output: 4 })),
  )
  const sessionId = await newSession()
  const items: Item[] = []
  const subscription = follow(sessionId, 0, (item) => items.push(item))
  const { data } = await admit(sessionId, 'What time is it?')
  expect(data?.admitPrompt).toMatchObject({ __typename: 'PromptAdmission', outcome: 'ADMITTED' })
  await eventually('the end', async () => items.some((item) => item.__typename === 'ExecutionSettled'))
  subscription.unsubscribe()

  const types = items.filter(({ seq }) => seq !== null).map(({ __typename }) => __typename)
  expect(types.filter((type) => type === 'ToolStarted')).toHaveLength(2)
  expect(items.filter(({ seq }) => seq !== null).map(({ seq }) => seq)).toEqual(types.map((_, n) => n + 1))
  const deltas = items.filter((item) => item.__typename === 'TextDelta')
  const ended = items.filter((item) => item.__typename === 'TextEnded')
  for (const { messageId, index, text: whole } of ended) {
    const own = deltas.filter((delta) => delta.messageId === messageId && delta.index === index)
    expect(own.map((delta) => delta.text).join('')).toBe(whole)
  }

  // What the provider was asked: the calls and their results stand in the second request.
  const [first, second] = provider.requests
    .slice(-2)
    .map(({ body }) => body as { messages: { role: string }[]; tools: unknown[] })
  expect(first!.messages).toMatchObject([{ role: 'user', content: 'What time is it?' }])
  expect(first!.tools.length).toBeGreaterThan(1)
  expect(second!.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'tool'])

  // A client that folded the events holds what a reload shows.
  const view = items.reduce((folded, item) => reduce(folded, item as never), emptyView(sessionId))
  const shown = await snapshot(sessionId)
  expect(shown).toMatchObject({ status: 'IDLE', seq: types.length, title: 'A walk' })
  const parts = (list: readonly { text?: string }[]) =>
    list.flatMap((part) => (part.text === undefined ? [] : [part.text]))
  const answers = shown.messages.edges.flatMap(({ node }) =>
    node.__typename === 'AssistantMessage' ? [parts(node.parts as { text?: string }[])] : [],
  )
  expect(answers).toEqual([['which clock', 'Let me see.'], ['It is late.']])
  expect(
    view.messages.flatMap((message) => ('parts' in message ? [parts(message.parts as { text?: string }[])] : [])),
  ).toEqual(answers)
  const verified = await client.query({ query: documents.VerifySessionDocument, variables: { id: sessionId } })
  expect(verified.data!.verifySession).toMatchObject({ consistent: true, differences: [] })
})

it('ADM-23, ADM-24: both calls sent again after lost answers: one session, one prompt, one run', async () => {
  provider.script(reply(text('once'), finish()))
  const sessionId = newId('ses_')
  const messageId = newId('msg_')
  const create = () =>
    client.mutate({ mutation: documents.CreateSessionDocument, variables: { input: { sessionId, title: 'A walk' } } })
  answers.toLose = 1
  await expect(create()).rejects.toThrow('fetch failed')
  answers.toLose = 1
  await expect(admit(sessionId, 'hi', messageId)).rejects.toThrow('fetch failed')
  expect(answers).toEqual({ toLose: 0, lost: 2 })
  expect((await create()).data?.createSession).toMatchObject({ created: false })
  for (let n = 0; n < 3; n++) {
    const { data } = await admit(sessionId, 'hi', messageId)
    const outcome = data?.admitPrompt.__typename === 'PromptAdmission' ? data.admitPrompt.outcome : null
    expect(['ALREADY_ADMITTED', 'ALREADY_PROMOTED']).toContain(outcome)
  }
  await eventually('rest', async () => (await snapshot(sessionId)).status === 'IDLE')
  const asked = provider.requests.filter(({ body }) => JSON.stringify(body).includes('"hi"'))
  expect(asked).toHaveLength(1)
})

it('STREAM-02, STREAM-26: a client that drops and comes back many times sees each durable event once, in order', async () => {
  const words = Array.from({ length: 400 }, (_, n) => `word${n} `)
  provider.script(reply(text(...words), finish()))
  const sessionId = await newSession()
  const seen: number[] = []
  await admit(sessionId, 'tell me')
  let isOver = false
  for (let visits = 0; !isOver && visits < 200; visits++) {
    await new Promise<void>((resolve) => {
      let taken = 0
      const subscription = follow(sessionId, seen.at(-1) ?? 0, (item) => {
        if (item.seq !== null && item.seq !== undefined) seen.push(item.seq)
        isOver ||= item.__typename === 'ExecutionSettled'
        // Away in the middle of things: after one durable event, or a few live ones.
        if (isOver || item.seq !== null || ++taken > 3) {
          subscription.unsubscribe()
          resolve()
        }
      })
    })
  }
  const { seq } = await snapshot(sessionId)
  expect(seen).toEqual(Array.from({ length: seq }, (_, n) => n + 1))
  await eventually('no listener left', async () => server.core.live.listeners() === 0)
})
