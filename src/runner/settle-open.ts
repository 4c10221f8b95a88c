// Closes whatever a cut-off step left open: parts with the text they had, tools, interactions, a compaction, the step itself. The one place
// for it: the owner's cleanup after an interrupt, an interrupt without one, a decision that stops, and recovery all end here, so that none
// leaves anything behind that runs for ever, or forgets what the provider was paid for.

import { type ChunkText, joinedChunks } from '../chunk-text.ts'
import type { Tx } from '../db.ts'
import { event, type JsonValue, type NewEvent, noUsage, type StepError, type Usage } from '../events.ts'

export interface OpenPart {
  messageId: string
  index: number
  kind: 'TEXT' | 'REASONING'
  /** What the chunks keep of it. */
  text: string
}

export interface OpenTool {
  messageId: string
  callId: string
  index: number
  name: string
  started: boolean
  interactionState: string | null
  feedback: string | null
}

/** A text or reasoning part as its owner has received it. */
export interface ReceivedPart {
  index: number
  kind: 'TEXT' | 'REASONING'
  text: string
  /** The provider's own, which came with its end. */
  state?: JsonValue
}

/**
 * What the owner of a step has received of it and the log may not have yet: a part stays in it until the commit that ends it. Rows lag
 * behind by a flush, and by whatever append was under way when the claim was lost.
 */
export interface Received {
  messageId: string
  parts: readonly ReceivedPart[]
  /** As the provider told at the end of its stream. */
  usage: Usage
}

export interface OpenRows {
  seq: number
  step: {
    messageId: string
    streamed: boolean
    attempt: number
    executionId: string | null
    /** What the log has of it: the stream's end says it before the step's. */
    usage: Usage
  } | null
  compaction: { messageId: string; automatic: boolean } | null
  parts: OpenPart[]
  tools: OpenTool[]
  interactions: { id: string; messageId: string; callId: string }[]
}

type Row = Omit<OpenRows, 'parts'> & {
  sessionId: string
  parts: (Omit<OpenPart, 'text'> & { chunks: ChunkText[] })[]
}

/** Everything of these sessions that has no terminal yet, of one moment. An unknown session is not in the answer. */
export async function readOpenOf(db: Tx, sessionIds: readonly string[]): Promise<Map<string, OpenRows>> {
  const rows = await db.$queryRaw<Row[]>`
    SELECT s.id AS "sessionId", s.seq,
      (SELECT jsonb_build_object('messageId', m.id, 'streamed', m.streamed, 'attempt', m.attempt, 'executionId', m."executionId",
          'usage', jsonb_build_object('inputTokens', COALESCE(m."inputTokens", 0), 'outputTokens', COALESCE(m."outputTokens", 0),
            'reasoningTokens', COALESCE(m."reasoningTokens", 0), 'cachedInputTokens', COALESCE(m."cachedInputTokens", 0))) FROM "Message" m
        WHERE m."sessionId" = s.id AND m.status = 'RUNNING' AND m.kind = 'ASSISTANT' ORDER BY m.seq DESC LIMIT 1) AS step,
      (SELECT jsonb_build_object('messageId', m.id, 'automatic', m.automatic) FROM "Message" m
        WHERE m."sessionId" = s.id AND m.status = 'RUNNING' AND m.kind = 'COMPACTION' ORDER BY m.seq DESC LIMIT 1) AS compaction,
      COALESCE((SELECT jsonb_agg(jsonb_build_object('messageId', p."messageId", 'index', p.index, 'kind', p.kind, 'chunks',
          COALESCE((SELECT jsonb_agg(jsonb_build_object('offset', c."offset", 'text', c.text) ORDER BY c."offset") FROM "Chunk" c
                     WHERE c."sessionId" = s.id AND c."messageId" = p."messageId" AND c.index = p.index), '[]')) ORDER BY p.index)
        FROM "Part" p WHERE p."sessionId" = s.id AND NOT p.complete), '[]') AS parts,
      COALESCE((SELECT jsonb_agg(jsonb_build_object('messageId', t."messageId", 'callId', t."callId", 'index', t.index, 'name', t.name,
          'started', t."startedAt" IS NOT NULL OR t."providerExecuted", 'interactionState', n.state, 'feedback', n.feedback) ORDER BY t.index)
        FROM "ToolCall" t LEFT JOIN "Interaction" n ON n."sessionId" = t."sessionId" AND n."messageId" = t."messageId" AND n."callId" = t."callId"
        WHERE t."sessionId" = s.id AND t."settledAt" IS NULL), '[]') AS tools,
      COALESCE((SELECT jsonb_agg(jsonb_build_object('id', n.id, 'messageId', n."messageId", 'callId', n."callId"))
        FROM "Interaction" n WHERE n."sessionId" = s.id AND n.state = 'OPEN'), '[]') AS interactions
    FROM "Session" s WHERE s.id = ANY (${sessionIds})`
  return new Map(
    rows.map(({ sessionId, parts, ...open }) => [
      sessionId,
      { ...open, parts: parts.map(({ chunks, ...part }) => ({ ...part, text: joinedChunks(chunks) })) },
    ]),
  )
}

