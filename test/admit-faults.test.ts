import { expect, it } from 'vitest'
import { serveHttp } from '../src/http/serve.ts'
import { type AdmitPromptInput, admitPrompt } from '../src/runner/admit.ts'
import { createSession } from '../src/runner/sessions.ts'
import { fault } from './support/faults.ts'
import {
  atAppend,
  atRest,
  events,
  everything,
  inputOf,
  newMessageId,
  newSession,
  newSessionId,
  type Played,
  sessionOf,
  tenant,
  typesOf,
  usersIn,
  useStage,
} from './support/prompt-stage.ts'
import { finish, reply, text } from './support/provider.ts'

const stage = useStage()
const hello = reply(text('hello'), finish())
const sent = ({ core }: Played, call: AdmitPromptInput) => admitPrompt(core, tenant, call)

it('ADM-06: two identical calls at once, to one node or to two, give one row and the same input in both answers', async () => {
  const a = await stage.start()
  const b = await stage.start()
  for (const [one, other] of [
    [a, a],
    [a, b],
  ] as const) {
    const sessionId = await newSession(a)
    const call = { sessionId, messageId: newMessageId(), text: 'hi' }
    stage.provider.script(hello)
    // Of two nodes both have looked before either writes, so that neither can have seen the other; in one node they take turns.
    const nodes = new Set([one, other])
    let looked = 0
    let open = () => {}
    const both = new Promise<void>((resolve) => {
      open = resolve
    })
    for (const { core } of nodes) {
      const { append } = core.eventLog
      core.eventLog.append = async (request) => {
        if (request.events[0]?.type === 'prompt.admitted') {
          if (++looked === nodes.size) open()
          await both
        }
        return append(request)
      }
    }
    const answers = await Promise.all([sent(one, call), sent(other, call)])
    expect(looked).toBe(nodes.size)
    expect(answers.map((answer) => ('outcome' in answer ? answer.outcome : answer.type)).sort()).toEqual([
      expect.stringMatching(/^(ADMITTED)$/),
      expect.stringMatching(/^ALREADY_(ADMITTED|PROMOTED)$/),
    ])
    for (const answer of answers) expect(answer).toMatchObject({ messageId: call.messageId })
    await atRest(a, b)
    expect(await events(a, sessionId, 'prompt.admitted')).toHaveLength(1)
    expect(await a.core.db.input.count({ where: { sessionId } })).toBe(1)
    expect(await events(a, sessionId, 'prompt.promoted')).toHaveLength(1)
  }
  expect(stage.provider.requests).toHaveLength(2)
})

