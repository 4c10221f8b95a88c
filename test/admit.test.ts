import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it } from 'vitest'
import type { ToolDefinition } from '../src/config.ts'
import { event } from '../src/events.ts'
import { newExecutionId, newQuarantineId } from '../src/ids.ts'
import { resolveQuarantine } from '../src/recovery/quarantine.ts'
import { type AdmitPromptInput, admitPrompt } from '../src/runner/admit.ts'
import { compactSession } from '../src/runner/compact.ts'
import { answerQuestion, decideApproval, dismissQuestion } from '../src/runner/decide.ts'
import { interruptSession } from '../src/runner/interrupt.ts'
import { changeDelivery, withdrawPrompt } from '../src/runner/pending.ts'
import { resumeSession } from '../src/runner/resume.ts'
import { archiveSession, createSession, updateSession } from '../src/runner/sessions.ts'
import { builtinTools } from '../src/runner/tools/builtin.ts'
import { schema } from '../src/schema/index.ts'
import {
  admit,
  atAppend,
  atRest,
  conversation,
  events,
  eventually,
  everything,
  inputOf,
  newMessageId,
  newSession,
  newSessionId,
  type Played,
  sessionOf,
  statusIn,
  tenant,
  typesOf,
  usersIn,
  useStage,
} from './support/prompt-stage.ts'
import { finish, finishing, gate, hang, reply, text, toolCalls, wait } from './support/provider.ts'

const stage = useStage()

const sent = ({ core }: Played, call: AdmitPromptInput) => admitPrompt(core, tenant, call)
const hello = reply(text('hello'), finish())

it('ADM-01: a new prompt is admitted, armed in the same commit, and woken once after it', async () => {
  const a = await stage.start()
  for (const resume of [undefined, true]) {
    stage.provider.script(hello)
    const sessionId = await newSession(a)
    const messageId = newMessageId()
    a.wakes.length = 0
    let committed = 0
    const { wake } = a.core.coordinator
    a.core.coordinator.wake = (id) => {
      void a.core.db.input.count({ where: { id: messageId, wakePending: true } }).then((n) => (committed += n))
      a.wakes.push(id)
    }
    expect(await sent(a, { sessionId, messageId, text: 'hi', resume })).toEqual({
      type: 'PromptAdmission',
      outcome: 'ADMITTED',
      messageId,
      executionRequested: true,
    })
    expect(a.wakes).toEqual([sessionId])
    expect((await events(a, sessionId, 'prompt.admitted')).map(({ payload }) => payload)).toEqual([
      { messageId, inputKind: 'PROMPT', text: 'hi', attachments: [], delivery: 'STEER', requestExecution: true },
    ])
    expect(await inputOf(a, messageId)).toMatchObject({ state: 'PENDING', wakePending: true, admittedSeq: 2 })
    await eventually('the row that the wake found', async () => committed === 1)
    a.core.coordinator.wake = wake
    wake(sessionId)
    await atRest(a)
  }
})

it('ADM-02: with resume false nothing is armed, woken or asked', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const messageId = newMessageId()
  expect(await sent(a, { sessionId, messageId, text: 'hi', resume: false })).toMatchObject({
    outcome: 'ADMITTED',
    executionRequested: false,
  })
  expect((await events(a, sessionId, 'prompt.admitted'))[0]!.payload).toMatchObject({ requestExecution: false })
  expect(await inputOf(a, messageId)).toMatchObject({ state: 'PENDING', wakePending: false })
  expect(a.wakes).toEqual([])
  // Also a wake that comes from nowhere finds nothing to do.
  a.core.coordinator.wake(sessionId)
  await atRest(a)
  expect(await a.core.db.message.count({ where: { sessionId } })).toBe(0)
  expect(await statusIn(a, sessionId)).toBe('IDLE')
  expect(stage.provider.requests).toEqual([])
})

