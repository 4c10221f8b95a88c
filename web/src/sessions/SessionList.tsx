import { Button, CloseButton, SegmentedControl, TextInput } from '@mantine/core'
import { useMemo, useState } from 'react'
import type { SessionStatus, SessionSummaryFragment } from '../../../src/client/generated/graphql.ts'
import { hrefOf, useRoute } from '../app/route.ts'
import { Icon } from '../parts/Icon.tsx'
import { statusWords } from '../parts/status.ts'
import { Time } from '../parts/Time.tsx'
import { useSessionList } from './use-session-list.ts'

type View = 'all' | 'active' | 'attention' | 'archived'
const attention: SessionStatus[] = ['WAITING', 'PARKED', 'QUARANTINED']
const active: SessionStatus[] = ['RUNNING', 'RECOVERING']
const empty: Record<View, string> = {
  all: 'No sessions yet.',
  active: 'Nothing is running.',
  attention: 'Nothing waits for you.',
  archived: 'The archive is empty.',
}

export function SessionList() {
  const [search, setSearch] = useState('')
  const [view, setView] = useState<View>('all')
  const status = useMemo(() => (view === 'active' ? active : view === 'attention' ? attention : null), [view])
  const { rows, error, more } = useSessionList({ search, archived: view === 'archived', status })
  return (
    <section className="sessions" aria-label="Sessions">
      <TextInput
        id="session-search"
        size="sm"
        type="search"
        aria-label="Search sessions"
        placeholder="Search titles and prompts"
        leftSection={<Icon name="search" size={16} />}
        rightSection={search ? <CloseButton size="sm" aria-label="Clear search" onClick={() => setSearch('')} /> : null}
        value={search}
        onChange={(event) => setSearch(event.currentTarget.value)}
      />
      <SegmentedControl
        fullWidth
        size="xs"
        aria-label="Which sessions"
        value={view}
        onChange={(value) => setView(value as View)}
        data={[
          { value: 'all', label: 'All' },
          { value: 'active', label: 'Active' },
          { value: 'attention', label: 'Waiting' },
          { value: 'archived', label: 'Archive' },
        ]}
      />
      <div className="session-scroll">
        {error !== null && (
          <p className="hint" role="alert">
            The list could not be read: {error}
          </p>
        )}
        {rows === null && error === null && <p className="hint">Reading…</p>}
        {rows?.length === 0 && <p className="hint">{search.trim() ? 'No session has these words.' : empty[view]}</p>}
        <ul className="session-list">
          {rows?.map((row) => (
            <SessionItem key={row.id} row={row} />
          ))}
        </ul>
        {more && (
          <Button variant="subtle" size="xs" fullWidth onClick={() => void more()}>
            Show older
          </Button>
        )}
      </div>
    </section>
  )
}

function SessionItem({ row }: { row: SessionSummaryFragment }) {
  const route = useRoute()
  const current = route.page === 'session' && route.id === row.id
  const { label, tone } = statusWords[row.status]
  return (
    <li>
      <a
        className="session-item"
        href={hrefOf({ page: 'session', id: row.id })}
        aria-current={current ? 'page' : undefined}
      >
        <span className="session-dot" data-tone={tone} aria-hidden />
        <span className="session-title">{row.title ?? 'Untitled session'}</span>
        <span className="session-meta">
          <span data-tone={tone}>{label}</span>
          <Time at={row.updatedAt} />
        </span>
      </a>
    </li>
  )
}
