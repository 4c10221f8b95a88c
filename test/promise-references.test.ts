// What belongs to a session refers to rows of that session, of the right kind, or the database refuses it: every column of the catalogue
// that refers to something, tried by raw SQL.
import { randomUUID } from 'node:crypto'
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { appendIn } from '../src/event-log.ts'
import { event } from '../src/events.ts'
import { migrate, migrationsDir, readMigrations } from '../src/migrate.ts'
import { rebuildSession } from '../src/rebuild.ts'
import { verifySession } from '../src/verify.ts'
import { type Beside, beside } from './support/beside.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { type RunningStep, runningStep, type StreamProcess, streamProcess, titled } from './support/stream-process.ts'

interface Scene extends RunningStep {
  prompt: string
  continuation: string
}
type Cells = Record<string, unknown>

let database: TestDatabase
let here: StreamProcess
let raw: Beside
let mine: Scene
let theirs: Scene
const at = new Date()

const insert = (table: string, cells: Cells) => {
  const columns = Object.keys(cells)
  return raw.query(
    `INSERT INTO "${table}" (${columns.map((column) => `"${column}"`)}) VALUES (${columns.map((_, n) => `$${n + 1}`)})`,
    Object.values(cells),
  )
}
const inputOf = (sessionId: string, kind: string): Cells => ({
  id: `msg_${randomUUID()}`,
  sessionId,
  kind,
  text: '',
  requestedDelivery: 'QUEUE',
  delivery: 'QUEUE',
  state: 'PENDING',
  wakePending: false,
  executionRequested: false,
  admittedSeq: 1,
  createdAt: at,
})

async function scene(): Promise<Scene> {
  const step = await runningStep(here)
  const call = { messageId: step.messageId, index: 0, callId: `call${step.sessionId}`, name: 't' }
  await step.append(event('tool.input_started', call), event('tool.called', { ...call, toolInput: {} }))
  const prompt = (await here.db.input.findFirstOrThrow({ where: { sessionId: step.sessionId } })).id
  const continuation = inputOf(step.sessionId, 'CONTINUATION')
  await insert('Input', continuation)
  return { ...step, prompt, continuation: String(continuation.id) }
}

beforeAll(async () => {
  database = await createTestDatabase()
  here = streamProcess(database.url)
  raw = await beside(database.url)
  mine = await scene()
  theirs = await scene()
  database.exempt([mine.sessionId, theirs.sessionId], 'their continuations were written past the log')
})
afterAll(async () => {
  await raw?.close()
  await here?.close()
  await database?.drop()
})

/** A row of each table that is taken. */
const rows: Record<string, () => Cells> = {
  Event: () => ({
    sessionId: mine.sessionId,
    seq: 100,
    type: 't',
    payload: {},
    at,
    appendId: randomUUID(),
    ordinal: 0,
  }),
  Input: () => inputOf(mine.sessionId, 'PROMPT'),
  Message: () => ({ id: randomUUID(), sessionId: mine.sessionId, kind: 'USER', seq: 1000, createdAt: at, text: '' }),
  Part: () => ({ sessionId: mine.sessionId, messageId: mine.messageId, index: 50, kind: 'TEXT' }),
  Chunk: () => ({ sessionId: mine.sessionId, messageId: mine.messageId, index: 50, offset: 0, text: 'x' }),
  ToolCall: () => ({
    sessionId: mine.sessionId,
    messageId: mine.messageId,
    callId: randomUUID(),
    index: 60,
    name: 't',
    status: 'STREAMING',
  }),
  Interaction: () => ({
    id: `req_.${randomUUID()}`,
    sessionId: mine.sessionId,
    messageId: mine.messageId,
    callId: `call${mine.sessionId}`,
    kind: 'QUESTION',
    state: 'OPEN',
    toolName: 't',
    toolInput: {},
    prompt: 'p',
    createdAt: at,
  }),
  Recovery: () => ({
    id: `rec_.${randomUUID()}`,
    sessionId: mine.sessionId,
    executionId: `exe_.${randomUUID()}`,
    phase: 'UNKNOWN',
    assistantMessageId: mine.messageId,
    continuationMessageId: mine.continuation,
    wakePending: true,
    createdAt: at,
  }),
  Quarantine: () => ({
    id: `qua_.${randomUUID()}`,
    sessionId: mine.sessionId,
    kind: 'EXECUTION',
    executionId: mine.executionId,
    reason: 'r',
    quarantinedAt: at,
  }),
  Claim: () => ({
    sessionId: mine.sessionId,
    executionId: mine.executionId,
    owner: 'own_.x',
    phase: 'UNKNOWN',
    messageId: mine.messageId,
    startedAt: at,
    expiresAt: at,
  }),
  Execution: () => ({ id: `exe_.${randomUUID()}`, sessionId: mine.sessionId }),
}

