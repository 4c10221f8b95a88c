// History for the model: reads the rows of a session and lowers them to the provider's prompt (design section 6).
// Every call has a result, whatever became of it; reasoning goes back only to the model that made it, from a step without error;
// partial answers are kept; empty parts and hidden messages are left out. What precedes the newest compaction's tail is absent.

import type { LanguageModelV4Message, LanguageModelV4Prompt } from '@ai-sdk/provider'
import type { Tx } from '../db.ts'
import type { Attachment } from '../events.ts'
import type { Message, Part, ToolCall } from '../generated/prisma/client.ts'
import { Prisma } from '../generated/prisma/client.ts'
import { jsonBytes, textBytes } from '../value-size.ts'
import { attachmentPart } from './attachment.ts'
import { wireIds, wireName } from './call-names.ts'
import { type Dialect, dialectOf } from './dialect.ts'
import { toolResult } from './tool-result.ts'

export interface HistoryMessage extends Message {
  parts: Part[]
  toolCalls: ToolCall[]
}

/** An input that is promoted together with the step that this history is for. */
export interface Promoted {
  id: string
  kind: 'PROMPT' | 'CONTINUATION'
  text: string
  attachments: Attachment[]
  hidden: boolean
}

export interface History {
  instructions: string | null
  messages: HistoryMessage[]
  summary: string | null
  /** Older messages are not in it: all together would have had too many bytes. */
  leftOut?: boolean
  /** Automatic compactions since a step ended clean. */
  compactions: number
}

/** Bytes of the messages that one request may carry; no provider takes as many. */
export const historyBytesMax = 64 * 1024 * 1024

/**
 * The first of the newest messages that have `bytesMax` together, at least of one; null if the session has none. Lengths are read, not what has
 * them.
 */
async function firstFitting(db: Tx, sessionId: string, from: number, bytesMax: number) {
  const bytes = (name: string) => textBytes(Prisma.raw(name))
  const json = (name: string) => jsonBytes(Prisma.raw(name))
  const rows = await db.$queryRaw<{ seq: number; total: bigint; first: number }[]>`
    SELECT seq, total, min(seq) OVER () AS first FROM (
      SELECT s.seq, sum(s.bytes) OVER (ORDER BY s.seq DESC) AS total FROM (
        SELECT m.seq, ${bytes('m.text')} + ${json('m.attachments')}
          + COALESCE((SELECT sum(${bytes('p.text')} + ${json('p.state')}) FROM "Part" p
                       WHERE p."sessionId" = m."sessionId" AND p."messageId" = m.id), 0)
          + COALESCE((SELECT sum(${json('t.input')} + ${json('t.output')} + ${json('t.state')}) FROM "ToolCall" t
                       WHERE t."sessionId" = m."sessionId" AND t."messageId" = m.id), 0) AS bytes
          FROM "Message" m WHERE m."sessionId" = ${sessionId} AND m.seq >= ${from}) s) w
     ORDER BY seq`
  const fits = rows.find(({ total }) => Number(total) <= bytesMax) ?? rows.at(-1)
  return fits === undefined ? null : { seq: fits.seq, bytes: Number(fits.total), leftOut: fits.seq > fits.first }
}

/**
 * The rows of a session that the model may still see, oldest first: as many of the newest messages as have `bytesMax` together. `room`: asked for their
 * bytes before they are read.
 */
export async function readHistory(
  db: Tx,
  sessionId: string,
  { bytesMax = historyBytesMax, room }: { bytesMax?: number; room?: (bytes: number) => Promise<unknown> } = {},
): Promise<History> {
  const session = await db.session.findUniqueOrThrow({
    where: { id: sessionId },
    select: { instructions: true, compactions: true },
  })
  const compaction = await db.message.findFirst({
    where: { sessionId, kind: 'COMPACTION', status: 'COMPLETED' },
    orderBy: { seq: 'desc' },
  })
  const from = compaction?.tailSeq ?? 0
  const fitting = await firstFitting(db, sessionId, from, bytesMax)
  await room?.(fitting?.bytes ?? 0)
  const messages = await db.message.findMany({
    where: { sessionId, seq: { gte: fitting?.seq ?? from } },
    orderBy: { seq: 'asc' },
    include: { parts: { orderBy: { index: 'asc' } }, toolCalls: { orderBy: { index: 'asc' } } },
  })
  const { instructions, compactions } = session
  const leftOut = fitting?.leftOut ?? false
  return { instructions, messages, leftOut, summary: compaction?.summary ?? null, compactions }
}

