import { hrefOf } from '../app/route.ts'
import { Page } from '../parts/Page.tsx'
import { StatusBadge } from '../parts/StatusBadge.tsx'
import { Time } from '../parts/Time.tsx'
import { ParkedCard } from './ParkedCard.tsx'
import { QuarantineCard } from './QuarantineCard.tsx'
import { useTroubles } from './use-troubles.ts'

/** What cannot go on without a person, and what is being taken up again right now. */
export function RecoveryPage() {
  const { read, error, quarantined, parked, recovering, refresh } = useTroubles()
  const nothing = read && quarantined.length + parked.length + recovering.length === 0
  return (
    <Page
      title="Recovery"
      about="Sessions that need a person to go on, with the reason, and those that recover by themselves."
    >
      {error !== null && <p role="alert">This could not be read: {error}</p>}
      {!read && error === null && <p className="hint">Reading…</p>}
      {nothing && <p className="empty">Nothing is quarantined, parked or recovering.</p>}
      {quarantined.length > 0 && <h2>Quarantine</h2>}
      <ul className="cards">
        {quarantined.map((entry) => (
          <li key={entry.id} className="card">
            <p className="card-head">
              {entry.session ? (
                <a href={hrefOf({ page: 'session', id: entry.session.id })}>
                  {entry.session.title ?? 'Untitled session'}
                </a>
              ) : (
                <code>{entry.executionId}</code>
              )}
              <Time at={entry.quarantinedAt} />
            </p>
            <QuarantineCard entry={entry} onResolved={refresh} />
          </li>
        ))}
      </ul>
      {parked.length > 0 && <h2>Parked</h2>}
      <ul className="cards">
        {parked.map((row) => (
          <li key={row.id} className="card">
            <p className="card-head">
              <a href={hrefOf({ page: 'session', id: row.id })}>{row.title ?? 'Untitled session'}</a>
              <Time at={row.updatedAt} />
            </p>
            <ParkedCard sessionId={row.id} reason={row.parkedReason} onResumed={refresh} />
          </li>
        ))}
      </ul>
      {recovering.length > 0 && <h2>Recovering</h2>}
      <ul className="cards">
        {recovering.map((row) => (
          <li key={row.id} className="card">
            <p className="card-head">
              <a href={hrefOf({ page: 'session', id: row.id })}>{row.title ?? 'Untitled session'}</a>
              <StatusBadge status={row.status} />
            </p>
          </li>
        ))}
      </ul>
    </Page>
  )
}