/** What each referring column must not say, beside what is nowhere. */
const foreign: Record<string, () => unknown[]> = {
  'Part.messageId': () => [theirs.messageId, mine.prompt],
  'Chunk.messageId': () => [theirs.messageId, mine.prompt],
  'ToolCall.messageId': () => [theirs.messageId, mine.prompt],
  'Interaction.messageId': () => [theirs.messageId, mine.prompt],
  'Interaction.callId': () => [`call${theirs.sessionId}`],
  'Recovery.assistantMessageId': () => [theirs.messageId, mine.prompt],
  'Recovery.continuationMessageId': () => [theirs.continuation, mine.prompt],
  'Claim.messageId': () => [theirs.messageId],
}
/** An execution belongs to the session that named it first, so one that nobody has named is no wrong one. */
const owned = ['Recovery.executionId', 'Quarantine.executionId', 'Claim.executionId']
/** Ids that refer to nothing, and why. */
const free: Record<string, string> = {
  'Session.id': 'its own',
  'Execution.id': 'its own',
  'Input.id': 'its own',
  'Message.id': 'its own',
  'Interaction.id': 'its own',
  'Recovery.id': 'its own',
  'Quarantine.id': 'its own',
  'ToolCall.callId': 'its own, given by the provider',
  'Message.assistantId': 'generated',
  'Input.continuationId': 'generated',
  'Event.appendId': 'of the append, which is no row',
  'Message.executionId': 'what its step.started says; nothing is decided by it',
}

/** The row is taken as it is, and refused with this cell. */
async function refuses(table: string, cells: Cells) {
  await raw.query('BEGIN')
  try {
    // One claim a session, and one an execution: it is put in place of those that are there.
    if (table === 'Claim') await raw.query('DELETE FROM "Claim"')
    await raw.query('SAVEPOINT before')
    await insert(table, rows[table]!())
    await raw.query('ROLLBACK TO before')
    const refused = insert(table, { ...rows[table]!(), ...cells }).then(() =>
      raw.query('SET CONSTRAINTS ALL IMMEDIATE'),
    )
    await expect(refused, `${table} ${JSON.stringify(cells)}`).rejects.toMatchObject({ code: '23503' })
  } finally {
    await raw.query('ROLLBACK')
  }
}

describe('every reference is to the same session', () => {
  it('PROMISE-130: each column of the catalogue that can refer to something has its rule here', async () => {
    const columns = await raw.query(
      `SELECT table_name || '.' || column_name AS name FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name <> '_prisma_migrations' AND column_name ~ '(^i|I)d$'`,
    )
    const sessions = Object.keys(rows).map((table) => `${table}.sessionId`)
    const known = [...sessions, ...Object.keys(foreign), ...owned, ...Object.keys(free)]
    expect(columns.map(({ name }) => name).sort()).toEqual(known.sort())
  })

  it('PROMISE-131: a row of no session is refused by every table', async () => {
    for (const table of Object.keys(rows)) await refuses(table, { sessionId: 'ses_nobody-has-it' })
  })

  it.each(Object.keys(foreign))('PROMISE-132: %s names a row of its session and of its kind', async (name) => {
    const [table, column] = name.split('.') as [string, string]
    for (const value of ['nowhere', ...foreign[name]!()]) await refuses(table, { [column]: value })
  })

  it.each(owned)('PROMISE-133: %s names no execution of another session, so that it blocks none', async (name) => {
    await refuses(name.split('.')[0]!, { executionId: theirs.executionId })
  })

  it('PROMISE-133: nor does another session start it', async () => {
    const started = { type: 'execution.started', payload: { executionId: theirs.executionId } }
    await expect(insert('Event', { ...rows.Event!(), ...started })).rejects.toMatchObject({
      code: '23503',
      constraint: 'Event_execution_fkey',
    })
  })

  it('PROMISE-134: what is referred to does not change its kind, nor go', async () => {
    for (const change of [
      [`UPDATE "Message" SET kind = 'USER', status = NULL, text = '' WHERE id = $1`, mine.messageId],
      ['DELETE FROM "Message" WHERE id = $1', mine.messageId],
      ['UPDATE "Claim" SET "messageId" = $1', 'nowhere'],
    ])
      await expect(raw.query(change[0]!, [change[1]])).rejects.toMatchObject({ code: '23503' })
  })
})

it('PROMISE-138: an append that moves a claim to a step which is not there is refused by the append itself', async () => {
  const { sessionId, executionId } = mine
  await here.db.$transaction(async (tx) => {
    const request = {
      sessionId,
      events: [titled('x')],
      fence: { executionId, owner: here.owner, phases: ['UNKNOWN' as const] },
      claim: { kind: 'move' as const, to: 'UNKNOWN' as const, messageId: 'nowhere' },
    }
    await expect(appendIn(tx, request)).rejects.toMatchObject({
      sqlState: '23503',
      constraint: 'Claim_sessionId_messageId_fkey',
    })
  })
})

