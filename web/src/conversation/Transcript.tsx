import { Button } from '@mantine/core'
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react'
import { VList, type VListHandle } from 'virtua'
import { transcript } from '../../../src/client/select.ts'
import type { SessionView } from '../../../src/client/view.ts'
import { Contained } from '../parts/Contained.tsx'
import { Icon } from '../parts/Icon.tsx'
import { MessageRow } from './MessageRow.tsx'

const nearEnd = 60
const nearStart = 400
/** How long what a reader does with wheel, finger or keys can go on scrolling. */
const touchMs = 1000

/** The conversation. Follows its end while the reader is there; whoever has scrolled up stays where they are. */
interface Props {
  view: SessionView
  earlier: boolean
  loadEarlier: () => Promise<void>
  /** Counts what this reader has sent: whoever writes wants to see the answer. */
  sent: number
}

export function Transcript({ view, earlier, loadEarlier, sent }: Props) {
  const frame = useRef<HTMLDivElement>(null)
  const list = useRef<VListHandle>(null)
  const following = useRef(true)
  const touchedAt = useRef(Number.NEGATIVE_INFINITY)
  const seen = useRef({ offset: 0, size: 0 })
  const loading = useRef(false)
  const [away, setAway] = useState(false)
  const [shift, setShift] = useState(false)
  // biome-ignore lint/correctness/useExhaustiveDependencies: only the messages count
  const messages = useMemo(() => transcript(view), [view.messages])
  const count = messages.length

  // Natively, once: a scroll that the list does keeps pulling for 150 ms at whatever is measured, also at a reader who has left meanwhile.
  const toEnd = () => {
    const rows = frame.current?.querySelector('.transcript')
    if (rows) rows.scrollTop = rows.scrollHeight
  }

  // biome-ignore lint/correctness/useExhaustiveDependencies: whatever changed in the view may have made it longer
  useLayoutEffect(() => {
    if (following.current) toEnd()
  }, [view])

  // biome-ignore lint/correctness/useExhaustiveDependencies: as the number says
  useLayoutEffect(() => {
    following.current = true
    setAway(false)
    toEnd()
  }, [sent])

  // Rows are measured after they are drawn, and pictures after they are read: both make the list longer later.
  const onResize = () => {
    if (following.current) toEnd()
    const { scrollSize, viewportSize } = list.current ?? {}
    // Where nothing has to be scrolled nobody would ever scroll to the start.
    if (scrollSize !== undefined && scrollSize <= viewportSize!) void more()
  }

  const more = async () => {
    if (loading.current || !earlier) return
    loading.current = true
    setShift(true)
    try {
      await loadEarlier()
    } catch {
      // The next scroll asks again; the connection bar says what is wrong.
    } finally {
      loading.current = false
    }
  }
  // biome-ignore lint/correctness/useExhaustiveDependencies: shifting is for the rendering in which rows came in front
  useEffect(() => {
    setShift(false)
    // Whoever pulled on while a page was read is at the start still, where no further scrolling is seen.
    const timer = setTimeout(() => {
      if (!following.current && (list.current?.scrollOffset ?? nearStart) < nearStart) void more()
    }, 150)
    return () => clearTimeout(timer)
  }, [count])

  const touched = () => {
    touchedAt.current = performance.now()
  }

  const onScroll = (offset: number) => {
    const { scrollSize, viewportSize } = list.current!
    const before = seen.current
    seen.current = { offset, size: scrollSize }
    // The list scrolls by itself, too, when rows are measured and turn out longer. Only a reader leaves the end: by wheel, finger or keys, or with
    // the scroll bar, which moves up while nothing grows.
    const byReader =
      performance.now() - touchedAt.current < touchMs || (offset < before.offset && scrollSize === before.size)
    if (scrollSize - offset - viewportSize < nearEnd) following.current = true
    else if (byReader) following.current = false
    else if (following.current) toEnd()
    setAway(!following.current)
    if (offset < nearStart) void more()
  }

  return (
    <div ref={frame} className="transcript-frame" data-messages={count}>
      <VList
        ref={list}
        className="transcript"
        role="log"
        aria-live="off"
        aria-label="Conversation"
        tabIndex={0}
        shift={shift}
        onWheel={touched}
        onTouchMove={touched}
        onKeyDown={touched}
        onScroll={onScroll}
        onResize={onResize}
        data={messages}
      >
        {(message) => (
          <div className="row" key={message.id}>
            <Contained>
              <MessageRow message={message} interactions={view.interactions} />
            </Contained>
          </div>
        )}
      </VList>
      {away && (
        <Button
          className="to-end"
          size="xs"
          variant="default"
          leftSection={<Icon name="down" size={14} />}
          onClick={() => {
            following.current = true
            setAway(false)
            toEnd()
          }}
        >
          To the end
        </Button>
      )}
    </div>
  )
}
