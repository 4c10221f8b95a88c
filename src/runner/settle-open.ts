// Closes whatever a cut-off step left open: parts with the text they had, tools, interactions, a compaction, the step itself. The one place
// for it: the owner's cleanup after an interrupt, an interrupt without one, a decision that stops, and recovery all end here, so that none
// leaves anything behind that runs for ever, or forgets what the provider was paid for.

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

/** Everything of these sessions that has no terminal yet, of one moment. An unknown session is not in the answer. */
export async function readOpenOf(db: Tx, sessionIds: readonly string[]): Promise<Map<string, OpenRows>> {
  const rows = await db.$queryRaw<(OpenRows & { sessionId: string })[]>`
    SELECT s.id AS "sessionId", s.seq,
      (SELECT jsonb_build_object('messageId', m.id, 'streamed', m.streamed, 'attempt', m.attempt, 'executionId', m."executionId",
          'usage', jsonb_build_object('inputTokens', COALESCE(m."inputTokens", 0), 'outputTokens', COALESCE(m."outputTokens", 0),
            'reasoningTokens', COALESCE(m."reasoningTokens", 0), 'cachedInputTokens', COALESCE(m."cachedInputTokens", 0))) FROM "Message" m
        WHERE m."sessionId" = s.id AND m.status = 'RUNNING' AND m.kind = 'ASSISTANT' ORDER BY m.seq DESC LIMIT 1) AS step,
      (SELECT jsonb_build_object('messageId', m.id, 'automatic', m.automatic) FROM "Message" m
        WHERE m."sessionId" = s.id AND m.status = 'RUNNING' AND m.kind = 'COMPACTION' ORDER BY m.seq DESC LIMIT 1) AS compaction,
      COALESCE((SELECT jsonb_agg(jsonb_build_object('messageId', p."messageId", 'index', p.index, 'kind', p.kind, 'text',
          COALESCE((SELECT string_agg(c.text, '' ORDER BY c."offset") FROM "Chunk" c
                     WHERE c."sessionId" = s.id AND c."messageId" = p."messageId" AND c.index = p.index), '')) ORDER BY p.index)
        FROM "Part" p WHERE p."sessionId" = s.id AND NOT p.complete), '[]') AS parts,
      COALESCE((SELECT jsonb_agg(jsonb_build_object('messageId', t."messageId", 'callId', t."callId", 'index', t.index, 'name', t.name,
          'started', t."startedAt" IS NOT NULL OR t."providerExecuted", 'interactionState', n.state, 'feedback', n.feedback) ORDER BY t.index)
        FROM "ToolCall" t LEFT JOIN "Interaction" n ON n."sessionId" = t."sessionId" AND n."messageId" = t."messageId" AND n."callId" = t."callId"
        WHERE t."sessionId" = s.id AND t."settledAt" IS NULL), '[]') AS tools,
      COALESCE((SELECT jsonb_agg(jsonb_build_object('id', n.id, 'messageId', n."messageId", 'callId', n."callId"))
        FROM "Interaction" n WHERE n."sessionId" = s.id AND n.state = 'OPEN'), '[]') AS interactions
    FROM "Session" s WHERE s.id = ANY (${sessionIds})`
  return new Map(rows.map(({ sessionId, ...open }) => [sessionId, open]))
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
  /** What the owner's streams had received, which may be more than the chunks have. */
  live?: Iterable<{ messageId: string; index: number; text: string }>
}

/** The events that leave nothing open, tool terminals before the step's. The step keeps the usage that its stream had told of. */
export const settleOpen = (open: OpenRows, { tool, compaction, step, live }: Ending): NewEvent[] => [
  ...endParts(open, live),
  ...cancelInteractions(open.interactions),
  ...failTools(open, (each) => unlessDeclined(each, tool(each))),
  ...failCompaction(open, compaction),
  ...(step === null ? [] : endStep(open, step)),
]

function endStep({ step }: OpenRows, end: NonNullable<Ending['step']>): NewEvent[] {
  const messageId = 'failed' in end && end.messageId !== undefined ? end.messageId : step?.messageId
  if (messageId === undefined) return []
  const usage = step?.messageId === messageId ? step.usage : noUsage
  return 'failed' in end
    ? [event('step.failed', { messageId, error: end.failed, usage, continues: end.continues })]
    : [event('step.interrupted', { messageId, error: end.interrupted, usage })]
}

/** Ends open parts with the text at hand: the longer of what the owner had and what the chunks kept. */
export function endParts(
  open: OpenRows,
  live: Iterable<{ messageId: string; index: number; text: string }> = [],
): NewEvent[] {
  const own = new Map([...live].map(({ messageId, index, text }) => [`${messageId}/${index}`, text]))
  return open.parts.map(({ messageId, index, kind, text }) => {
    const mine = own.get(`${messageId}/${index}`) ?? ''
    const payload = { messageId, index, text: mine.length >= text.length ? mine : text }
    return event(kind === 'TEXT' ? 'text.ended' : 'reasoning.ended', payload)
  })
}

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