it('ADM-03, ADM-04: the identical call repeated gives the same input, writes nothing, and it runs once', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const call = { sessionId, messageId: newMessageId(), text: 'hi', delivery: 'QUEUE' as const }
  const { wake } = a.core.coordinator
  a.core.coordinator.wake = (id) => void a.wakes.push(id)
  await sent(a, call)
  const before = await everything(a, sessionId)
  for (let n = 0; n < 10; n++)
    expect(await sent(a, call)).toEqual({
      type: 'PromptAdmission',
      outcome: 'ALREADY_ADMITTED',
      messageId: call.messageId,
      executionRequested: false,
    })
  expect(await everything(a, sessionId)).toEqual(before)
  expect(await inputOf(a, call.messageId)).toMatchObject({ wakePending: true })
  expect(a.wakes).toEqual([sessionId])
  stage.provider.script(hello)
  wake(sessionId)
  await atRest(a)
  expect(stage.provider.requests.map(usersIn)).toEqual([['hi']])
})

it('ADM-05: asked to run by a later identical call, it is armed and woken once, and runs once', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const call = { sessionId, messageId: newMessageId(), text: 'hi' }
  await sent(a, { ...call, resume: false })
  stage.provider.script(hello)
  expect(await sent(a, { ...call, resume: true })).toMatchObject({
    outcome: 'ALREADY_ADMITTED',
    executionRequested: true,
  })
  expect(a.wakes).toEqual([sessionId])
  await atRest(a)
  expect(await typesOf(a, sessionId)).toMatchObject(
    ['session.created', 'prompt.admitted', 'prompt.execution_requested', 'execution.started', 'prompt.promoted'].concat(
      ['step.started', 'text.started', 'text.ended', 'step.streamed', 'step.ended', 'execution.settled'],
    ),
  )
  expect(stage.provider.requests).toHaveLength(1)
})

it('ADM-07, ADM-08: other text or delivery under a taken id is a conflict that names the field and writes nothing', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const call = { sessionId, messageId: newMessageId(), text: 'A', delivery: 'STEER' as const, resume: false }
  await sent(a, call)
  const before = await everything(a, sessionId)
  const attachments = [{ name: 'a', mediaType: 'image/png', url: 'https://example.test/a.png' }]
  for (const [other, fields] of [
    [{ text: 'B' }, ['text']],
    [{ delivery: 'QUEUE' as const }, ['delivery']],
    [{ attachments }, ['attachments']],
    [{ text: 'B', delivery: 'QUEUE' as const }, ['text', 'delivery']],
  ] as const) {
    expect(await sent(a, { ...call, ...other } as AdmitPromptInput)).toMatchObject({
      type: 'PromptConflictError',
      sessionId,
      messageId: call.messageId,
      differingFields: fields,
    })
  }
  expect(await everything(a, sessionId)).toEqual(before)
  expect(a.wakes).toEqual([])
})

it('ADM-09: a conflict arms nothing, so that nothing runs the prompt later', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const call = { sessionId, messageId: newMessageId(), text: 'A', resume: false }
  await sent(a, call)
  const before = await everything(a, sessionId)
  expect(await sent(a, { ...call, text: 'B', resume: true })).toMatchObject({ type: 'PromptConflictError' })
  expect(await everything(a, sessionId)).toEqual(before)
  expect(a.wakes).toEqual([])
  a.core.coordinator.wake(sessionId)
  await atRest(a)
  expect(await everything(a, sessionId)).toEqual(before)
})

it('ADM-10: a retry is honest after its delivery was moved, and does not move it back', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const call = { sessionId, messageId: newMessageId(), text: 'A', delivery: 'QUEUE' as const, resume: false }
  await sent(a, call)
  await changeDelivery(a.core, tenant, { sessionId, messageId: call.messageId, delivery: 'STEER' })
  const before = await everything(a, sessionId)
  expect(await sent(a, call)).toMatchObject({ outcome: 'ALREADY_ADMITTED', executionRequested: false })
  expect(await inputOf(a, call.messageId)).toMatchObject({ delivery: 'STEER', requestedDelivery: 'QUEUE' })
  expect(await everything(a, sessionId)).toEqual(before)
})

