import { useCallback, useEffect, useRef, useState } from 'react'
import {
  type SessionStatus,
  type SessionSummaryFragment,
  SessionsDocument,
} from '../../../src/client/generated/graphql.ts'
import { onActivity } from '../api/activity.ts'
import { apollo } from '../api/apollo.ts'
import { epoch } from '../api/connection.ts'
import { useStore } from '../api/store.ts'

export interface Filter {
  search: string
  archived: boolean
  status: SessionStatus[] | null
}

const pageSize = 40
const newestFirst = (a: SessionSummaryFragment, b: SessionSummaryFragment) =>
  b.updatedAt.localeCompare(a.updatedAt) || a.id.localeCompare(b.id)

function merged(rows: SessionSummaryFragment[], news: SessionSummaryFragment[]): SessionSummaryFragment[] {
  const byId = new Map(rows.map((row) => [row.id, row]))
  for (const row of news) if ((byId.get(row.id)?.seq ?? 0) <= row.seq) byId.set(row.id, row)
  return [...byId.values()].sort(newestFirst)
}

/** The sessions that fit the filter, page after page, kept up to date by what the server tells of them. */
export function useSessionList({ search, archived, status }: Filter) {
  const [rows, setRows] = useState<SessionSummaryFragment[] | null>(null)
  const [next, setNext] = useState<string | null>(null)
  const [error, setError] = useState<string | null>(null)
  const reload = useRef<ReturnType<typeof setTimeout>>(undefined)
  const turn = useRef(0)
  const connection = useStore(epoch)
  const statusKey = status?.join() ?? ''

  const fetchPage = useCallback(
    async (after: string | null, replace: boolean) => {
      const mine = replace ? ++turn.current : turn.current
      try {
        const { data } = await apollo.query({
          query: SessionsDocument,
          variables: {
            first: pageSize,
            after,
            archived,
            search: search.trim() || null,
            status: statusKey ? (statusKey.split(',') as SessionStatus[]) : null,
          },
          fetchPolicy: 'no-cache',
        })
        if (mine !== turn.current || !data) return
        const page = data.sessions.edges.map(({ node }) => node)
        setRows((rows) => (replace ? page : merged(rows ?? [], page)))
        setNext(data.sessions.pageInfo.hasNextPage ? (data.sessions.pageInfo.endCursor ?? null) : null)
        setError(null)
      } catch (thrown) {
        if (mine === turn.current) setError(thrown instanceof Error ? thrown.message : String(thrown))
      }
    },
    [search, archived, statusKey],
  )

  // biome-ignore lint/correctness/useExhaustiveDependencies: a connection that is there again is the reason to read again
  useEffect(() => {
    const timer = setTimeout(() => void fetchPage(null, true), search ? 200 : 0)
    return () => clearTimeout(timer)
  }, [fetchPage, connection])

  useEffect(() => {
    const stop = onActivity((row) => {
      const fits = (row.archivedAt !== null) === archived && (!statusKey || statusKey.split(',').includes(row.status))
      setRows((rows) => {
        if (!rows) return rows
        const known = rows.some(({ id }) => id === row.id)
        if (!fits) return known ? rows.filter(({ id }) => id !== row.id) : rows
        if (known || !search.trim()) return merged(rows, [row])
        // Whether a session that is not shown fits the words is for the server to say.
        clearTimeout(reload.current)
        reload.current = setTimeout(() => void fetchPage(null, false), 1000)
        return rows
      })
    })
    return () => {
      stop()
      clearTimeout(reload.current)
    }
  }, [archived, statusKey, search, fetchPage])

  const more = useCallback(() => (next === null ? undefined : fetchPage(next, false)), [next, fetchPage])
  return { rows, error, more: next === null ? null : more }
}
