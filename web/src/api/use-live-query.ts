import type { OperationVariables, TypedDocumentNode } from '@apollo/client'
import { useCallback, useEffect, useRef, useState } from 'react'
import { onActivity } from './activity.ts'
import { apollo } from './apollo.ts'
import { epoch } from './connection.ts'
import { useStore } from './store.ts'

/** After a change of some session's status, and after one that only moved; so long it waits, and gathers what else happens. */
const changedMs = 200
const movedMs = 3000

/** A query over all sessions that is asked again when one of them moves, or when the connection is back. */
export function useLiveQuery<Data, Variables extends OperationVariables>(
  query: TypedDocumentNode<Data, Variables>,
  variables: Variables,
): { data: Data | null; error: string | null; refresh: () => void } {
  const [data, setData] = useState<Data | null>(null)
  const [error, setError] = useState<string | null>(null)
  const connection = useStore(epoch)
  const key = JSON.stringify(variables)
  const turn = useRef(0)

  const load = useCallback(async () => {
    const mine = ++turn.current
    try {
      const result = await apollo.query({
        query,
        variables: JSON.parse(key),
        fetchPolicy: 'no-cache',
      } as unknown as Parameters<typeof apollo.query>[0])
      if (mine !== turn.current) return
      setData(result.data as Data)
      setError(null)
    } catch (thrown) {
      if (mine === turn.current) setError(thrown instanceof Error ? thrown.message : String(thrown))
    }
  }, [query, key])

  // biome-ignore lint/correctness/useExhaustiveDependencies: a connection that is there again is the reason to read again
  useEffect(() => {
    void load()
    let timer: ReturnType<typeof setTimeout> | undefined
    let due = Number.POSITIVE_INFINITY
    const statuses = new Map<string | number, string>()
    const run = () => {
      due = Number.POSITIVE_INFINITY
      void load()
    }
    const stop = onActivity(({ id, status }) => {
      const ms = statuses.get(id) === status ? movedMs : changedMs
      statuses.set(id, status)
      if (Date.now() + ms >= due) return
      due = Date.now() + ms
      clearTimeout(timer)
      timer = setTimeout(run, ms)
    })
    return () => {
      stop()
      clearTimeout(timer)
    }
  }, [load, connection])

  return { data, error, refresh: load }
}