it('ADM-11, ADM-12: once promoted, the identical call has no effect, another one is a conflict; neither wakes', async () => {
  const a = await stage.start()
  stage.provider.script(hello)
  const sessionId = await newSession(a)
  const call = { sessionId, messageId: newMessageId(), text: 'A' }
  await sent(a, call)
  await atRest(a)
  const before = await everything(a, sessionId)
  expect(await sent(a, { ...call, resume: true })).toMatchObject({
    outcome: 'ALREADY_PROMOTED',
    executionRequested: false,
  })
  expect(await inputOf(a, call.messageId)).toMatchObject({ state: 'PROMOTED', promotedSeq: 4 })
  expect(await sent(a, { ...call, text: 'B' })).toMatchObject({
    type: 'PromptConflictError',
    differingFields: ['text'],
  })
  await atRest(a)
  expect(await everything(a, sessionId)).toEqual(before)
  expect(a.wakes).toEqual([sessionId])
})

it('ADM-13: an id taken in another session or tenant is a conflict that tells nothing of what is there', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const elsewhere = await newSession(a)
  await updateSession(a.core, tenant, { sessionId: elsewhere, title: 'a secret title' })
  const foreign = newSessionId()
  await createSession(a.core, 'another', { sessionId: foreign })
  const answers: unknown[] = []
  for (const [owner, home] of [
    [tenant, elsewhere],
    ['another', foreign],
  ] as const) {
    for (const [textThere, resume] of [
      ['the same text', false],
      ['a secret text', false],
    ] as const) {
      const messageId = newMessageId()
      await admitPrompt(a.core, owner, { sessionId: home, messageId, text: textThere, resume })
      const before = await everything(a, sessionId)
      const answer = await sent(a, { sessionId, messageId, text: 'the same text' })
      expect(answer).toMatchObject({ type: 'PromptConflictError', sessionId, differingFields: ['messageId'] })
      const shown = JSON.stringify(answer)
      for (const hidden of [home, 'secret', 'PENDING', 'another']) expect(shown).not.toContain(hidden)
      answers.push(JSON.parse(shown.replaceAll(messageId, 'msg')))
      expect(await everything(a, sessionId)).toEqual(before)
    }
  }
  for (const answer of answers) expect(answer).toEqual(answers[0])
  expect(a.wakes).toEqual([])
})

it('ADM-14: an unknown session is not found, and is not made', async () => {
  const a = await stage.start()
  const sessionId = newSessionId()
  const messageId = newMessageId()
  expect(await sent(a, { sessionId, messageId, text: 'A' })).toMatchObject({ type: 'SessionNotFoundError', sessionId })
  const foreign = await newSession(a)
  expect(await admitPrompt(a.core, 'another', { sessionId: foreign, messageId, text: 'A' })).toEqual({
    type: 'SessionNotFoundError',
    message: `there is no session ${foreign}`,
    sessionId: foreign,
  })
  expect(await a.core.db.session.count({ where: { id: sessionId } })).toBe(0)
  expect(await a.core.db.input.count({ where: { id: messageId } })).toBe(0)
  expect(a.wakes).toEqual([])
})