it('ADM-22: an admission whose commit fails is a masked error, writes nothing and wakes nobody; later it is admitted', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const before = await everything(a, sessionId)
  const server = await serveHttp(a.core, { host: '127.0.0.1', port: 0 })
  const messageId = newMessageId()
  const ask = async () => {
    const response = await fetch(`${server.url}graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        query: `mutation ($input: AdmitPromptInput!) { admitPrompt(input: $input) {
          __typename ... on PromptAdmission { outcome executionRequested input { id state } } } }`,
        variables: { input: { sessionId, messageId, text: 'a private text' } },
      }),
    })
    return (await response.json()) as { data?: unknown; errors?: { message: string }[] }
  }
  const injected = await fault(stage.database.url, {
    table: 'Input',
    operation: 'INSERT',
    when: `NEW.id = '${messageId}'`,
    atCommit: true,
  })
  const refused = await ask()
  expect(await injected.fired()).toBeGreaterThan(0)
  expect(refused.errors).toHaveLength(1)
  expect(JSON.stringify(refused)).not.toMatch(/injected|private|refused|SQL|P0001/)
  expect(await everything(a, sessionId)).toEqual(before)
  expect(a.wakes).toEqual([])

  await injected.lift()
  stage.provider.script(hello)
  expect((await ask()).data).toEqual({
    admitPrompt: {
      __typename: 'PromptAdmission',
      outcome: 'ADMITTED',
      executionRequested: true,
      input: { id: messageId, state: expect.any(String) },
    },
  })
  await atRest(a)
  await server.close(1000)
})

it('ADM-23: an answer lost after the commit is asked for again, and the prompt runs once', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const call = { sessionId, messageId: newMessageId(), text: 'hi' }
  const met = atAppend(a, 'prompt.admitted', async (go) => {
    expect(await go()).toMatchObject({ kind: 'appended' })
    throw new Error('the answer is lost')
  })
  await expect(sent(a, call)).rejects.toThrow('the answer is lost')
  expect(met.count).toBe(1)
  // Nobody has been woken: the intent is in the row, and the scan's question finds it.
  expect(a.wakes).toEqual([])
  expect(await inputOf(a, call.messageId)).toMatchObject({ wakePending: true })
  expect(await sent(a, call)).toMatchObject({ outcome: 'ALREADY_ADMITTED', executionRequested: false })
  stage.provider.script(hello)
  a.core.coordinator.wake(sessionId)
  await atRest(a)
  expect(await sent(a, call)).toMatchObject({ outcome: 'ALREADY_PROMOTED' })
  expect(await events(a, sessionId, 'prompt.admitted')).toHaveLength(1)
  expect(stage.provider.requests.map(usersIn)).toEqual([['hi']])
})

it('ADM-24: creation and admission repeated after both answers were lost: one session, one prompt, one run', async () => {
  const a = await stage.start()
  const b = await stage.start()
  const session = { sessionId: newSessionId(), model: 'compatible/scripted', title: 'a title' }
  const call = { sessionId: session.sessionId, messageId: newMessageId(), text: 'hi' }
  const lost = (type: 'session.created' | 'prompt.admitted') =>
    atAppend(a, type, async (go) => {
      expect(await go()).toMatchObject({ kind: 'appended' })
      throw new Error('the answer is lost')
    })
  const met = [lost('session.created'), lost('prompt.admitted')]
  await expect(createSession(a.core, tenant, session)).rejects.toThrow('the answer is lost')
  await expect(sent(a, call)).rejects.toThrow('the answer is lost')
  expect(met.map(({ count }) => count)).toEqual([1, 1])
  stage.provider.script(hello)
  expect(await createSession(b.core, tenant, session)).toEqual({
    type: 'CreateSessionPayload',
    sessionId: session.sessionId,
    created: false,
  })
  // It was asked to run before, and nobody has been woken: the scan finds it.
  expect(await sent(b, call)).toMatchObject({ outcome: 'ALREADY_ADMITTED', executionRequested: false })
  expect(await b.recovery.scan()).toMatchObject({ woken: 1 })
  await atRest(a, b)
  expect(await createSession(b.core, tenant, session)).toMatchObject({ created: false })
  expect(await sent(b, call)).toMatchObject({ outcome: 'ALREADY_PROMOTED' })
  const types = await typesOf(a, session.sessionId)
  for (const once of ['session.created', 'prompt.admitted', 'prompt.promoted', 'execution.started'])
    expect(types.filter((type) => type === once)).toHaveLength(1)
  expect(stage.provider.requests).toHaveLength(1)
})

it('ADM-25: fifty prompts admitted at once on one session are fifty admissions in a log without a gap', async () => {
  const a = await stage.start()
  const b = await stage.start()
  const sessionId = await newSession(a)
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, n) =>
      sent(n % 3 === 0 ? b : a, { sessionId, messageId: newMessageId(), text: `prompt ${n}`, resume: false }),
    ),
  )
  for (const answer of answers) expect(answer).toMatchObject({ outcome: 'ADMITTED' })
  const inputs = await a.core.db.input.findMany({ where: { sessionId }, orderBy: { admittedSeq: 'asc' } })
  expect(inputs.map(({ admittedSeq }) => admittedSeq)).toEqual(Array.from({ length: 50 }, (_, n) => n + 2))
  expect((await events(a, sessionId)).map(({ seq }) => seq)).toEqual(Array.from({ length: 51 }, (_, n) => n + 1))
  expect(await sessionOf(a, sessionId)).toMatchObject({ seq: 51 })
})

it('ADM-26: a process that dies before its admission commits leaves nothing; the client repeats, and it is admitted once', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const call = { sessionId, messageId: newMessageId(), text: 'hi' }
  let killed: Promise<void> | undefined
  const met = atAppend(a, 'prompt.admitted', (go) => {
    killed = a.kill()
    return go()
  })
  await expect(sent(a, call)).rejects.toThrow()
  await killed
  expect(met.count).toBe(1)
  const b = await stage.start()
  expect(await typesOf(b, sessionId)).toEqual(['session.created'])
  stage.provider.script(hello)
  expect(await sent(b, call)).toMatchObject({ outcome: 'ADMITTED', executionRequested: true })
  await atRest(b)
  expect(await events(b, sessionId, 'prompt.admitted')).toHaveLength(1)
  expect(stage.provider.requests).toHaveLength(1)
})
