import { memo } from 'react'
import type { AssistantView, CompactionView, InteractionView, MessageView, PartView } from '../../../src/client/view.ts'
import { MarkdownText } from '../markdown/MarkdownText.tsx'
import { Icon } from '../parts/Icon.tsx'
import { Time, useSecondsUntil } from '../parts/Time.tsx'
import { Attachments } from './Attachments.tsx'
import { Reasoning } from './Reasoning.tsx'
import { ToolCard } from './ToolCard.tsx'

interface Props {
  message: MessageView
  interactions: readonly InteractionView[]
}

/** One message of the transcript. Drawn again only when it, or a question within it, has changed. */
export const MessageRow = memo(function MessageRow({ message, interactions }: Props) {
  switch (message.type) {
    case 'UserMessage':
      return (
        <article className="message message-user" aria-label="You">
          <div className="bubble">
            <div className="user-text">{message.text}</div>
            <Attachments attachments={message.attachments} />
          </div>
          <span className="message-meta">
            <Time at={message.createdAt} />
          </span>
        </article>
      )
    case 'SyntheticMessage':
      return (
        <article className="message message-system" aria-label="Note of the system">
          <span>{message.text}</span>
        </article>
      )
    case 'CompactionMessage':
      return <Compaction message={message} />
    case 'AssistantMessage':
      return <Assistant message={message} interactions={interactions} />
  }
}, same)

/** Questions of other messages do not matter here. */
function same(before: Props, after: Props): boolean {
  if (before.message !== after.message) return false
  if (before.interactions === after.interactions) return true
  const own = ({ message, interactions }: Props) => interactions.filter(({ messageId }) => messageId === message.id)
  const [old, now] = [own(before), own(after)]
  return old.length === now.length && old.every((interaction, index) => interaction === now[index])
}

function Assistant({ message, interactions }: { message: AssistantView; interactions: readonly InteractionView[] }) {
  const own = interactions.filter(({ messageId }) => messageId === message.id)
  const running = message.status === 'RUNNING'
  return (
    <article className="message message-assistant" aria-label="Assistant" aria-busy={running}>
      {message.parts.map((part) => (
        <Part key={part.index} part={part} interactions={own} />
      ))}
      {running && message.parts.length === 0 && !message.retry && <span className="working">Working</span>}
      {message.retry && running && <Retry retry={message.retry} />}
      {message.status === 'FAILED' && message.error && (
        <p className="step-error">
          <code>{message.error.code}</code> {message.error.message}
        </p>
      )}
      {message.status === 'INTERRUPTED' && <p className="step-stopped">Stopped</p>}
      {!running && (
        <span className="message-meta">
          {message.model}
          {message.usage && ` · ${message.usage.inputTokens} in, ${message.usage.outputTokens} out`}
          {message.settledAt && (
            <>
              {' · '}
              <Time at={message.settledAt} />
            </>
          )}
        </span>
      )}
    </article>
  )
}

function Part({ part, interactions }: { part: PartView; interactions: readonly InteractionView[] }) {
  if (part.type !== 'ToolCall')
    return part.type === 'ReasoningPart' ? (
      <Reasoning part={part} />
    ) : (
      <MarkdownText text={part.text} open={!part.complete} />
    )
  return <ToolCard call={part} interaction={interactions.find(({ callId }) => callId === part.callId)} />
}

function Retry({ retry }: { retry: NonNullable<AssistantView['retry']> }) {
  const seconds = useSecondsUntil(retry.retryAt === null ? null : Date.parse(retry.retryAt))
  return (
    <p className="retry">
      <code>{retry.error.code}</code> {retry.error.message} Attempt {retry.attempt - 1} failed;{' '}
      <span data-live>{seconds > 0 ? `the next one in ${seconds} s.` : 'the next one begins.'}</span>
    </p>
  )
}

function Compaction({ message }: { message: CompactionView }) {
  const { compactionStatus, summary, error } = message
  return (
    <article className="message message-compaction" aria-label="Compaction">
      <p className="compaction-title">
        <Icon name="fold" size={16} />
        {compactionStatus === 'RUNNING' && 'Compacting the history…'}
        {compactionStatus === 'COMPLETED' && 'The model now sees a summary of what is above'}
        {compactionStatus === 'FAILED' && 'The history could not be compacted'}
      </p>
      {error && (
        <p className="step-error">
          <code>{error.code}</code> {error.message}
        </p>
      )}
      {summary !== null && (
        <details>
          <summary>Read the summary</summary>
          <MarkdownText text={summary} />
        </details>
      )}
    </article>
  )
}
