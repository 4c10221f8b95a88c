import { useState } from 'react'
import type { InteractionView, ToolCallView } from '../../../src/client/view.ts'
import { InteractionCard } from '../inbox/InteractionCard.tsx'
import { Icon } from '../parts/Icon.tsx'
import { gist, readable, readableOutput } from './json.ts'

const words: Record<ToolCallView['status'], { label: string; tone: string }> = {
  STREAMING: { label: 'being written', tone: 'busy' },
  AWAITING_APPROVAL: { label: 'waits for you', tone: 'ask' },
  RUNNING: { label: 'running', tone: 'busy' },
  COMPLETED: { label: 'done', tone: 'good' },
  FAILED: { label: 'failed', tone: 'bad' },
}

/** A tool call: one line, with input, progress and output behind it. Where a person is asked, the question stands right there. */
export function ToolCard({ call, interaction }: { call: ToolCallView; interaction: InteractionView | undefined }) {
  const [open, setOpen] = useState(false)
  const { label, tone } = words[call.status]
  const asking = interaction?.state === 'OPEN'
  return (
    <div className="tool" data-tone={tone}>
      <button type="button" className="tool-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name="tool" size={16} />
        <span className="tool-name">{call.name}</span>
        <span className="tool-gist">{gist(call.input ?? call.inputText)}</span>
        <span className="tool-status">
          {label}
          {durationOf(call)}
        </span>
        <span className="fold" data-open={open} aria-hidden>
          <Icon name="chevron" size={14} />
        </span>
      </button>
      {call.status === 'RUNNING' && call.progress !== undefined && <Progress progress={call.progress} />}
      {call.error && (
        <p className="tool-error">
          <code>{call.error.code}</code> {call.error.message}
        </p>
      )}
      {open && (
        <div className="tool-body">
          <Field title="Input" text={readable(call.input ?? call.inputText ?? null)} />
          {call.status === 'COMPLETED' && <Field title="Output" text={readableOutput(call.output)} />}
        </div>
      )}
      {asking && <InteractionCard interaction={interaction} />}
      {interaction && !asking && <Decided interaction={interaction} />}
    </div>
  )
}

function Field({ title, text }: { title: string; text: string }) {
  return (
    <section className="tool-field" aria-label={title}>
      <div className="tool-field-title">{title}</div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long output is scrolled by keys, too */}
      <pre tabIndex={0}>{text}</pre>
    </section>
  )
}

/** A share of the work where the tool tells one, else what it says. Live only: after a reload the next report brings it back. */
function Progress({ progress }: { progress: unknown }) {
  const share = shareOf(progress)
  return (
    <div className="tool-progress" data-live>
      {share !== null && <progress max={1} value={share} aria-label="Progress of the tool" />}
      <span>{share === null ? gist(progress, 160) : `${Math.round(share * 100)} %`}</span>
    </div>
  )
}

function shareOf(progress: unknown): number | null {
  const fields = (progress ?? {}) as Record<string, unknown>
  const pairs = [
    [fields.waitedMs, fields.ofMs],
    [fields.progress, fields.total],
  ]
  for (const [done, all] of pairs)
    if (typeof done === 'number' && typeof all === 'number' && all > 0) return Math.min(1, done / all)
  return null
}

function durationOf({ startedAt, settledAt }: ToolCallView): string {
  if (startedAt === null || settledAt === null) return ''
  const ms = Date.parse(settledAt) - Date.parse(startedAt)
  return ms < 1000 ? ` · ${ms} ms` : ` · ${(ms / 1000).toFixed(1)} s`
}

const outcomes: Record<string, string> = {
  APPROVED: 'Approved',
  DECLINED: 'Declined',
  ANSWERED: 'Answered',
  DISMISSED: 'Dismissed',
  EXPIRED: 'Nobody answered in time',
  CANCELLED: 'Cancelled before anybody answered',
}

function Decided({ interaction }: { interaction: InteractionView }) {
  const { state, answer, feedback, editedInput } = interaction
  return (
    <p className="decided">
      <Icon name="check" size={14} /> {outcomes[state] ?? state}
      {editedInput != null && ' with other input'}
      {answer != null && <>: {gist(answer, 300)}</>}
      {feedback && <>: “{feedback}”</>}
    </p>
  )
}