it('ADM-15: ids of another form are refused by their rule; every id that the server makes has a dot', async () => {
  const a = await stage.start()
  stage.provider.script(hello)
  const sessionId = await newSession(a)
  // New with each try, from its first characters on.
  const long = `${Math.random().toString(36).slice(2, 10).padEnd(8, '0')}_${'x'.repeat(64)}`
  const wrong = ['abcdefgh', `msg-${long.slice(0, 8)}`, 'msg_1234567', `msg_${long.slice(0, 65)}`, 'msg_has.a.dot1']
  for (const messageId of [...wrong, 'msg_has a blank', 'msg_ümlaut-text', 'MSG_12345678', 'msg_12345678\n']) {
    const answer = await sent(a, { sessionId, messageId, text: 'A' })
    expect(answer, messageId).toMatchObject({ type: 'InvalidInputError', field: 'messageId' })
    expect((answer as { message: string }).message).toMatch(/msg_.*8 to 64/)
  }
  expect(await a.core.db.input.count({ where: { sessionId } })).toBe(0)
  for (const size of [8, 64])
    expect(await sent(a, { sessionId, messageId: `msg_${long.slice(0, size)}`, text: 'A' })).toMatchObject({
      outcome: 'ADMITTED',
    })
  await atRest(a)
  stage.leavesReplies = true
  const made = await events(a, sessionId, 'step.started')
  expect(made.length).toBeGreaterThan(0)
  for (const { payload } of made) {
    expect(payload.messageId).toContain('.')
    expect(payload.executionId).toContain('.')
  }
})

it('ADM-16: an empty text without attachments is refused', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  for (const empty of ['', '  \n'])
    expect(await sent(a, { sessionId, messageId: newMessageId(), text: empty })).toMatchObject({
      type: 'InvalidInputError',
      field: 'text',
    })
  expect(await typesOf(a, sessionId)).toEqual(['session.created'])
})

