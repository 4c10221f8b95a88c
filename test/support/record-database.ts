// Records the rows of a database with sessions in every state that an upgrade has to carry over, as this version makes them. For each
// released schema once, on a database of its own that is empty:
//   node --import tsx test/support/record-database.ts <url> > test/fixtures/schema-<n>.json && npx biome format --write test/fixtures
// What is recorded is never recorded again: the upgrade test takes every record through all later migrations (scenario DB-06).
import { event, type NewEvent, noUsage } from '../../src/events.ts'
import { newExecutionId, newMessageId } from '../../src/ids.ts'
import { migrate, migrationsDir, readMigrations } from '../../src/migrate.ts'
import { startCore } from './core.ts'
import { cutOff, inStep, phased, quiet } from './cut-off.ts'
import { admitted, created, promoted, step } from './story.ts'

/** In the order in which they refer to each other. */
export const tables = [
  'Session',
  'Event',
  'Input',
  'Message',
  'Part',
  'ToolCall',
  'Interaction',
  'Recovery',
  'Quarantine',
  'Claim',
  'Chunk',
] as const

export interface RecordedDatabase {
  migrations: string[]
  /** What each session is there for. */
  sessions: Record<
    'finished' | 'archived' | 'unarmed' | 'waiting' | 'streaming' | 'ready' | 'recovering' | 'quarantined',
    string
  >
  rows: Record<string, Record<string, unknown>[]>
}

async function record(url: string): Promise<RecordedDatabase> {
  await migrate({ url })
  const { core, recovery, stop } = await startCore({ url, config: { livenessGraceMs: 60_000 } })
  quiet(core)
  const append = async (sessionId: string, ...events: NewEvent[]) => {
    const outcome = await core.eventLog.append({ sessionId, events })
    if (outcome.kind !== 'appended') throw new Error(`${sessionId}: ${outcome.kind}`)
  }
  const sessions = {
    finished: 'ses_finished',
    archived: 'ses_archived',
    unarmed: 'ses_unarmed-one',
    waiting: 'ses_waiting1',
    streaming: '',
    ready: '',
    recovering: '',
    quarantined: '',
  }
  const usage = { inputTokens: 12, outputTokens: 34, reasoningTokens: 5, cachedInputTokens: 6 }
  for (const sessionId of [sessions.finished, sessions.archived]) {
    const prompt = `msg_${sessionId}`
    await append(sessionId, created('A title'), admitted(prompt, 'Hello \u{1f600}', true), promoted(prompt))
    await append(sessionId, ...step(newMessageId(), 'An answer', usage))
  }
  await append(
    sessions.archived,
    event('session.updated', { title: 'Old', instructions: 'Be brief', model: 'demo/echo', archived: true }),
  )
  await append(sessions.unarmed, created(), admitted('msg_unarmed-one'))

  const executionId = newExecutionId()
  const asks = { messageId: newMessageId(), index: 0, callId: 'call_deploy', name: 'deploy' }
  await append(
    sessions.waiting,
    event('session.created', { tenant: 'default', title: null, instructions: null, model: 'compatible/scripted' }),
    admitted('msg_waiting1', 'Deploy', true),
    event('execution.started', { executionId }),
    promoted('msg_waiting1', 'Deploy'),
    event('step.started', { messageId: asks.messageId, model: 'compatible/scripted', executionId }),
    event('tool.input_started', asks),
    event('tool.called', { ...asks, toolInput: { to: 'production' } }),
    event('interaction.requested', {
      interactionId: 'req_.waiting1',
      kind: 'APPROVAL',
      messageId: asks.messageId,
      callId: asks.callId,
      name: asks.name,
      toolInput: { to: 'production' },
      prompt: 'May deploy run?',
      options: [],
      expiresAt: null,
    }),
    event('step.streamed', { messageId: asks.messageId, finish: 'tool-calls', usage: noUsage }),
    event('execution.settled', { executionId, outcome: 'WAITING', retryAt: null }),
  )

  const recovering = await inStep(core)
  const quarantined = await inStep(core)
  await phased(
    core,
    quarantined,
    [event('interrupt.requested', { interruptedExecutionId: quarantined.executionId })],
    'CANCELLING',
  )
  const report = await recovery.scan()
  if (report.taken !== 1 || report.quarantined !== 1) throw new Error(JSON.stringify(report))

  const streaming = await inStep(core)
  const { messageId } = streaming
  await streaming.append([event('text.started', { messageId, index: 0 })])
  await core.db.chunk.create({
    data: { sessionId: streaming.sessionId, messageId, index: 0, offset: 0, text: 'So far' },
  })
  const bystander = await cutOff(core)
  Object.assign(sessions, {
    streaming: streaming.sessionId,
    recovering: recovering.sessionId,
    quarantined: quarantined.sessionId,
    ready: bystander.sessionId,
  })
  const rows: RecordedDatabase['rows'] = {}
  for (const table of tables) {
    const found = await core.db.$queryRawUnsafe<{ row: Record<string, unknown> }[]>(
      `SELECT to_jsonb(t) AS row FROM "${table}" t ORDER BY to_jsonb(t)::text`,
    )
    rows[table] = found.map(({ row }) => row)
  }
  await stop()
  return { migrations: readMigrations(migrationsDir).map(({ name }) => name), sessions, rows }
}

const url = process.argv[2]
if (process.argv[1]?.endsWith('record-database.ts') && url !== undefined)
  record(url).then(
    (recorded) => process.stdout.write(`${JSON.stringify(recorded, null, 2)}\n`),
    (error) => {
      console.error(error)
      process.exitCode = 1
    },
  )
