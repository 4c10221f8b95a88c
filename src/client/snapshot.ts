// The view of a session as a query gives it: what `reduce` goes on from, and what it has to come to (STREAM-26).

import type { MessageFieldsFragment, SessionSnapshotQuery } from './generated/graphql.ts'
import type { MessageView, PartView, SessionView } from './view.ts'

export type Snapshot = NonNullable<SessionSnapshotQuery['session']>

// Fragments of a union are typed per member; what a member does not have is absent.
type Message = MessageFieldsFragment
type Assistant = Extract<Message, { __typename: 'AssistantMessage' }>

const iso = (time: string) => new Date(time).toISOString()
const isoOrNull = (time: string | null | undefined) => (time == null ? null : iso(time))

/** The view that the query `SessionSnapshot` shows. */
export function viewOfSnapshot(session: Snapshot): SessionView {
  return {
    id: session.id,
    title: session.title ?? null,
    instructions: session.instructions ?? null,
    model: session.model,
    seq: session.seq,
    createdAt: iso(session.createdAt),
    updatedAt: iso(session.updatedAt),
    archivedAt: isoOrNull(session.archivedAt),
    parkedReason: session.parkedReason ?? null,
    usage: plain(session.usage),
    approvedTools: session.approvedTools,
    messages: session.messages.edges.map(({ node }) => messageView(node)),
    inputs: session.inputs.map((input) => ({
      ...plain(input),
      attachments: input.attachments.map(plain),
      promotedSeq: input.promotedSeq ?? null,
      createdAt: iso(input.createdAt),
    })),
    interactions: session.interactions.map((interaction) => ({
      ...plain(interaction),
      toolInput: interaction.toolInput ?? null,
      answer: interaction.answer ?? null,
      feedback: interaction.feedback ?? null,
      editedInput: interaction.editedInput ?? null,
      expiresAt: isoOrNull(interaction.expiresAt),
      createdAt: iso(interaction.createdAt),
    })),
    recoveries: session.recoveries.map(({ executionId, phase, assistantMessageId, ...recovery }) => ({
      executionId,
      phase,
      assistantMessageId: assistantMessageId ?? null,
      continuationMessageId: recovery.continuationMessageId,
      wakePending: recovery.wakePending,
      createdAt: iso(recovery.createdAt),
    })),
    quarantine: session.quarantine.map((entry) => ({
      ...plain(entry),
      quarantinedAt: iso(entry.quarantinedAt),
      resolvedAt: isoOrNull(entry.resolvedAt),
    })),
    executionId: session.execution?.id ?? null,
  }
}

/** A message of a query as a view has it. */
export function messageView(message: Message): MessageView {
  const base = { id: message.id, seq: message.seq, createdAt: iso(message.createdAt) }
  switch (message.__typename) {
    case 'UserMessage':
      return { ...base, type: message.__typename, text: message.text, attachments: message.attachments.map(plain) }
    case 'SyntheticMessage':
      return { ...base, type: message.__typename, text: message.text, hidden: message.hidden }
    case 'CompactionMessage':
      return {
        ...base,
        type: message.__typename,
        compactionStatus: message.compactionStatus,
        summary: message.summary ?? null,
        error: message.error ? plain(message.error) : null,
      }
    case 'AssistantMessage':
      return {
        ...base,
        type: message.__typename,
        model: message.model,
        status: message.status,
        finish: message.finish ?? null,
        error: message.error ? plain(message.error) : null,
        parts: message.parts.map(partView),
        usage: message.usage ? plain(message.usage) : null,
        settledAt: isoOrNull(message.settledAt),
        ...retryOf(message),
      }
  }
}

function retryOf({ retry }: Assistant) {
  if (!retry) return {}
  return { retry: { attempt: retry.attempt, retryAt: isoOrNull(retry.retryAt), error: plain(retry.error) } }
}

function partView(part: Assistant['parts'][number]): PartView {
  if (part.__typename !== 'ToolCall')
    return { type: part.__typename, index: part.index, text: part.text, complete: part.complete }
  return {
    type: part.__typename,
    index: part.index,
    callId: part.callId,
    name: part.name,
    status: part.status,
    input: part.input ?? null,
    output: part.output ?? null,
    error: part.error ? plain(part.error) : null,
    startedAt: isoOrNull(part.startedAt),
    settledAt: isoOrNull(part.settledAt),
  }
}

/** Without the name of its type, which caches add to every object. */
function plain<T extends object>(value: T): Omit<T, '__typename'> {
  const { __typename: _, ...fields } = value as T & { __typename?: string }
  return fields
}
