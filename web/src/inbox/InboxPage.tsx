import { Button } from '@mantine/core'
import { useState } from 'react'
import { InboxDocument } from '../../../src/client/generated/graphql.ts'
import { useLiveQuery } from '../api/use-live-query.ts'
import { hrefOf } from '../app/route.ts'
import { Page } from '../parts/Page.tsx'
import { Time } from '../parts/Time.tsx'
import { InteractionCard } from './InteractionCard.tsx'

const pageSize = 50

/** Everything that waits for a person, over all sessions, oldest first. */
export function InboxPage() {
  const [first, setFirst] = useState(pageSize)
  const { data, error } = useLiveQuery(InboxDocument, { first })
  const asked = data?.interactions.edges.map(({ node }) => node)
  return (
    <Page
      title="Inbox"
      about="Approvals and questions of all sessions, oldest first. Nothing of these runs before you answer."
    >
      {error !== null && <p role="alert">The inbox could not be read: {error}</p>}
      {!asked && error === null && <p className="hint">Reading…</p>}
      {asked?.length === 0 && <p className="empty">Nothing waits for you.</p>}
      <ul className="cards">
        {asked?.map((interaction) => (
          <li key={interaction.id} className="card">
            <p className="card-head">
              <a href={hrefOf({ page: 'session', id: interaction.session.id })}>
                {interaction.session.title ?? 'Untitled session'}
              </a>
              <Time at={interaction.createdAt} />
            </p>
            <InteractionCard interaction={interaction} />
          </li>
        ))}
      </ul>
      {data?.interactions.pageInfo.hasNextPage && first < 200 && (
        <Button variant="default" size="xs" onClick={() => setFirst(Math.min(200, first + pageSize))}>
          Show more
        </Button>
      )}
    </Page>
  )
}
