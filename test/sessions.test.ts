import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Served, serveLog } from './support/served.ts'

let served: Served
beforeAll(async () => {
  served = await serveLog()
})
afterAll(() => served.close())

let made = 0
const newId = () => `ses_sessions-${process.pid}-${++made}`

const create = async (input: Record<string, unknown>) =>
  (
    await served.ask(
      `mutation ($input: CreateSessionInput!) { createSession(input: $input) {
        __typename ... on CreateSessionPayload { created session { id title instructions model seq } }
        ... on SessionConflictError { sessionId differingFields } ... on InvalidInputError { field message }
        ... on LimitExceededError { limit retryAfterMs } } }`,
      { input },
    )
  ).data.createSession

const change = async (mutation: 'updateSession' | 'archiveSession', input: Record<string, unknown>) =>
  (
    await served.ask(
      `mutation ($input: ${mutation === 'updateSession' ? 'UpdateSessionInput' : 'ArchiveSessionInput'}!) { ${mutation}(input: $input) {
        __typename ... on UpdateSessionPayload { session { title instructions model archivedAt seq } }
        ... on SessionChangedError { sessionId } ... on SessionNotFoundError { sessionId } ... on InvalidInputError { field message } } }`,
      { input },
    )
  ).data[mutation]

const logOf = async (id: string): Promise<{ __typename: string }[]> =>
  (
    await served.ask(
      `query ($id: ID!) { session(id: $id) { events { __typename ... on SessionUpdated { archived title } } } }`,
      { id },
    )
  ).data.session.events

it('API-05: createSession repeated gives the same session, also after it was changed', async () => {
  const input = { sessionId: newId(), title: 'first', model: 'demo/echo' }
  expect(await create(input)).toMatchObject({ created: true, session: { id: input.sessionId, title: 'first', seq: 1 } })
  expect(await create(input)).toMatchObject({ created: false, session: { title: 'first', seq: 1 } })
  await change('updateSession', { sessionId: input.sessionId, title: 'second', instructions: 'be kind' })
  expect(await create(input)).toMatchObject({ created: false, session: { title: 'second', seq: 2 } })
})

it('API-06: createSession of a taken id with other arguments is a conflict that names them and changes nothing', async () => {
  const sessionId = newId()
  await create({ sessionId, title: 'first' })
  expect(await create({ sessionId, title: 'other', instructions: 'x', model: 'demo/echo' })).toEqual({
    __typename: 'SessionConflictError',
    sessionId,
    differingFields: ['title', 'instructions', 'model'],
  })
  expect(await logOf(sessionId)).toHaveLength(1)
})

it('API-07: many identical createSession at once make one session, and one of them says so', async () => {
  const input = { sessionId: newId(), title: 'at once' }
  const answers = await Promise.all(Array.from({ length: 10 }, () => create(input)))
  expect(answers.filter(({ created }) => created)).toHaveLength(1)
  expect(new Set(answers.map(({ session }) => session.id))).toEqual(new Set([input.sessionId]))
  expect(await logOf(input.sessionId)).toHaveLength(1)
})

it('API-08: a malformed id or an unknown model is refused by field, and nothing is written', async () => {
  const before = await served.core.db.session.count()
  for (const sessionId of [
    'ses_short',
    'msg_12345678',
    `ses_${'x'.repeat(65)}`,
    'ses_has.a.dot',
    'ses_has space',
    'ses_nul\u0000nul',
  ])
    expect(await create({ sessionId }), sessionId).toMatchObject({
      __typename: 'InvalidInputError',
      field: 'sessionId',
    })
  expect(await create({ sessionId: newId(), model: 'nobody/nothing' })).toMatchObject({
    field: 'model',
    message: expect.stringContaining('nobody/nothing'),
  })
  expect(await create({ sessionId: newId(), title: 'nul \u0000' })).toMatchObject({ field: 'title' })
  expect(await create({ sessionId: newId(), title: 'x'.repeat(1001) })).toMatchObject({ field: 'title' })
  expect(await served.core.db.session.count()).toBe(before)
  for (const length of [8, 64])
    expect(await create({ sessionId: `ses_${String(++made).padEnd(length, 'a')}` })).toMatchObject({ created: true })
})

it('API-09: updateSession writes one event for a change, none for none, and leaves what was left out', async () => {
  const sessionId = newId()
  await create({ sessionId, title: 'a', instructions: 'b', model: 'demo/echo' })
  expect(await change('updateSession', { sessionId, title: 'c' })).toMatchObject({
    session: { title: 'c', instructions: 'b', model: 'demo/echo', seq: 2 },
  })
  expect(await change('updateSession', { sessionId, title: 'c' })).toMatchObject({ session: { seq: 2 } })
  expect(await change('updateSession', { sessionId, instructions: null })).toMatchObject({
    session: { title: 'c', instructions: null, seq: 3 },
  })
  expect(await change('updateSession', { sessionId, model: null })).toMatchObject({ field: 'model' })
  expect(await change('updateSession', { sessionId, model: 'nobody/nothing' })).toMatchObject({ field: 'model' })
  expect(await change('updateSession', { sessionId: newId(), title: 'x' })).toMatchObject({
    __typename: 'SessionNotFoundError',
  })
  expect((await logOf(sessionId)).map(({ __typename }) => __typename)).toEqual([
    'SessionCreated',
    'SessionUpdated',
    'SessionUpdated',
  ])
})

