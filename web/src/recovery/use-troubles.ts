import { QuarantineDocument, type SessionStatus, SessionsDocument } from '../../../src/client/generated/graphql.ts'
import { useLiveQuery } from '../api/use-live-query.ts'

const open = { first: 100, open: true }
const stuck = { first: 100, archived: null, status: ['PARKED', 'RECOVERING'] satisfies SessionStatus[] }

/** What cannot go on without a person, and what is being taken up again right now; the first hundred of each. */
export function useTroubles() {
  const quarantine = useLiveQuery(QuarantineDocument, open)
  const sessions = useLiveQuery(SessionsDocument, stuck)
  const rows = sessions.data?.sessions.edges.map(({ node }) => node) ?? []
  return {
    read: quarantine.data !== null && sessions.data !== null,
    error: quarantine.error ?? sessions.error,
    quarantined: quarantine.data?.quarantine.edges.map(({ node }) => node) ?? [],
    parked: rows.filter(({ status }) => status === 'PARKED'),
    recovering: rows.filter(({ status }) => status === 'RECOVERING'),
    more: (quarantine.data?.quarantine.pageInfo.hasNextPage || sessions.data?.sessions.pageInfo.hasNextPage) ?? false,
    refresh() {
      quarantine.refresh()
      sessions.refresh()
    },
  }
}