it('ADM-17, ADM-18: attachments that are neither https: nor sound data: URLs are refused, and nothing is fetched', async () => {
  let asked = 0
  const server = createServer((_request, response) => {
    asked++
    response.end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const port = (server.address() as AddressInfo).port
  const a = await stage.start()
  const sessionId = await newSession(a)
  const call = { sessionId, messageId: newMessageId(), text: 'A', resume: false }
  await sent(a, call)
  const before = await everything(a, sessionId)
  const broken = [
    'data:image/png;base64,@@@@',
    'data:image/png;base64,QUJ',
    'data:image/png;base64',
    'data:text/plain,%',
  ]
  for (const url of [`http://127.0.0.1:${port}/a.png`, 'file:///etc/passwd', 'ftp://a/b', 'https:', ...broken]) {
    const attachments = [{ name: 'a.png', mediaType: 'image/png', url }]
    for (const messageId of [newMessageId(), call.messageId]) {
      const answer = await sent(a, { ...call, messageId, attachments })
      expect(answer, url).toMatchObject({ type: 'InvalidInputError', field: 'attachments' })
      expect((answer as { message: string }).message).toContain('attachment 1')
    }
  }
  expect(await everything(a, sessionId)).toEqual(before)
  expect(asked).toBe(0)
  server.close()
})

it('ADM-19: attachments come back as sent, from the input and from the promoted message, and reach the model', async () => {
  const a = await stage.start()
  stage.provider.script(hello)
  const sessionId = await newSession(a)
  const messageId = newMessageId()
  const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
  const attachments = [{ name: 'dot.png', mediaType: 'image/png', url: `data:image/png;base64,${png}` }]
  expect(await sent(a, { sessionId, messageId, text: '', attachments })).toMatchObject({ outcome: 'ADMITTED' })
  expect((await inputOf(a, messageId)).attachments).toEqual(attachments)
  await atRest(a)
  const message = await a.core.db.message.findUniqueOrThrow({ where: { id: messageId } })
  expect(message).toMatchObject({ kind: 'USER', attachments })
  expect(conversation(stage.provider.requests[0]!)[0]).toContain(png)
})

it('ADM-20, ADM-21: while a step runs that never ends, every mutation but the interrupt answers', async () => {
  const deploy: ToolDefinition = {
    name: 'deploy',
    description: 'never ends by itself',
    inputSchema: { type: 'object' },
    needsApproval: true,
    execute: (_, { signal }) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason))
      }),
  }
  const a = await stage.start({ tools: [deploy], config: { tools: [...builtinTools] } })
  stage.provider.script(
    reply(
      text('and so on'),
      toolCalls(
        { name: 'deploy', args: {}, id: 'call_approval' },
        { name: 'ask_user', args: { question: 'this?' }, id: 'call_answered' },
        { name: 'ask_user', args: { question: 'or that?' }, id: 'call_dismissed' },
      ),
      finishing('tool_calls'),
      hang(),
    ),
  )
  const sessionId = await newSession(a)
  await admit(a, sessionId, 'first')
  await eventually('three interactions', async () => (await events(a, sessionId, 'interaction.requested')).length === 3)
  expect(await statusIn(a, sessionId)).toBe('RUNNING')
  const quarantineId = newQuarantineId()
  await a.core.eventLog.append({
    sessionId,
    events: [
      event('quarantine.opened', {
        quarantineId,
        executionId: 'exe_.stage',
        quarantineKind: 'RECOVERY',
        reason: 'made by a test',
      }),
    ],
  })
  // Of the runner nothing goes on until all have answered, not even the cleanup that the last of them asks for.
  const answered = gate()
  const cleanups = atAppend(a, 'step.interrupted', async (go) => {
    await answered.promise
    return go()
  })
  const asks = await events(a, sessionId, 'interaction.requested')
  const interactionId = (call: string) => asks.find(({ payload }) => payload.callId === call)!.payload.interactionId
  const { core } = a
  const second = newMessageId()
  const third = newMessageId()
  const mutations: Record<string, { type: string; ask(): Promise<{ type: string }> }> = {
    createSession: {
      type: 'CreateSessionPayload',
      ask: () => createSession(core, tenant, { sessionId: newSessionId(), model: 'compatible/scripted' }),
    },
    admitPrompt: {
      type: 'PromptAdmission',
      async ask() {
        await sent(a, { sessionId, messageId: second, text: 'second' })
        return sent(a, { sessionId, messageId: third, text: 'third', delivery: 'QUEUE', resume: false })
      },
    },
    changeDelivery: {
      type: 'PromptChangePayload',
      ask: () => changeDelivery(core, tenant, { sessionId, messageId: third, delivery: 'STEER' }),
    },
    withdrawPrompt: {
      type: 'PromptChangePayload',
      ask: () => withdrawPrompt(core, tenant, { sessionId, messageId: second }),
    },
    updateSession: {
      type: 'UpdateSessionPayload',
      ask: () => updateSession(core, tenant, { sessionId, title: 'busy' }),
    },
    archiveSession: { type: 'UpdateSessionPayload', ask: () => archiveSession(core, tenant, { sessionId }) },
    resumeSession: { type: 'ResumeSessionPayload', ask: () => resumeSession(core, tenant, { sessionId }) },
    compactSession: {
      type: 'CompactSessionPayload',
      ask: () => compactSession(core, tenant, { sessionId, messageId: newMessageId() }),
    },
    resolveQuarantine: {
      type: 'ResolveQuarantinePayload',
      ask: () => resolveQuarantine(core, tenant, { id: quarantineId, action: 'DISCARD' }),
    },
    decideApproval: {
      type: 'InteractionPayload',
      ask: () => decideApproval(core, tenant, { interactionId: interactionId('call_approval'), decision: 'APPROVE' }),
    },
    answerQuestion: {
      type: 'InteractionPayload',
      ask: () => answerQuestion(core, tenant, { interactionId: interactionId('call_answered'), answer: 'this' }),
    },
    dismissQuestion: {
      type: 'InteractionPayload',
      ask: () => dismissQuestion(core, tenant, { interactionId: interactionId('call_dismissed') }),
    },
  }
  const all = Object.keys(schema.getMutationType()!.getFields())
  expect([...Object.keys(mutations), 'interruptSession'].toSorted()).toEqual(all.toSorted())
  for (const [name, { type, ask }] of Object.entries(mutations)) {
    if (name === 'dismissQuestion') {
      expect(await statusIn(a, sessionId)).toBe('RUNNING')
      expect(await inputOf(a, third)).toMatchObject({ state: 'PENDING', wakePending: true })
      expect(stage.provider.requests).toHaveLength(1)
    }
    expect(await ask(), name).toMatchObject({ type })
  }
  // That one ends the activity, and the cleanup still has to come: it is what the interrupt waits for.
  let isInterrupted = false
  const interrupted = interruptSession(core, tenant, { sessionId }).then((answer) => {
    isInterrupted = true
    return answer
  })
  await eventually('the cleanup', async () => cleanups.count === 1)
  expect(isInterrupted).toBe(false)
  answered.open()
  expect(await interrupted).toMatchObject({ interrupted: true })
  expect(stage.provider.requests).toHaveLength(1)
})

