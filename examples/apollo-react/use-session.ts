import { useApolloClient } from '@apollo/client/react'
import { apolloTransport, type Followed, followSession, type SessionFollower } from 'holdfast/client'
import { useCallback, useEffect, useState, useSyncExternalStore } from 'react'

const nothing: Followed = { view: null, state: { phase: 'LOADING' }, hasEarlier: false }

/** The session as it is now, for as long as the component is there. */
export function useSession(sessionId: string): Followed {
  const client = useApolloClient()
  const [follower, setFollower] = useState<SessionFollower | null>(null)
  useEffect(() => {
    const following = followSession({ sessionId, transport: apolloTransport(client) })
    setFollower(following)
    return () => {
      following.close()
      setFollower(null)
    }
  }, [client, sessionId])
  const subscribe = useCallback((listener: () => void) => follower?.subscribe(listener) ?? (() => {}), [follower])
  return useSyncExternalStore(subscribe, () => follower?.current() ?? nothing)
}
