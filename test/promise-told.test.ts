// What a tenant can read holds no path, no address, no SQL and no name of a table, wherever the server fails; its log has what happened.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { type AddressInfo, connect as connectTo, createServer } from 'node:net'
import type { LanguageModelV4 } from '@ai-sdk/provider'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { fetchTransport, webSocketTransport } from '../src/client/index.ts'
import type { ToolDefinition } from '../src/config.ts'
import { AppendRefusedError, BusyError, OverloadedError, UnavailableError, UnknownEventError } from '../src/errors.ts'
import { serveHttp } from '../src/http/serve.ts'
import type { Core } from '../src/runner/core.ts'
import { decideApproval } from '../src/runner/decide.ts'
import { told } from '../src/told.ts'
import { toolWords } from '../src/tool-words.ts'
import { inStep, quiet } from './support/cut-off.ts'
import { fault, onDatabase } from './support/faults.ts'
import { finish, reply, text, toolCalls } from './support/provider.ts'
import { everythingReadable } from './support/readable.ts'
import { newId, prompt, tenant, useStage } from './support/stage.ts'

const place = '/srv/canary-7f3a/data/base/16384'
const address = '10.77.66.55'
/** As the database words it. */
const says = `could not extend file "${place}": column "canary_column" of relation "canary_table" at ${address}:5432`
const canary =
  /canary|10\.77\.66\.55|127\.0\.0\.1:\d|localhost:\d|SELECT|INSERT|holdfast_|node_modules|\.ts:\d|injected|[a-z]_(check|fkey|pkey)\b/i

const stage = useStage()
const lines: Record<string, unknown>[] = []
const log = (line: Record<string, unknown>) => void lines.push(line)
const inLog = (what: RegExp) => lines.filter((line) => what.test(JSON.stringify(line)))

/** The context of each find, so that a red test says where. */
const finds = (read: string) =>
  [...read.matchAll(new RegExp(canary, 'gi'))].map(({ index }) => read.slice(Math.max(0, index - 80), index + 60))

/** Reads everything of these sessions through the server that this core has. */
async function readAll(core: Core, sessionIds: readonly string[]): Promise<string> {
  const server = await serveHttp(core, { host: '127.0.0.1', port: 0, consoleAt: [] })
  try {
    return await everythingReadable(server.url, sessionIds)
  } finally {
    await server.close(1000)
  }
}

/** A port of this machine on which nobody listens. */
async function nobodysPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

const thrownBy = (work: () => Promise<unknown>): Promise<unknown> =>
  work().then(
    () => undefined,
    (thrown) => thrown,
  )

describe('what recovery says of a claim that it sets aside', () => {
  it.each(['23514', '22003', 'HF001', 'P0001', '54000'])(
    'PROMISE-160: is a code and a sentence, whatever the database said with %s; the log has that under the session',
    async (sqlState) => {
      lines.length = 0
      const { core, recovery } = await stage.start({ config: { livenessGraceMs: 60_000 }, log })
      quiet(core)
      const cut = await inStep(core)
      const broken = await fault(stage.database.url, { when: `NEW.type = 'step.recovered'`, sqlState, message: says })
      expect(await recovery.scan()).toMatchObject({ quarantined: 1 })
      await broken.lift()
      const { reason } = await core.db.quarantine.findFirstOrThrow({ where: { sessionId: cut.sessionId } })
      expect(reason).toMatch(/^recovery cannot decide on it \(ROWS\): [\w ,;.]+ session id\.$/)
      const read = await readAll(core, [cut.sessionId])
      expect(read).toContain(reason)
      expect(finds(read)).toEqual([])
      expect(inLog(/canary_table/)).toMatchObject([{ sessionId: cut.sessionId, level: 'error' }])
    },
  )
})