it('ADM-27: what an interrupt has disarmed stays so when its call comes again late', async () => {
  const a = await stage.start()
  stage.provider.script(reply(text('a'), hang()), hello)
  const sessionId = await newSession(a)
  await admit(a, sessionId, 'first')
  await stage.provider.request(0)
  const call = { sessionId, messageId: newMessageId(), text: 'second', resume: true }
  await sent(a, call)
  await interruptSession(a.core, tenant, { sessionId })
  await atRest(a)
  expect(await inputOf(a, call.messageId)).toMatchObject({ state: 'PENDING', wakePending: false })
  const before = await everything(a, sessionId)
  a.wakes.length = 0
  for (let n = 0; n < 10; n++)
    expect(await sent(a, call)).toMatchObject({ outcome: 'ALREADY_ADMITTED', executionRequested: false })
  await atRest(a)
  expect(await everything(a, sessionId)).toEqual(before)
  expect(a.wakes).toEqual([])
  await resumeSession(a.core, tenant, { sessionId })
  await atRest(a)
  expect(usersIn(stage.provider.requests[1]!)).toEqual(['first', 'second'])
})

it('ADM-27: a new prompt takes along what an interrupt has disarmed', async () => {
  const a = await stage.start()
  stage.provider.script(reply(text('a'), hang()), hello)
  const sessionId = await newSession(a)
  await admit(a, sessionId, 'first')
  await stage.provider.request(0)
  await admit(a, sessionId, 'second')
  await interruptSession(a.core, tenant, { sessionId })
  await admit(a, sessionId, 'third')
  await atRest(a)
  expect(usersIn(stage.provider.requests[1]!)).toEqual(['first', 'second', 'third'])
})

it('ADM-28: once withdrawn, the identical call says so and arms nothing; another one is a conflict', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const call = { sessionId, messageId: newMessageId(), text: 'A', resume: false }
  await sent(a, call)
  await withdrawPrompt(a.core, tenant, { sessionId, messageId: call.messageId })
  const before = await everything(a, sessionId)
  for (const resume of [false, true])
    expect(await sent(a, { ...call, resume })).toEqual({
      type: 'PromptAdmission',
      outcome: 'ALREADY_WITHDRAWN',
      messageId: call.messageId,
      executionRequested: false,
    })
  expect(await sent(a, { ...call, text: 'B' })).toMatchObject({
    type: 'PromptConflictError',
    differingFields: ['text'],
  })
  a.core.coordinator.wake(sessionId)
  await atRest(a)
  expect(await everything(a, sessionId)).toEqual(before)
})

it('ADM-29: a new armed prompt unparks a session and takes it out of the archive in its commit, a retry does neither', async () => {
  const a = await stage.start()
  stage.provider.script(hello, hello)
  const sessionId = await newSession(a)
  const old = { sessionId, messageId: newMessageId(), text: 'old', resume: true }
  await sent(a, old)
  await atRest(a)
  await a.core.eventLog.append({ sessionId, events: [event('session.parked', { reason: 'too many recoveries' })] })
  await archiveSession(a.core, tenant, { sessionId })
  const before = await everything(a, sessionId)
  expect(await sent(a, old)).toMatchObject({ outcome: 'ALREADY_PROMOTED' })
  expect(await everything(a, sessionId)).toEqual(before)
  expect(await statusIn(a, sessionId)).toBe('PARKED')
  const { wake } = a.core.coordinator
  a.core.coordinator.wake = () => {}
  await admit(a, sessionId, 'new')
  expect(await sessionOf(a, sessionId)).toMatchObject({ parkedReason: null, archivedAt: null })
  expect((await typesOf(a, sessionId)).at(-1)).toBe('prompt.admitted')
  wake(sessionId)
  await atRest(a)
  expect(stage.provider.requests.map(usersIn)).toEqual([['old'], ['old', 'new']])
})