it('API-18: ifSeq of another seq refuses and writes nothing; of the same it changes nothing about the call', async () => {
  const sessionId = newId()
  await create({ sessionId, title: 'a' })
  const refused = { __typename: 'SessionChangedError', sessionId }
  expect(await change('updateSession', { sessionId, title: 'b', ifSeq: 7 })).toEqual(refused)
  expect(await change('archiveSession', { sessionId, ifSeq: 7 })).toEqual(refused)
  const ask = async (mutation: string, input: string, variables: Record<string, unknown>) =>
    (
      await served.ask(`mutation ($input: ${input}!) { ${mutation}(input: $input) { __typename } }`, {
        input: variables,
      })
    ).data[mutation].__typename
  expect(await ask('resumeSession', 'ResumeSessionInput', { sessionId, ifSeq: 7 })).toBe('SessionChangedError')
  const messageId = `msg_sessions-${process.pid}-${++made}`
  const moved = { sessionId, messageId, delivery: 'QUEUE', ifSeq: 7 }
  expect(await ask('changeDelivery', 'ChangeDeliveryInput', moved)).toBe('SessionChangedError')
  expect(await logOf(sessionId)).toHaveLength(1)
  expect(await change('updateSession', { sessionId, title: 'b', ifSeq: 1 })).toMatchObject({
    session: { title: 'b', seq: 2 },
  })
  expect(await change('archiveSession', { sessionId, ifSeq: 2 })).toMatchObject({ session: { seq: 3 } })

  // With a prompt that waits there is something to resume and to move.
  const admission = { sessionId, messageId, text: 'later', delivery: 'STEER', resume: false }
  expect(await ask('admitPrompt', 'AdmitPromptInput', admission)).toBe('PromptAdmission')
  const { events: log, seq } = await stateOf(sessionId)
  for (const ifSeq of [seq - 1, seq + 1]) {
    expect(await ask('resumeSession', 'ResumeSessionInput', { sessionId, ifSeq })).toBe('SessionChangedError')
    expect(await ask('changeDelivery', 'ChangeDeliveryInput', { ...moved, ifSeq })).toBe('SessionChangedError')
  }
  expect(await stateOf(sessionId)).toMatchObject({ events: log, inputs: [{ delivery: 'STEER' }] })
  expect(await ask('changeDelivery', 'ChangeDeliveryInput', { ...moved, ifSeq: seq })).toBe('PromptChangePayload')
  expect(await ask('resumeSession', 'ResumeSessionInput', { sessionId, ifSeq: seq + 1 })).toBe('ResumeSessionPayload')
  expect(await stateOf(sessionId)).toEqual({
    seq: seq + 2,
    inputs: [{ delivery: 'QUEUE', state: 'PENDING' }],
    events: [...log, { __typename: 'PromptDeliveryChanged' }, { __typename: 'SessionResumeRequested' }],
  })
})

const stateOf = async (id: string) =>
  (
    await served.ask('query ($id: ID!) { session(id: $id) { seq inputs { delivery state } events { __typename } } }', {
      id,
    })
  ).data.session

it('API-22: archiving and taking out is one event each; repeated it writes nothing', async () => {
  const sessionId = newId()
  await create({ sessionId })
  const first = await change('archiveSession', { sessionId })
  expect(first).toMatchObject({ session: { archivedAt: expect.any(String), seq: 2 } })
  expect(await change('archiveSession', { sessionId, archived: true })).toEqual(first)
  // A change of the title leaves the time of archiving as it is.
  const { archivedAt } = (await change('updateSession', { sessionId, title: 'kept' })).session
  expect(archivedAt).toBe(first.session.archivedAt)
  expect(await change('archiveSession', { sessionId, archived: false })).toMatchObject({
    session: { archivedAt: null, seq: 4 },
  })
  expect(await change('archiveSession', { sessionId, archived: false })).toMatchObject({ session: { seq: 4 } })
  expect((await logOf(sessionId)).slice(1)).toMatchObject([{ archived: true }, { archived: true }, { archived: false }])
})

it('ADM-31: one session more than a day allows is refused, with the time to wait; what is stored gets its answer', async () => {
  const few = await serveLog()
  Object.assign(few.core, { config: { ...few.core.config, limits: { ...few.core.config.limits, sessionsPerDay: 2 } } })
  try {
    const again = async (sessionId: string) =>
      (
        await few.ask(
          `mutation ($input: CreateSessionInput!) { createSession(input: $input) {
            __typename ... on CreateSessionPayload { created } ... on LimitExceededError { limit retryAfterMs } } }`,
          { input: { sessionId } },
        )
      ).data.createSession
    const ids = [newId(), newId(), newId()]
    expect(await again(ids[0]!)).toMatchObject({ created: true })
    expect(await again(ids[1]!)).toMatchObject({ created: true })
    const refused = await again(ids[2]!)
    expect(refused).toMatchObject({ __typename: 'LimitExceededError', limit: 'sessionsPerDay' })
    expect(refused.retryAfterMs).toBeGreaterThan(86_000_000)
    expect(refused.retryAfterMs).toBeLessThanOrEqual(86_400_000)
    expect(await again(ids[1]!)).toMatchObject({ created: false })
  } finally {
    await few.close()
  }
})
