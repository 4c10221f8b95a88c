// Sessions whose owner is gone in the middle of something, as its last commit left them.
import { readClaim } from '../../src/claim.ts'
import type { Db } from '../../src/db.ts'
import { event, type NewEvent, type StoredEvent } from '../../src/events.ts'
import { newExecutionId, newMessageId } from '../../src/ids.ts'
import type { Core } from '../../src/runner/core.ts'
import { verifySession } from '../../src/verify.ts'

let made = 0

export interface CutOff {
  sessionId: string
  promptId: string
  executionId: string
  /** Appends as whoever has the claim did, past every fence. */
  append(events: NewEvent[]): Promise<void>
  types(from?: number): Promise<string[]>
  events(): Promise<StoredEvent[]>
}

export const prompt = (messageId: string, requestExecution = true, text = 'hi') =>
  event('prompt.admitted', {
    messageId,
    inputKind: 'PROMPT',
    text,
    attachments: [],
    delivery: 'STEER',
    requestExecution,
  })

export const promoted = (messageId: string, text = 'hi') =>
  event('prompt.promoted', { messageId, inputKind: 'PROMPT', text, attachments: [], hidden: false })

export interface CutOffOptions {
  owner?: string
  /** Below zero: expired that long ago. */
  leaseMs?: number
  model?: string
}

/** A session with one armed prompt, claimed by an owner that is gone, phase READY. */
export async function cutOff(core: Core, options: CutOffOptions = {}): Promise<CutOff> {
  const { owner = 'own_.gone', leaseMs = -1000, model = 'compatible/scripted' } = options
  const n = `${process.pid}${Date.now().toString(36)}${++made}`.padStart(12, '0')
  const sessionId = `ses_cut${n}`
  const promptId = `msg_cut${n}`
  const executionId = newExecutionId()
  const done = async (request: Parameters<Core['eventLog']['append']>[0]) => {
    const outcome = await core.eventLog.append(request)
    if (outcome.kind !== 'appended') throw new Error(`the story could not be told: ${outcome.kind}`)
  }
  await done({
    sessionId,
    events: [event('session.created', { tenant: 'default', title: null, instructions: null, model }), prompt(promptId)],
  })
  await done({
    sessionId,
    events: [event('execution.started', { executionId })],
    claim: { kind: 'acquire', executionId, owner, leaseMs },
  })
  const events = () => core.eventLog.read(sessionId, 0, 1000)
  return {
    sessionId,
    promptId,
    executionId,
    events,
    types: async (from = 0) => (await events()).filter(({ seq }) => seq > from).map(({ type }) => type),
    append: (news) => done({ sessionId, events: news }),
  }
}

/** Cut off after the promotion, step.started and UNKNOWN, before the request. Returns the step's message. */
export async function inStep(core: Core, options?: CutOffOptions): Promise<CutOff & { messageId: string }> {
  const cut = await cutOff(core, options)
  const messageId = newMessageId()
  const { executionId } = cut
  await phased(
    core,
    cut,
    [promoted(cut.promptId), event('step.started', { messageId, model: 'compatible/scripted', executionId })],
    'UNKNOWN',
    messageId,
  )
  return { ...cut, messageId }
}

/** Appends, then moves the claim by hand to any phase: what a fence of the runner would not let pass is the point of some tests. */
export async function phased(
  core: Core,
  cut: CutOff,
  events: NewEvent[],
  phase: string,
  messageId?: string | null,
): Promise<void> {
  if (events.length > 0) await cut.append(events)
  const { sessionId } = cut
  await core.db.claim.update({
    where: { sessionId },
    data: { phase, ...(messageId === undefined ? {} : { messageId }) },
  })
}

/**
 * Lets `work` settle a step over its open tools. No code path leaves tools open behind a step, and the door refuses it: their rows are out
 * of its sight meanwhile.
 */
export async function behindTools(core: Core, sessionId: string, work: () => Promise<void>): Promise<void> {
  await core.db.$executeRaw`CREATE TABLE hidden_tools AS SELECT * FROM "ToolCall" WHERE "sessionId" = ${sessionId}`
  await core.db.$executeRaw`DELETE FROM "ToolCall" WHERE "sessionId" = ${sessionId}`
  await work()
  await core.db.$executeRaw`INSERT INTO "ToolCall" SELECT * FROM hidden_tools`
  await core.db.$executeRaw`DROP TABLE hidden_tools`
}

export const startTool = (messageId: string, callId: string, index = 0): NewEvent[] => [
  ...calledTool(messageId, callId, index),
  event('tool.started', { messageId, callId }),
]

export const calledTool = (messageId: string, callId: string, index = 0): NewEvent[] => [
  event('tool.input_started', { messageId, index, callId, name: 'work' }),
  event('tool.called', { messageId, index, callId, name: 'work', toolInput: {} }),
]

/** A person is asked whether a tool of `calledTool` may run. `expiresAt`: as ISO text. */
export const askedFor = (messageId: string, callId: string, interactionId: string, expiresAt: string | null = null) =>
  event('interaction.requested', {
    interactionId,
    kind: 'APPROVAL',
    messageId,
    callId,
    name: 'work',
    toolInput: {},
    prompt: 'May it run?',
    options: [],
    expiresAt,
  })

export const hasClaim = async (core: Core, sessionId: string) => (await readClaim(core.db, sessionId)) !== null

/** The differences that verifySession finds over all sessions of a database; nothing if all is well. */
export async function inconsistencies(db: Db): Promise<string[]> {
  const found: string[] = []
  for (const { id } of await db.session.findMany({ select: { id: true } })) {
    const verified = await verifySession(db, id)
    if (!verified?.consistent) found.push(`${id}: ${verified?.differences.join('; ')}`)
  }
  return found
}

/** Lets wakes be counted and nothing be run. */
export function quiet(core: Core): string[] {
  const woken: string[] = []
  core.coordinator.wake = (sessionId) => void woken.push(sessionId)
  return woken
}
