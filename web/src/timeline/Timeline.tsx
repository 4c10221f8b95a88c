import { ActionIcon, Button, SegmentedControl } from '@mantine/core'
import { useEffect, useMemo, useRef, useState } from 'react'
import { VList, type VListHandle } from 'virtua'
import type { SessionEventFieldsFragment } from '../../../src/client/generated/graphql.ts'
import { Icon } from '../parts/Icon.tsx'
import { describe } from './describe.ts'
import { useEvents } from './use-events.ts'

const clock = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hourCycle: 'h23',
  fractionalSecondDigits: 3,
})

/** What happened in a session, event by event, as the log has it. */
export function Timeline({ sessionId, seq, onClose }: { sessionId: string; seq: number; onClose: () => void }) {
  const { events, error, earlier } = useEvents(sessionId, seq)
  const [all, setAll] = useState(false)
  const list = useRef<VListHandle>(null)
  const entries = useMemo(() => {
    const starts = new Map<string, string>()
    for (const event of events) if (event.__typename === 'StepStarted') starts.set(event.messageId, event.at)
    return events
      .map((event) => ({ event, described: describe(event), took: tookOf(event, starts) }))
      .filter(({ described }) => all || described.outline)
  }, [events, all])

  useEffect(() => {
    list.current?.scrollToIndex(entries.length - 1, { align: 'end' })
  }, [entries.length])

  return (
    <aside className="timeline" aria-label="Timeline">
      <div className="timeline-head">
        <h2>Timeline</h2>
        <SegmentedControl
          size="xs"
          aria-label="How much of the timeline"
          value={all ? 'all' : 'steps'}
          onChange={(value) => setAll(value === 'all')}
          data={[
            { value: 'steps', label: 'Steps' },
            { value: 'all', label: 'All events' },
          ]}
        />
        <ActionIcon variant="subtle" color="gray" aria-label="Close the timeline" onClick={onClose}>
          <Icon name="close" />
        </ActionIcon>
      </div>
      {error !== null && <p className="form-error">{error}</p>}
      {earlier && (
        <Button size="xs" variant="subtle" onClick={() => void earlier()}>
          Earlier events
        </Button>
      )}
      <VList
        ref={list}
        className="timeline-list"
        role="log"
        aria-live="off"
        tabIndex={0}
        aria-label="Events"
        data={entries}
      >
        {({ event, described, took }) => (
          <div key={event.seq} className="timeline-item" data-tone={described.tone}>
            <span className="timeline-seq">{event.seq}</span>
            <div className="timeline-what">
              <span className="timeline-title">
                {described.title}
                {took && <span className="timeline-took">{took}</span>}
              </span>
              {described.detail && <span className="timeline-detail">{described.detail}</span>}
            </div>
            <time className="timeline-at" dateTime={event.at}>
              {clock.format(new Date(event.at))}
            </time>
          </div>
        )}
      </VList>
    </aside>
  )
}

function tookOf(event: SessionEventFieldsFragment, starts: Map<string, string>): string {
  if (event.__typename !== 'StepEnded' && event.__typename !== 'StepFailed' && event.__typename !== 'StepInterrupted')
    return ''
  const start = starts.get(event.messageId)
  if (start === undefined) return ''
  const ms = Date.parse(event.at) - Date.parse(start)
  return ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`
}