/** The same of one session; throws if there is none. */
export async function readOpen(db: Tx, sessionId: string): Promise<OpenRows> {
  const open = (await readOpenOf(db, [sessionId])).get(sessionId)
  if (open === undefined) throw new Error(`no session ${sessionId}`)
  return open
}

/** What a person's stop gives as the reason. */
export const interruptedByUser: StepError = { code: 'ABORTED', message: 'interrupted by the user' }

/** How what is open ends. */
export interface Ending {
  /** Why a tool without a terminal fails; one that a person declined says so instead. */
  tool: (tool: OpenTool) => StepError
  compaction: StepError
  /** The terminal of the step: of the open one, or of the message that is named. Null: it stays as it is. */
  step: { interrupted: StepError } | { failed: StepError; continues: boolean; messageId?: string } | null
  /** Of its owner: more than the rows have. */
  received?: Received | null
}

/** The events that leave nothing open, tool terminals before the step's. The step keeps the usage that its stream had told of. */
export const settleOpen = (open: OpenRows, { tool, compaction, step, received }: Ending): NewEvent[] => [
  ...endParts(open, received),
  ...cancelInteractions(open.interactions),
  ...failTools(open, (each) => unlessDeclined(each, tool(each))),
  ...failCompaction(open, compaction),
  ...(step === null ? [] : endStep(open, step, received)),
]

function endStep({ step }: OpenRows, end: NonNullable<Ending['step']>, received?: Received | null): NewEvent[] {
  const messageId = 'failed' in end && end.messageId !== undefined ? end.messageId : step?.messageId
  if (messageId === undefined) return []
  // Between the end of a stream and its commit the owner alone knows what it has cost.
  const told = received?.messageId === messageId ? received.usage : noUsage
  const usage = step?.messageId !== messageId ? noUsage : step.streamed ? step.usage : told
  return 'failed' in end
    ? [event('step.failed', { messageId, error: end.failed, usage, continues: end.continues })]
    : [event('step.interrupted', { messageId, error: end.interrupted, usage })]
}

/**
 * Ends open parts with the text at hand: the longer of what the owner had and what the chunks kept. A part of the open step that only
 * the owner knows, as its begin was refused, begins and ends here.
 */
export function endParts(open: OpenRows, received?: Received | null): NewEvent[] {
  const own = new Map(received?.parts.map((part) => [part.index, part]))
  const ended = open.parts.map(({ messageId, index, kind, text }) => {
    const mine = received?.messageId === messageId ? own.get(index) : undefined
    if (mine !== undefined) own.delete(index)
    return endOf(messageId, mine !== undefined && mine.text.length >= text.length ? mine : { index, kind, text })
  })
  if (!received || open.step?.messageId !== received.messageId) return ended
  const { messageId } = received
  const unbegun = [...own.values()].flatMap((part) => [
    event(part.kind === 'TEXT' ? 'text.started' : 'reasoning.started', { messageId, index: part.index }),
    endOf(messageId, part),
  ])
  return [...ended, ...unbegun]
}

const endOf = (messageId: string, { index, kind, text, state }: ReceivedPart): NewEvent =>
  event(kind === 'TEXT' ? 'text.ended' : 'reasoning.ended', {
    messageId,
    index,
    text,
    ...(state === undefined ? {} : { state }),
  })

/** Cancels interactions that nobody has decided. */
export const cancelInteractions = (open: readonly { id: string }[]): NewEvent[] =>
  open.map(({ id }) =>
    event('interaction.settled', {
      interactionId: id,
      state: 'CANCELLED',
      answer: null as JsonValue,
      feedback: null,
      editedInput: null as JsonValue,
      remember: false,
    }),
  )

/** Fails every tool that has no terminal, each with its own reason. */
export const failTools = (open: OpenRows, errorOf: (tool: OpenTool) => StepError): NewEvent[] =>
  open.tools.map((tool) =>
    event('tool.failed', { messageId: tool.messageId, callId: tool.callId, error: errorOf(tool) }),
  )

/** A declined tool says so, with the person's words if there are any. */
export const declinedError = ({ feedback }: { feedback: string | null }): StepError => ({
  code: 'DECLINED',
  message: feedback ? `declined by the user: ${feedback}` : 'declined by the user',
})

/** What an open tool fails with: one that a person declined, or whose question was dismissed, says so and nothing else. */
const unlessDeclined = (tool: OpenTool, otherwise: StepError): StepError =>
  tool.interactionState === 'DECLINED' || tool.interactionState === 'DISMISSED' ? declinedError(tool) : otherwise

/** Fails a compaction that has no end. */
const failCompaction = (open: OpenRows, error: StepError): NewEvent[] =>
  open.compaction === null
    ? []
    : [event('compaction.failed', { messageId: open.compaction.messageId, error, usage: noUsage })]
