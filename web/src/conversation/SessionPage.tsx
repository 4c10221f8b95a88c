import { useCallback, useEffect, useState } from 'react'
import type { FollowState } from '../../../src/client/follow-state.ts'
import { InterruptSessionDocument } from '../../../src/client/generated/graphql.ts'
import { newMessageId } from '../../../src/client/ids.ts'
import { act, useAct } from '../api/act.ts'
import { useStore } from '../api/store.ts'
import { announce } from '../app/announce.ts'
import { Composer } from '../composer/Composer.tsx'
import { outbox, post } from '../composer/outbox.ts'
import { Pending } from '../composer/Pending.tsx'
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
  const stop = useAct()
  const [cutOff, setCutOff] = useState<string | null>(null)
  const unborn = useStore(outbox).find(({ sessionId, create }) => sessionId === id && create)
  const { state, view, status, hasEarlier, loadEarlier } = useFollowed(id, unborn === undefined)
  useAnnounced(view)

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

  if (state.phase === 'ENDED' && state.end.reason === 'NOT_FOUND' && !unborn)
    return (
      <div className="page">
        <div className="page-inner">
          <h1>No such session</h1>
          <p className="page-about">There is no session with the id {id}.</p>
        </div>
      </div>
    )
  if (!view)
    return (
      <div className="page">
        <div className="page-inner">
          <p className="hint" role="status">
            {unborn?.refused ? `The session was not made: ${unborn.refused}` : wordsOf(state)}
          </p>
        </div>
      </div>
    )

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
        <Transcript view={view} earlier={hasEarlier} loadEarlier={loadEarlier} />
        <div className="session-foot">
          <StateOfSession view={view} status={status} onStop={() => void interrupt()} stopping={stop.busy} />
          {cutOff !== null && (
            <Notice
              tone="warn"
              title="The stop is accepted, but not finished"
              actions={
                <button type="button" className="link-button" onClick={() => void interrupt()}>
                  Stop again
                </button>
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
              localStorage.setItem(`holdfast.draft.${id}`, text)
              setTaken(taken + 1)
            }}
          />
          <Composer
            key={`${id} ${taken}`}
            draftOf={id}
            placeholder={busy ? 'Steer what is running, or queue what comes next' : 'Write a prompt'}
            running={busy}
            autoFocus
            onSend={(prompt) => post({ messageId: newMessageId(), sessionId: id, ...prompt })}
            onStop={stoppable ? () => void interrupt() : undefined}
            stopping={stop.busy}
          />
        </div>
      </div>
      {timeline && <Timeline sessionId={id} seq={view.seq} onClose={() => setTimeline(false)} />}
    </div>
  )
}

function wordsOf(state: FollowState): string {
  if (state.phase === 'OFFLINE') return `The session cannot be read right now: ${state.problem.message}`
  if (state.phase === 'ENDED' && 'problem' in state.end)
    return `The session cannot be read: ${state.end.problem.message}`
  return 'Reading the session…'
}
