import { useCallback, useEffect, useRef, useState } from 'react'
import { type SessionEventFieldsFragment, SessionLogDocument } from '../../../src/client/generated/graphql.ts'
import { apollo } from '../api/apollo.ts'

const pageSize = 200
const firstShown = 400

/** The events of a session up to `seq`, the newest ones first read; `earlier` reads those before them. */
export function useEvents(sessionId: string, seq: number) {
  const [events, setEvents] = useState<readonly SessionEventFieldsFragment[]>([])
  const [from, setFrom] = useState<number | null>(null)
  const [error, setError] = useState<string | null>(null)
  const reading = useRef(false)
  const wanted = useRef(seq)
  wanted.current = seq

  const read = useCallback(
    async (after: number, through: number): Promise<SessionEventFieldsFragment[]> => {
      const found: SessionEventFieldsFragment[] = []
      while (after < through) {
        const { data } = await apollo.query({
          query: SessionLogDocument,
          variables: { id: sessionId, after, first: Math.min(pageSize, through - after) },
          fetchPolicy: 'no-cache',
        })
        const page = data?.session?.events ?? []
        const last = page.at(-1)?.seq
        if (last == null) break
        found.push(...page)
        after = last
      }
      return found
    },
    [sessionId],
  )

  // biome-ignore lint/correctness/useExhaustiveDependencies: a seq that moved says that there is more to read
  useEffect(() => {
    if (reading.current) return
    reading.current = true
    const follow = async () => {
      try {
        let last = events.at(-1)?.seq ?? Math.max(0, wanted.current - firstShown)
        if (from === null) setFrom(last)
        while (last < wanted.current) {
          const found = await read(last, wanted.current)
          if (found.length === 0) break
          last = found.at(-1)!.seq!
          setEvents((events) => [...events, ...found])
        }
        setError(null)
      } catch (thrown) {
        setError(thrown instanceof Error ? thrown.message : String(thrown))
      } finally {
        reading.current = false
      }
    }
    void follow()
  }, [seq, read])

  const earlier = async () => {
    if (from === null || from === 0) return
    const start = Math.max(0, from - firstShown)
    const found = await read(start, from)
    setEvents((events) => [...found, ...events])
    setFrom(start)
  }
  return { events, error, earlier: from ? earlier : null }
}