describe('one end each, in the log', () => {
  const ends: [string[], Cells][] = [[['compaction.ended', 'compaction.failed'], { messageId: 'm' }]]
  it('PROMISE-135: a second end of a compaction is refused, and so is an end of nothing', async () => {
    let seq = 200
    const row = (type: string, payload: Cells) => ({ ...rows.Event!(), seq: seq++, type, payload })
    for (const [types, payload] of ends)
      for (const first of types)
        for (const second of types) {
          await raw.query('BEGIN')
          await insert('Event', row(first, payload))
          await expect(insert('Event', row(second, payload)), `${first}, ${second}`).rejects.toMatchObject({
            code: '23505',
          })
          await raw.query('ROLLBACK')
        }
    for (const type of [
      'step.ended',
      'tool.failed',
      'execution.settled',
      'prompt.promoted',
      'interaction.settled',
      'quarantine.resolved',
      ...ends.flatMap(([types]) => types),
    ])
      await expect(insert('Event', row(type, { messageId: null, other: 1 })), type).rejects.toMatchObject({
        code: '23514',
        constraint: 'Event_terminal_check',
      })
  })
})

describe('databases and tables that were wrong before', () => {
  it('PROMISE-136: a database whose rows break a rule is not upgraded, and the error names rule and row', async () => {
    const old = await createTestDatabase()
    const side = await beside(old.url)
    const dir = mkdtempSync(join(tmpdir(), 'holdfast-before-'))
    try {
      await side.query('DROP SCHEMA public CASCADE; CREATE SCHEMA public')
      for (const { name } of readMigrations(migrationsDir))
        if (name < '20261130040100') cpSync(join(migrationsDir, name), join(dir, name), { recursive: true })
      await migrate({ url: old.url, dir })
      await side.query(
        `INSERT INTO "Session" (id, tenant, model, seq, "createdAt", "updatedAt") VALUES ('ses_old', 't', 'm', 1, now(), now());
         INSERT INTO "Input" (id, "sessionId", kind, text, "requestedDelivery", delivery, state, "wakePending", "executionRequested", "admittedSeq", "createdAt")
         VALUES ('msg_prompt', 'ses_old', 'PROMPT', '', 'QUEUE', 'QUEUE', 'PENDING', true, true, 1, now());
         INSERT INTO "Claim" VALUES ('ses_old', 'exe_.now', 'own_.x', 'UNKNOWN', 'msg_nowhere', now(), now(), NULL);
         INSERT INTO "Recovery" VALUES ('rec_.old', 'ses_old', 'exe_.old', 'UNKNOWN', NULL, 'msg_prompt', true, NULL, now())`,
      )
      for (const { name } of readMigrations(migrationsDir))
        if (name.startsWith('20261130040100')) cpSync(join(migrationsDir, name), join(dir, name), { recursive: true })
      await expect(migrate({ url: old.url, dir })).rejects.toThrow(
        /Recovery_sessionId_continuationMessageId_fkey.*\(ses_old, msg_prompt\)/s,
      )
      // Mended, it is upgraded; a step that a claim named and that is not there is forgotten.
      await side.query(`DELETE FROM "Recovery"`)
      await migrate({ url: old.url, dir })
      expect(await side.query('SELECT "messageId" FROM "Claim"')).toEqual([{ messageId: null }])
    } finally {
      rmSync(dir, { recursive: true })
      old.exempt('all', 'written past every log')
      await side.close()
      await old.drop()
    }
  })

  it('PROMISE-137: a rebuild brings rows that refer to each other to what the log says, whatever they were', async () => {
    const step = await scene()
    const { sessionId, messageId } = step
    await raw.query('DELETE FROM "Input" WHERE id = $1', [step.continuation])
    await insert('Message', {
      ...rows.Message!(),
      id: 'msg_odd',
      sessionId,
      kind: 'ASSISTANT',
      text: null,
      model: 'm',
      status: 'RUNNING',
    })
    await insert('Part', { sessionId, messageId: 'msg_odd', index: 0, kind: 'TEXT' })
    await insert('Chunk', { sessionId, messageId: 'msg_odd', index: 0, offset: 0, text: 'x' })
    await raw.query('UPDATE "Claim" SET "messageId" = $2 WHERE "sessionId" = $1', [sessionId, 'msg_odd'])
    expect(await rebuildSession(here.db, sessionId)).toMatchObject({ consistent: false })
    expect(await verifySession(here.db, sessionId)).toMatchObject({ consistent: true })
    expect(await here.db.claim.findUnique({ where: { sessionId } })).toMatchObject({ messageId: null })
    expect(await here.db.message.findMany({ where: { sessionId, kind: 'ASSISTANT' } })).toMatchObject([
      { id: messageId },
    ])
  })
})
