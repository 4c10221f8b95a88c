import { ActionIcon, Button } from '@mantine/core'
import { type ReactNode, useCallback, useEffect, useState } from 'react'
import type { FollowState } from '../../../src/client/follow-state.ts'
import { InterruptSessionDocument } from '../../../src/client/generated/graphql.ts'
import { newMessageId } from '../../../src/client/ids.ts'
import { act, useAct } from '../api/act.ts'
import { useStore } from '../api/store.ts'
import { announce } from '../app/announce.ts'
import { usePageTitle } from '../app/page-title.ts'
import { go } from '../app/route.ts'
import { Composer } from '../composer/Composer.tsx'
import { keepDraft } from '../composer/draft.ts'
import { forget, type Outgoing, outbox, post } from '../composer/outbox.ts'
import { Pending } from '../composer/Pending.tsx'
import { Icon } from '../parts/Icon.tsx'
import { Notice } from '../parts/Notice.tsx'
import { Timeline } from '../timeline/Timeline.tsx'
import { SessionHeader } from './SessionHeader.tsx'
import { StateOfSession } from './StateOfSession.tsx'
import { Transcript } from './Transcript.tsx'
import { useAnnounced } from './use-announced.ts'
import { useFollowed } from './use-followed.ts'

/** One session: its conversation, what waits, and what a person can do with it. */
export function SessionPage({ id, onMenu }: { id: string; onMenu: () => void }) {
  const [timeline, setTimeline] = useState(false)
  const [taken, setTaken] = useState(0)
  const [sent, setSent] = useState(0)
  const stop = useAct()
  const [cutOff, setCutOff] = useState<string | null>(null)
  const unborn = useStore(outbox).find(({ sessionId, create }) => sessionId === id && create)
  const { state, view, status, hasEarlier, loadEarlier } = useFollowed(id, unborn === undefined)
  useAnnounced(view)
  usePageTitle(view?.title ?? '')

  const executionId = view?.executionId ?? null
  const busy = status === 'RUNNING' || status === 'RECOVERING' || executionId !== null
  const interrupt = useCallback(async () => {
    setCutOff(null)
    await stop.run(async () => {
      try {
        await act(InterruptSessionDocument, { input: { sessionId: id, executionId } })
        announce('Stopped')
      } catch (thrown) {
        const { answer } = thrown as { answer?: { __typename: string; message: string } }
        if (answer?.__typename !== 'InterruptPendingError') throw thrown
        setCutOff(answer.message)
      }
    })
  }, [id, executionId, stop.run])

  const stoppable = busy || status === 'WAITING'
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (!event.altKey || event.ctrlKey || event.metaKey) return
      if (event.code === 'Period' && stoppable) void interrupt()
      else if (event.code === 'KeyT') setTimeline((shown) => !shown)
      else return
      event.preventDefault()
    }
    window.addEventListener('keydown', onKey)
    return () => window.removeEventListener('keydown', onKey)
  }, [interrupt, stoppable])

  // What ended a stop that was cut off ends its notice as well.
  useEffect(() => {
    if (!busy) setCutOff(null)
  }, [busy])

  if (!view) {
    const missing = state.phase === 'ENDED' && state.end.reason === 'NOT_FOUND' && !unborn
    return (
      <NoSession onMenu={onMenu}>
        {unborn?.refused ? (
          <Refused outgoing={unborn} />
        ) : (
          <p className="hint" role="status">
            {missing ? `There is no session ${id}.` : wordsOf(state)}
          </p>
        )}
      </NoSession>
    )
  }

  return (
    <div className="session" data-timeline={timeline || undefined}>
      <div className="session-main">
        <SessionHeader
          view={view}
          status={status}
          onMenu={onMenu}
          timeline={timeline}
          onTimeline={() => setTimeline(!timeline)}
        />
        <Transcript view={view} earlier={hasEarlier} loadEarlier={loadEarlier} sent={sent} />
        <div className="session-foot">
          <StateOfSession view={view} status={status} onStop={() => void interrupt()} stopping={stop.busy} />
          {cutOff !== null && (
            <Notice
              tone="warn"
              title="The stop is accepted, but not finished"
              actions={
                <Button size="xs" variant="subtle" color="red" loading={stop.busy} onClick={() => void interrupt()}>
                  Stop again
                </Button>
              }
            >
              {cutOff}
            </Notice>
          )}
          {stop.error !== null && (
            <p className="form-error" role="alert">
              {stop.error}
            </p>
          )}
          <Pending
            view={view}
            onEdit={(text) => {
              keepDraft(id, text)
              setTaken(taken + 1)
            }}
          />
          <Composer
            key={`${id} ${taken}`}
            draftOf={id}
            placeholder={busy ? 'Steer what is running, or queue what comes next' : 'Write a prompt'}
            running={busy}
            autoFocus
            onSend={(prompt) => {
              post({ messageId: newMessageId(), sessionId: id, ...prompt })
              setSent(sent + 1)
            }}
            onStop={stoppable ? () => void interrupt() : undefined}
            stopping={stop.busy}
          />
        </div>
      </div>
      {timeline && <Timeline sessionId={id} seq={view.seq} onClose={() => setTimeline(false)} />}
    </div>
  )
}

function NoSession({ onMenu, children }: { onMenu: () => void; children: ReactNode }) {
  return (
    <div className="page">
      <ActionIcon className="narrow-only" variant="subtle" color="gray" aria-label="Sessions" onClick={onMenu}>
        <Icon name="menu" />
      </ActionIcon>
      <div className="page-inner">
        <h1 className="visually-hidden">Session</h1>
        {children}
      </div>
    </div>
  )
}

/** The server did not make the session: nothing of what was written is lost. */
function Refused({ outgoing }: { outgoing: Outgoing }) {
  const back = () => {
    keepDraft('new', outgoing.text)
    forget(outgoing.messageId)
    go({ page: 'new' })
  }
  return (
    <Notice
      tone="bad"
      role="alert"
      title="The session was not made"
      actions={
        <Button size="xs" onClick={back}>
          Take back to edit
        </Button>
      }
    >
      {outgoing.refused}
    </Notice>
  )
}

function wordsOf(state: FollowState): string {
  if (state.phase === 'OFFLINE') return `The session cannot be read right now: ${state.problem.message}`
  if (state.phase === 'ENDED' && 'problem' in state.end)
    return `The session cannot be read: ${state.end.problem.message}`
  return 'Reading the session…'
}
