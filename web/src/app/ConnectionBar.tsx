import { Button } from '@mantine/core'
import { useEffect, useState } from 'react'
import { connection } from '../api/connection.ts'
import { tryNow } from '../api/retry.ts'
import { useStore } from '../api/store.ts'
import { useSecondsUntil } from '../parts/Time.tsx'

/** A moment's break is nobody's business: it is said when it lasts this long. */
const quietMs = 700

/** Says that the server is not there, since when it is tried again, and lets the user try now. */
export function ConnectionBar() {
  const now = useStore(connection)
  const [shown, setShown] = useState(false)
  const away = now.state === 'lost' || now.state === 'connecting'
  useEffect(() => {
    if (!away) return setShown(false)
    const timer = setTimeout(() => setShown(true), quietMs)
    return () => clearTimeout(timer)
  }, [away])
  const seconds = useSecondsUntil(now.state === 'lost' ? now.retryAt : null)
  if (!shown || !away) return null
  return (
    <div className="connection" role="alert">
      <span>
        {now.state === 'connecting'
          ? 'Connecting to the server…'
          : 'The server cannot be reached. Nothing is lost: this page goes on where it was.'}
      </span>
      {now.state === 'lost' && (
        <>
          <span aria-hidden className="connection-when">
            {seconds > 0 ? `Next try in ${seconds} s` : 'Trying…'}
          </span>
          <Button size="compact-xs" variant="default" onClick={tryNow}>
            Try now
          </Button>
        </>
      )}
    </div>
  )
}