describe('what a call is told', () => {
  const sql = { table: 'Event', when: `NEW.type IN ('session.created', 'prompt.admitted')`, message: says }
  it.each(['23514', '53100', '22003', 'HF001'])(
    'PROMISE-161: over HTTP and over WebSocket is no word of the database, when that answers %s; the log has them under the request id',
    async (sqlState) => {
      lines.length = 0
      const { core } = await stage.start({ log })
      const id = await stage.session()
      const server = await serveHttp(core, { host: '127.0.0.1', port: 0, consoleAt: [] })
      const broken = await fault(stage.database.url, { ...sql, sqlState })
      const { createClient } = await import('graphql-ws')
      const { WebSocket } = await import('ws')
      const client = createClient({ url: `${server.url.replace('http', 'ws')}graphql`, webSocketImpl: WebSocket })
      const answers: string[] = []
      for (const transport of [fetchTransport({ url: `${server.url}graphql` }), webSocketTransport(client)]) {
        const { parse } = await import('graphql')
        const ask = (query: string) => transport.execute(parse(query) as never, {})
        for (const query of [
          `mutation { createSession(input: { sessionId: "${newId('ses_')}" }) { __typename ... on Error { message } } }`,
          `mutation { admitPrompt(input: { sessionId: "${id}", messageId: "${newId('msg_')}", text: "x" }) { __typename ... on Error { message } } }`,
        ]) {
          const answer = await ask(query)
          const { requestId, code } = answer.errors![0]!.extensions as { requestId: string; code: string }
          expect(code).toMatch(/^(UNAVAILABLE|INTERNAL_SERVER_ERROR)$/)
          answers.push(JSON.stringify(answer))
          expect(inLog(/canary_table/).some((line) => line.requestId === requestId)).toBe(true)
        }
      }
      await broken.lift()
      await client.dispose()
      await server.close(1000)
      expect(answers.flatMap(finds)).toEqual([])
    },
    60_000,
  )

  it('PROMISE-162: and what a stream is told when the database refuses to be read, in the middle of it and at its begin', async () => {
    lines.length = 0
    const { core } = await stage.start({ log })
    const id = await stage.session()
    const { url } = stage.database
    const server = await serveHttp(core, { host: '127.0.0.1', port: 0, consoleAt: [] })
    await onDatabase(url, 'ALTER TABLE "Event" RENAME TO canary_table')
    const read = await everythingReadable(server.url, [id])
    await onDatabase(url, 'ALTER TABLE canary_table RENAME TO "Event"')
    await server.close(1000)
    expect(read).toContain('INTERNAL_SERVER_ERROR')
    expect(finds(read)).toEqual([])
    expect(read).not.toMatch(/relation|"Event\\?"|does not exist/)
    // It says nothing about the log.
    expect(read).not.toMatch(/cannot be replayed/)
    expect(inLog(/does not exist/).length).toBeGreaterThan(0)
  })
})

