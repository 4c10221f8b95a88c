// The view of a session as its tables give it: what a reload shows.

import type { SessionView } from '../../src/client/view.ts'
import type { Db } from '../../src/db.ts'

const iso = (time: Date | null) => time?.toISOString() ?? null

interface Tokens {
  inputTokens: bigint | null
  outputTokens: bigint | null
  reasoningTokens: bigint | null
  cachedInputTokens: bigint | null
}
const usageOf = (row: Tokens) => ({
  inputTokens: Number(row.inputTokens),
  outputTokens: Number(row.outputTokens),
  reasoningTokens: Number(row.reasoningTokens),
  cachedInputTokens: Number(row.cachedInputTokens),
})
const errorOf = (row: { errorCode: string | null; errorMessage: string | null }) =>
  row.errorCode === null ? null : { code: row.errorCode, message: row.errorMessage! }

export async function viewOfTables(db: Db, id: string): Promise<Omit<SessionView, 'executionId'>> {
  const session = await db.session.findUniqueOrThrow({ where: { id } })
  const where = { sessionId: id }
  const parts = await db.part.findMany({ where })
  const calls = await db.toolCall.findMany({ where })
  const messages = await db.message.findMany({ where, orderBy: { seq: 'asc' } })
  const inputs = await db.input.findMany({ where, orderBy: { admittedSeq: 'asc' } })
  const interactions = await db.interaction.findMany({ where, orderBy: [{ createdAt: 'asc' }, { id: 'asc' }] })
  const recoveries = await db.recovery.findMany({ where, orderBy: [{ createdAt: 'asc' }, { id: 'asc' }] })
  const quarantine = await db.quarantine.findMany({ where, orderBy: [{ quarantinedAt: 'asc' }, { id: 'asc' }] })
  const remembered = interactions
    .filter((row) => row.remember && row.state === 'APPROVED')
    .sort((a, b) => a.settledAt!.getTime() - b.settledAt!.getTime())

  const partsOf = (messageId: string) =>
    [
      ...parts
        .filter((part) => part.messageId === messageId)
        .map(({ index, text, complete, kind }) => ({
          type: kind === 'TEXT' ? 'TextPart' : 'ReasoningPart',
          index,
          text,
          complete,
        })),
      ...calls
        .filter((call) => call.messageId === messageId)
        .map((call) => ({
          type: 'ToolCall',
          index: call.index,
          callId: call.callId,
          name: call.name,
          status: call.status,
          input: call.input,
          output: call.output,
          error: errorOf(call),
          startedAt: iso(call.startedAt),
          settledAt: iso(call.settledAt),
        })),
    ].sort((a, b) => a.index - b.index)

  return {
    id,
    title: session.title,
    instructions: session.instructions,
    model: session.model,
    seq: session.seq,
    createdAt: session.createdAt.toISOString(),
    updatedAt: session.updatedAt.toISOString(),
    archivedAt: iso(session.archivedAt),
    parkedReason: session.parkedReason,
    usage: usageOf(session),
    approvedTools: [...new Set(remembered.map((row) => row.toolName))],
    messages: messages.map((row) => {
      const base = { id: row.id, seq: row.seq, createdAt: row.createdAt.toISOString() }
      if (row.kind === 'USER') return { ...base, type: 'UserMessage', text: row.text, attachments: row.attachments }
      if (row.kind === 'SYNTHETIC') return { ...base, type: 'SyntheticMessage', text: row.text, hidden: row.hidden }
      if (row.kind === 'COMPACTION')
        return {
          ...base,
          type: 'CompactionMessage',
          compactionStatus: row.status,
          summary: row.summary,
          error: errorOf(row),
        }
      return {
        ...base,
        type: 'AssistantMessage',
        model: row.model,
        status: row.status,
        finish: row.finish,
        error: errorOf(row),
        parts: partsOf(row.id),
        usage: row.inputTokens === null ? null : usageOf(row),
        settledAt: iso(row.settledAt),
      }
    }) as SessionView['messages'],
    inputs: inputs.map((row) => ({
      id: row.id,
      kind: row.kind,
      text: row.text,
      attachments: row.attachments,
      delivery: row.delivery,
      state: row.state,
      wakePending: row.wakePending,
      admittedSeq: row.admittedSeq,
      promotedSeq: row.promotedSeq,
      createdAt: row.createdAt.toISOString(),
    })) as unknown as SessionView['inputs'],
    interactions: interactions.map((row) => ({
      id: row.id,
      kind: row.kind,
      state: row.state,
      messageId: row.messageId,
      callId: row.callId,
      toolName: row.toolName,
      toolInput: row.toolInput,
      prompt: row.prompt,
      options: row.options as string[],
      answer: row.answer,
      feedback: row.feedback,
      editedInput: row.editedInput,
      expiresAt: iso(row.expiresAt),
      createdAt: row.createdAt.toISOString(),
    })),
    recoveries: recoveries.map(
      ({ executionId, phase, assistantMessageId, continuationMessageId, wakePending, createdAt }) => ({
        executionId,
        phase,
        assistantMessageId,
        continuationMessageId,
        wakePending,
        createdAt: createdAt.toISOString(),
      }),
    ),
    quarantine: quarantine.map(({ id: entry, kind, executionId, reason, quarantinedAt, resolvedAt }) => ({
      id: entry,
      kind,
      executionId,
      reason,
      quarantinedAt: quarantinedAt.toISOString(),
      resolvedAt: iso(resolvedAt),
    })),
  }
}