it('ADM-29: a retry of a prompt that still waits leaves the session parked and archived', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const old = { sessionId, messageId: newMessageId(), text: 'old', resume: true }
  a.core.coordinator.wake = (id) => void a.wakes.push(id)
  await sent(a, old)
  await a.core.eventLog.append({ sessionId, events: [event('session.parked', { reason: 'too many recoveries' })] })
  await archiveSession(a.core, tenant, { sessionId })
  const before = await everything(a, sessionId)
  expect(await sent(a, old)).toMatchObject({ outcome: 'ALREADY_ADMITTED', executionRequested: false })
  expect(await everything(a, sessionId)).toEqual(before)
  // One that is not to run leaves the archive and stays parked: nobody has asked for work.
  await admit(a, sessionId, 'not yet', { resume: false })
  expect(await sessionOf(a, sessionId)).toMatchObject({ parkedReason: 'too many recoveries', archivedAt: null })
  expect(a.wakes).toEqual([sessionId])
})

it('ADM-30: a quarantined session takes prompts and runs none', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const quarantineId = newQuarantineId()
  await a.core.eventLog.append({
    sessionId,
    events: [
      event('quarantine.opened', {
        quarantineId,
        executionId: newExecutionId(),
        quarantineKind: 'EXECUTION',
        reason: 'made by a test',
      }),
    ],
  })
  expect(await statusIn(a, sessionId)).toBe('QUARANTINED')
  const messageId = await admit(a, sessionId, 'hi')
  await atRest(a)
  expect(await inputOf(a, messageId)).toMatchObject({ state: 'PENDING', wakePending: true })
  expect(await typesOf(a, sessionId)).toEqual(['session.created', 'quarantine.opened', 'prompt.admitted'])
})

it('ADM-31: limits refuse what is new, and never a retry of what is stored', async () => {
  const limits = { pendingInputs: 2, sessionsPerDay: 1, textBytes: 100, attachmentBytes: 100 }
  const a = await stage.start({ config: { limits } })
  const mine = `tenant-${process.pid}`
  const sessionId = newSessionId()
  expect(await createSession(a.core, mine, { sessionId })).toMatchObject({ created: true })
  const another = newSessionId()
  const refused = await createSession(a.core, mine, { sessionId: another })
  expect(refused).toMatchObject({ type: 'LimitExceededError', limit: 'sessionsPerDay' })
  const { retryAfterMs } = refused as { retryAfterMs: number }
  expect(retryAfterMs).toBeGreaterThan(23 * 3_600_000)
  expect(retryAfterMs).toBeLessThanOrEqual(24 * 3_600_000)
  expect(await a.core.db.session.count({ where: { id: another } })).toBe(0)
  expect(await createSession(a.core, mine, { sessionId })).toMatchObject({ created: false })

  const calls = ['one', 'two', 'three'].map((name) => ({
    sessionId,
    messageId: newMessageId(),
    text: name,
    resume: false,
  }))
  for (const call of calls.slice(0, 2))
    expect(await admitPrompt(a.core, mine, call)).toMatchObject({ outcome: 'ADMITTED' })
  const before = await everything(a, sessionId)
  expect(await admitPrompt(a.core, mine, calls[2]!)).toMatchObject({
    type: 'LimitExceededError',
    limit: 'pendingInputs',
    retryAfterMs: null,
  })
  expect(await admitPrompt(a.core, mine, calls[0]!)).toMatchObject({ outcome: 'ALREADY_ADMITTED' })
  expect(await everything(a, sessionId)).toEqual(before)
  // A place that is free again is taken.
  await withdrawPrompt(a.core, mine, { sessionId, messageId: calls[1]!.messageId })
  expect(await admitPrompt(a.core, mine, calls[2]!)).toMatchObject({ outcome: 'ADMITTED' })
  expect(await admitPrompt(a.core, mine, calls[1]!)).toMatchObject({ outcome: 'ALREADY_WITHDRAWN' })
})