describe('what a session holds of a failure', () => {
  it('PROMISE-163: of its provider: a code; no address, whether nobody answers there or a model of the server throws what the system said', async () => {
    lines.length = 0
    const port = await nobodysPort()
    const refused = await thrownBy(() => once(connectTo({ host: '127.0.0.1', port }), 'connect'))
    const raw = () =>
      Object.assign(new Error(`connect ECONNREFUSED ${address}:11434`), { code: 'ECONNREFUSED', address })
    const thrown: Record<string, unknown> = {
      refused,
      raw: raw(),
      nested: new TypeError('fetch failed', { cause: raw() }),
      several: new AggregateError([raw(), raw()], `all of ${address} failed`),
      text: `${place} is gone`,
      body: { error: { message: says, code: address, type: `${address}` } },
      sql: Object.assign(new Error(says), { code: '42703', table: 'canary_table' }),
      file: await thrownBy(() => readFile(place)),
    }
    const models = Object.fromEntries(
      Object.entries(thrown).flatMap(([name, what]) => [
        [`own/${name}`, { model: ownModel(name, () => Promise.reject(what)) }],
        [
          `own/${name}-streamed`,
          { model: ownModel(name, async () => ({ stream: streaming([{ type: 'error', error: what }]) })) },
        ],
      ]),
    ) as never
    const compatible = { baseUrl: `http://127.0.0.1:${port}/v1` }
    const config = { retryMax: 0, stepRetries: 0 } as never
    const { core } = await stage.start({ models: { models, compatible }, config, log })
    const ids: string[] = []
    for (const model of [...Object.keys(models), 'compatible/any']) {
      const id = await stage.session({ model })
      ids.push(id)
      await prompt(core, id)
      await stage.logged(id, model === 'never' ? 'step.failed' : 'step.retry_scheduled').catch(() => {})
    }
    const read = await readAll(core, ids)
    expect(read).toMatch(/PROVIDER_UNAVAILABLE/)
    expect(finds(read)).toEqual([])
  })

  it('PROMISE-164: of its tools: their own words, and of what the system told them the code alone; of an MCP server that is away neither command nor address', async () => {
    lines.length = 0
    const port = await nobodysPort()
    const threw: Record<string, () => Promise<unknown>> = {
      file: () => readFile(place),
      link: async () => (await import('node:fs')).linkSync(place, `${place}2`),
      refused: () => once(connectTo({ host: '127.0.0.1', port }), 'connect'),
      program: () => once(spawn(`${place}/bin`), 'spawn'),
      name: async () => (await import('node:dns/promises')).lookup('canary.invalid'),
      http: () => fetch(`http://127.0.0.1:${port}/canary`),
      module: () => import(/* @vite-ignore */ `${place}/nothing.mjs`),
      prisma: async () => {
        throw Object.assign(new Error(`Invalid invocation in ${place}/a.ts:1:2`), {
          name: 'PrismaClientKnownRequestError',
          code: 'P2002',
        })
      },
      getter: async () => ({
        get value() {
          return rethrow(systemError)
        },
      }),
      own: async () => {
        throw new Error('the customer has no such invoice: 2024-17')
      },
    }
    const systemError = await thrownBy(() => readFile(place))
    const tools: ToolDefinition[] = Object.entries(threw).map(([name, execute]) => ({
      name,
      description: name,
      inputSchema: { type: 'object' },
      execute: execute as never,
    }))
    const rule = {
      ...tools[0]!,
      name: 'rule',
      inputSchema: z.object({ a: z.string().refine(() => rethrow(systemError)) }),
    }
    const asks = {
      ...rule,
      name: 'asks',
      inputSchema: z.object({
        b: z.string().optional(),
        a: z.string().refine((a) => a === 'fine' || rethrow(systemError)),
      }),
      needsApproval: true,
    }
    const { core } = await stage.start({
      tools: [...tools, rule, asks],
      config: {
        mcpServers: {
          gone: { command: `${place}/bin`, args: [], env: {} },
          away: { url: `http://127.0.0.1:${port}/canary`, headers: {} },
        },
      } as never,
      log,
    })
    const id = await stage.session()
    const names = [...Object.keys(threw), 'rule']
    stage.provider.script(
      reply(
        toolCalls(...names.map((name) => ({ name, args: { a: 'x' }, id: `call_${name}` })), {
          name: 'asks',
          args: { a: 'fine' },
          id: 'call_asks',
        }),
        finish('tool_calls'),
      ),
      reply(text('ok'), finish()),
    )
    await prompt(core, id)
    const { interactionId } = await stage.logged(id, 'interaction.requested')
    const edited = { interactionId, decision: 'APPROVE' as const, editedInput: { a: 'other' } }
    const refusal = await decideApproval(core, tenant, edited)
    expect(refusal).toMatchObject({
      type: 'InvalidInputError',
      message: expect.stringContaining('cannot be checked: ENOENT'),
    })
    expect(finds(JSON.stringify(refusal))).toEqual([])
    await decideApproval(core, tenant, { interactionId, decision: 'DECLINE_AND_CONTINUE' })
    await core.coordinator.idle()
    const failed = Object.fromEntries(
      (await stage.payloads(id, 'tool.failed')).map(({ callId, error }) => [callId.slice(5), error.message]),
    )
    expect(failed).toMatchObject({
      file: 'ENOENT: no such file or directory, open',
      link: 'ENOENT: no such file or directory, link',
      refused: 'ECONNREFUSED: connection refused, connect',
      program: 'ENOENT: no such file or directory, spawn',
      http: 'fetch failed',
      prisma: 'PrismaClientKnownRequestError P2002',
      getter: expect.stringContaining('ENOENT'),
      rule: 'input: cannot be checked: ENOENT: no such file or directory, open',
      own: 'the customer has no such invoice: 2024-17',
    })
    expect(finds(await readAll(core, [id]))).toEqual([])
    // The model is told the same.
    expect(finds(JSON.stringify(stage.provider.requests.at(-1)!.body.messages))).toEqual([])
    for (const name of ['file', 'refused', 'program', 'prisma'])
      expect(inLog(canary).filter((line) => line.tool === name && line.sessionId === id)).toHaveLength(1)
    expect(inLog(/a rule of a tool's input failed/)).toHaveLength(2)
  })

  it('PROMISE-165: of a log that cannot be replayed: what is wrong with the log; of a database that cannot be read, nothing about the log', async () => {
    lines.length = 0
    const { core } = await stage.start({ log })
    const ids = [await stage.session(), await stage.session()]
    await stage.database.exempt([ids[0]!], 'its log is broken on purpose')
    await onDatabase(
      stage.database.url,
      `SET session_replication_role = replica; UPDATE "Event" SET payload = 'null' WHERE "sessionId" = '${ids[0]}'`,
    )
    const read = await readAll(core, ids)
    expect(read).toMatch(/it cannot be replayed: Unexpected error; the log of the server has it under this session id/)
    expect(read).not.toMatch(/Cannot read|TypeError/)
    expect(inLog(/a log cannot be replayed/)[0]).toMatchObject({ sessionId: ids[0] })
  })
})

it('PROMISE-166: whatever is thrown, its words are none of those that a tenant is told', async () => {
  const database = Object.assign(new Error(says), { name: 'PrismaClientKnownRequestError', code: 'P2010' })
  const thrown = [
    new Error(says),
    database,
    new AppendRefusedError('ses_x', '23514', 'canary_check', says),
    new AppendRefusedError('ses_x', 'XX000', null, says),
    new UnavailableError(says, { cause: database }),
    new BusyError(says),
    Object.assign(new OverloadedError(), { message: says }),
    new UnknownEventError('ses_x', 1, says),
    says,
    { message: says },
    Object.create(null),
    null,
    {
      get code() {
        throw new Error(says)
      },
    },
  ]
  for (const each of thrown)
    for (const under of ['request id', 'session id'] as const) {
      const { code, message } = told(each, under)
      expect(code).toMatch(/^[A-Z_]+$/)
      expect(message).toMatch(/^[A-Za-z ,;.]+$/)
      expect(finds(message)).toEqual([])
    }
  expect(
    toolWords(Object.assign(new Error('ENOENT is what I say'), { code: 'ENOENT', errno: -2, syscall: 'open' })),
  ).toBe('ENOENT is what I say')
})

function rethrow(thrown: unknown): never {
  throw thrown
}

const ownModel = (modelId: string, doStream: () => Promise<unknown>) =>
  ({
    specificationVersion: 'v4',
    provider: 'own',
    modelId,
    supportedUrls: {},
    doGenerate: doStream,
    doStream,
  }) as unknown as LanguageModelV4

const streaming = (parts: unknown[]) =>
  new ReadableStream({
    start(controller) {
      for (const part of parts) controller.enqueue(part)
      controller.close()
    },
  })
