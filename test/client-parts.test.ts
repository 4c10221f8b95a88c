import { readFile } from 'node:fs/promises'
import { expect, it } from 'vitest'
import {
  AdmitPromptDocument,
  newMessageId,
  newSessionId,
  ProblemError,
  problemOfThrown,
  type Transport,
  untilAnswered,
  webSocketOptions,
} from '../src/client/index.ts'
import { isClientId } from '../src/ids.ts'

it('ADM-23: the ids that the client makes are valid by the rule of the server, and no two are the same', () => {
  const sessions = Array.from({ length: 1000 }, newSessionId)
  const messages = Array.from({ length: 1000 }, newMessageId)
  expect(sessions.every((id) => isClientId('ses_', id))).toBe(true)
  expect(messages.every((id) => isClientId('msg_', id))).toBe(true)
  expect(new Set([...sessions, ...messages]).size).toBe(2000)
})

const input = { sessionId: 'ses_12345678', messageId: 'msg_12345678', text: 'hi' }
const soon = {
  after(_ms: number, fn: () => void) {
    queueMicrotask(fn)
    return () => {}
  },
  random: () => 0,
}

/** A transport that answers with these, one after the other. */
function answering(...answers: (object | Error)[]) {
  const asked: unknown[] = []
  const transport = {
    execute: async (_document: unknown, variables: unknown) => {
      asked.push(structuredClone(variables))
      const answer = answers[Math.min(asked.length, answers.length) - 1]
      if (answer instanceof Error) throw answer
      return answer
    },
  } as Pick<Transport, 'execute'>
  return { transport, asked }
}

const failing = (code: string) => ({ errors: [{ message: 'no', extensions: { code } }] })
const conflict = { __typename: 'PromptConflictError', message: 'taken', differingFields: ['text'] }

it('ADM-23: a mutation is sent again, the same, while nobody answers; an error of the union is an answer', async () => {
  const lost = Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' })
  const { transport, asked } = answering(lost, failing('UNAVAILABLE'), { data: { admitPrompt: conflict } })
  expect(await untilAnswered(transport, AdmitPromptDocument, { input }, { clock: soon })).toEqual({
    admitPrompt: conflict,
  })
  expect(asked).toEqual([{ input }, { input }, { input }])
})

it('a mutation is not sent again when that would not mend it, or has been tried as often as was said, or is given up', async () => {
  const invalid = answering(failing('GRAPHQL_VALIDATION_FAILED'))
  const sent = (transport: Pick<Transport, 'execute'>, options: object) =>
    untilAnswered(transport, AdmitPromptDocument, { input }, { clock: soon, ...options })
  await expect(sent(invalid.transport, {})).rejects.toThrow(ProblemError)
  expect(invalid.asked).toHaveLength(1)
  const away = answering(failing('UNAVAILABLE'))
  await expect(sent(away.transport, { retries: 3 })).rejects.toMatchObject({ problem: { code: 'UNAVAILABLE' } })
  expect(away.asked).toHaveLength(4)
  const closing = new AbortController()
  const given = sent(away.transport, { signal: closing.signal, clock: { after: () => () => {}, random: () => 0 } })
  closing.abort(new Error('the page is left'))
  await expect(given).rejects.toThrow('the page is left')
})

it('a problem is recognized in whatever a library wraps it', () => {
  const coded = [{ message: 'no', extensions: { code: 'NOT_FOUND' } }]
  const cases: [unknown, string, boolean][] = [
    [coded, 'NOT_FOUND', false],
    [{ errors: coded }, 'NOT_FOUND', false],
    [{ graphQLErrors: coded }, 'NOT_FOUND', false],
    [{ graphQLErrors: [], networkError: new Error('refused') }, 'NETWORK', true],
    [{ name: 'ServerError', statusCode: 503, message: 'away' }, 'HTTP_503', true],
    [{ networkError: new Error('no'), response: { status: 401 } }, 'UNAUTHENTICATED', false],
    [{ code: 4403, reason: 'UNAUTHENTICATED: expired' }, 'UNAUTHENTICATED', false],
    [{ code: 1006, reason: '' }, 'NETWORK', true],
    [{ code: 1013, reason: 'UNAVAILABLE' }, 'NETWORK', true],
    [new AggregateError([new Error('a'), new Error('b')], 'all refused'), 'NETWORK', true],
    [undefined, 'NETWORK', true],
    ['text', 'NETWORK', true],
  ]
  for (const [thrown, code, again] of cases) expect(problemOfThrown(thrown)).toMatchObject({ code, again })
})

it('what docs/clients.md says of repeating is what the client does, code by code', async () => {
  const text = await readFile(new URL('../docs/clients.md', import.meta.url), 'utf8')
  const table = /\*\*GraphQL errors\*\*[\s\S]*?\n\n([\s\S]*?)\n\n/.exec(text)![1]!
  const rows = table.split('\n').slice(2)
  expect(rows.length).toBeGreaterThan(5)
  const codes = (row: string) => [...row.split('|')[1]!.matchAll(/`(\w+)`/g)].map(([, code]) => code!)
  const told = rows.flatMap((row) => codes(row).map((code) => [code, row.split('|')[2]!.trim().startsWith('repeat')]))
  const done = told.map(([code]) => [code, problemOfThrown([{ message: 'no', extensions: { code } }]).again])
  expect(done).toEqual(told)
  expect(told.filter(([, again]) => again).map(([code]) => code)).toEqual([
    'UNAVAILABLE',
    'OVERLOADED',
    'RATE_LIMITED',
    'INTERNAL_SERVER_ERROR',
  ])
  expect(text).toContain('When to repeat: no answer, HTTP 5xx, 408 or 429')
  for (const [status, again] of [
    [500, true],
    [503, true],
    [408, true],
    [429, true],
    [400, false],
    [404, false],
    [413, false],
  ])
    expect(problemOfThrown({ status, message: 'no' }), String(status)).toMatchObject({ again })
  expect(problemOfThrown([{ message: 'no', extensions: { code: 'SOMETHING_NEW' } }]).again).toBe(true)
})

it('SEC-03: each connection asks for the token as it is then', async () => {
  let n = 0
  const options = webSocketOptions({ url: 'ws://127.0.0.1/graphql', token: async () => (++n < 3 ? `t${n}` : null) })
  expect(await options.connectionParams()).toEqual({ authorization: 'Bearer t1' })
  expect(await options.connectionParams()).toEqual({ authorization: 'Bearer t2' })
  expect(await options.connectionParams()).toEqual({})
})