it('ADM-31: texts and attachments beyond their limits are refused by field; a retry of one that was stored before the limit is not', async () => {
  const before = await stage.start()
  const attachments = [{ name: 'a.txt', mediaType: 'text/plain', url: `data:text/plain,${'x'.repeat(101)}` }]
  const sessionId = await newSession(before)
  const long = { sessionId, messageId: newMessageId(), text: 'x'.repeat(101), resume: false }
  const heavy = { sessionId, messageId: newMessageId(), text: 'x', attachments, resume: false }
  for (const call of [long, heavy]) expect(await sent(before, call)).toMatchObject({ outcome: 'ADMITTED' })
  const limits = { pendingInputs: 10, sessionsPerDay: 10_000, textBytes: 100, attachmentBytes: 100 }
  const a = await stage.start({ config: { limits } })
  const stored = await everything(a, sessionId)
  for (const [call, field] of [
    [long, 'text'],
    [heavy, 'attachments'],
  ] as const) {
    expect(await sent(a, { ...call, messageId: newMessageId() })).toMatchObject({
      type: 'InvalidInputError',
      field,
      message: expect.stringMatching(/101 bytes.*at most 100 /),
    })
    expect(await sent(a, call)).toMatchObject({ outcome: 'ALREADY_ADMITTED' })
  }
  expect(await everything(a, sessionId)).toEqual(stored)
  // At the limit both are taken.
  const fits = [{ name: 'a.txt', mediaType: 'text/plain', url: `data:text/plain,${'x'.repeat(100)}` }]
  const call = { sessionId, messageId: newMessageId(), text: 'x'.repeat(100), attachments: fits, resume: false }
  expect(await sent(a, call)).toMatchObject({ outcome: 'ADMITTED' })
})

it('ADM-32: armed meanwhile by others, the first call that asks to run is recorded, and it runs once', async () => {
  const a = await stage.start()
  const block = gate()
  stage.provider.script(reply(text('a'), wait(block.promise), finish()), hello)
  const sessionId = await newSession(a)
  const call = { sessionId, messageId: newMessageId(), text: 'unasked', delivery: 'QUEUE' as const }
  await sent(a, { ...call, resume: false })
  await admit(a, sessionId, 'first')
  await stage.provider.request(0)
  expect(await inputOf(a, call.messageId)).toMatchObject({ wakePending: true, executionRequested: false })
  expect(await sent(a, { ...call, resume: true })).toMatchObject({
    outcome: 'ALREADY_ADMITTED',
    executionRequested: true,
  })
  block.open()
  await atRest(a)
  expect(await events(a, sessionId, 'prompt.execution_requested')).toHaveLength(1)
  expect(stage.provider.requests.map(usersIn)).toEqual([['first'], ['first', 'unasked']])
})

it('ADM-32: armed by resumeSession, likewise', async () => {
  const a = await stage.start()
  const sessionId = await newSession(a)
  const { wake } = a.core.coordinator
  a.core.coordinator.wake = (id) => void a.wakes.push(id)
  const call = { sessionId, messageId: newMessageId(), text: 'hi' }
  await sent(a, { ...call, resume: false })
  await resumeSession(a.core, tenant, { sessionId })
  for (const executionRequested of [true, false])
    expect(await sent(a, { ...call, resume: true })).toMatchObject({ outcome: 'ALREADY_ADMITTED', executionRequested })
  expect(await events(a, sessionId, 'prompt.execution_requested')).toHaveLength(1)
  stage.provider.script(hello)
  wake(sessionId)
  await atRest(a)
  expect(stage.provider.requests.map(usersIn)).toEqual([['hi']])
})