type AssistantContent = Extract<LanguageModelV4Message, { role: 'assistant' }>['content']
type ToolContent = Extract<LanguageModelV4Message, { role: 'tool' }>['content']

/** State that a provider gave with a part, in the shape in which it goes back. */
const stateOf = (state: unknown) =>
  state === null || state === undefined ? {} : { providerOptions: state as Record<string, Record<string, never>> }

/** What one prompt is lowered for, and the ids that its calls have so far. */
interface Lowering {
  model: string
  dialect: Dialect
  idOf: (messageId: string, callId: string) => string
}

function assistantMessages(message: HistoryMessage, { model, dialect, idOf }: Lowering): LanguageModelV4Message[] {
  const sameModel = message.model === model && message.status === 'ENDED'
  const content: AssistantContent = []
  const results: ToolContent = []
  const entries = [
    ...message.parts.map((part) => ({ index: part.index, part, call: null })),
    ...message.toolCalls.map((call) => ({ index: call.index, part: null, call })),
  ].sort((a, b) => a.index - b.index)
  for (const { part, call } of entries) {
    if (part !== null) {
      if (part.kind === 'TEXT' && part.text.trim() !== '')
        content.push({ type: 'text', text: part.text, ...(sameModel ? stateOf(part.state) : {}) })
      if (part.kind === 'REASONING' && sameModel && (part.text !== '' || part.state !== null))
        content.push({ type: 'reasoning', text: part.text, ...stateOf(part.state) })
      continue
    }
    const input = typeof call.input === 'object' && call.input !== null ? call.input : {}
    // A provider knows only its own tools: for another model the call is a call like any other, with its result.
    const inline = call.providerExecuted && sameModel
    const names = inline
      ? { toolCallId: call.callId, toolName: call.name }
      : { toolCallId: idOf(message.id, call.callId), toolName: wireName(call.name) }
    content.push({
      type: 'tool-call',
      ...names,
      input,
      ...(inline ? { providerExecuted: true } : {}),
      ...(sameModel ? stateOf(call.state) : {}),
    })
    if (inline) content.push(toolResult(call, names, 'own'))
    else results.push(toolResult(call, names, dialect))
  }
  if (content.length === 0) return []
  const lowered: LanguageModelV4Message[] = [{ role: 'assistant', content }]
  if (results.length > 0) lowered.push({ role: 'tool', content: results })
  return lowered
}

/** Nothing at all for a message without content, which providers refuse. */
function userMessages(text: string, attachments: Attachment[], dialect: Dialect): LanguageModelV4Message[] {
  const parts = attachments.map((attachment) => attachmentPart(attachment, dialect))
  const content = [...(text.trim() === '' ? [] : [{ type: 'text' as const, text }]), ...parts]
  return content.length === 0 ? [] : [{ role: 'user', content }]
}

/** The prompt for one request to the model: instructions, summary, history, then what is promoted with the step. */
export function lowerHistory(history: History, promoted: readonly Promoted[], model: string): LanguageModelV4Prompt {
  const prompt: LanguageModelV4Prompt = []
  const lowering = { model, dialect: dialectOf(model), idOf: wireIds() }
  const say = (text: string, attachments: Attachment[] = []) =>
    prompt.push(...userMessages(text, attachments, lowering.dialect))
  if (history.instructions) prompt.push({ role: 'system', content: history.instructions })
  if (history.summary !== null) say(`Summary of the conversation so far:\n\n${history.summary}`)
  if (history.leftOut) say('Earlier messages of this conversation are left out here: together they are too large.')
  for (const message of history.messages) {
    if (message.kind === 'USER') say(message.text ?? '', message.attachments as unknown as Attachment[])
    else if (message.kind === 'SYNTHETIC' && !message.hidden) say(message.text ?? '')
    else if (message.kind === 'ASSISTANT') prompt.push(...assistantMessages(message, lowering))
  }
  for (const { text, attachments, hidden } of promoted) if (!hidden) say(text, attachments)
  return prompt
}
