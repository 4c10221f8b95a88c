import { useCallback, useEffect, useState } from 'react'
import { followSession, type SessionFollower } from '../../../src/client/follow.ts'
import type { Followed } from '../../../src/client/follow-state.ts'
import { NodeDocument, type SessionStatus } from '../../../src/client/generated/graphql.ts'
import { apolloTransport } from '../../../src/client/libraries.ts'
import { statusOf } from '../../../src/client/select.ts'
import { onActivity } from '../api/activity.ts'
import { apollo } from '../api/apollo.ts'
import { epoch, signedOut } from '../api/connection.ts'
import { useStore } from '../api/store.ts'
import { token } from '../api/token.ts'

const transport = apolloTransport(apollo)
const pageSize = 60
/** A page in the background is drawn by nobody, and gets no frames. */
const hiddenMs = 250
const nothing: Followed = { view: null, state: { phase: 'LOADING' }, hasEarlier: false }

/**
 * Follows a session while the component is shown. Fifty deltas a second need no fifty renderings: what came since the last frame is
 * shown in one. `known` changes when a session that was not there may have been made.
 */
export function useFollowed(sessionId: string, known: unknown) {
  const [followed, setFollowed] = useState(nothing)
  const [follower, setFollower] = useState<SessionFollower | null>(null)

  // biome-ignore lint/correctness/useExhaustiveDependencies: `known` is a reason to ask again
  useEffect(() => {
    const follower = followSession({ sessionId, transport, messages: pageSize })
    let frame: number | undefined
    let timer: ReturnType<typeof setTimeout> | undefined
    const show = () => {
      cancelAnimationFrame(frame!)
      clearTimeout(timer)
      frame = timer = undefined
      setFollowed(follower.current())
    }
    const stop = follower.subscribe(() => {
      frame ??= requestAnimationFrame(show)
      timer ??= setTimeout(show, hiddenMs)
    })
    const stopEpoch = epoch.subscribe(follower.retryNow)
    setFollower(follower)
    follower.ended.then(({ reason }) => reason === 'UNAUTHENTICATED' && signedOut(token.get() !== null))
    return () => {
      stop()
      stopEpoch()
      cancelAnimationFrame(frame!)
      clearTimeout(timer)
      follower.close()
    }
  }, [sessionId, known])

  const status = useStatus(sessionId, followed)
  const loadEarlier = useCallback(async () => void (await follower?.loadEarlier(pageSize)), [follower])
  return { ...followed, status, loadEarlier }
}

/** The log tells all of the status but whether the process that works on the session is alive: that the server says. */
function useStatus(sessionId: string, { view }: Followed): SessionStatus {
  const [said, setSaid] = useState<SessionStatus | null>(null)
  const connection = useStore(epoch)
  // biome-ignore lint/correctness/useExhaustiveDependencies: a connection that is there again is the reason to ask again
  useEffect(() => {
    let gone = false
    const stop = onActivity((row) => row.id === sessionId && setSaid(row.status))
    apollo
      .query({ query: NodeDocument, variables: { id: sessionId }, fetchPolicy: 'no-cache' })
      .then(({ data }) => {
        if (!gone && data?.node?.__typename === 'Session') setSaid(data.node.sessionStatus)
      })
      .catch(() => {})
    return () => {
      gone = true
      stop()
    }
  }, [sessionId, connection])
  const logged = view === null ? 'IDLE' : statusOf(view)
  return logged === 'RUNNING' && said === 'RECOVERING' ? said : logged
}
