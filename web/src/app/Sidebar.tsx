import { ActionIcon, Button, Tooltip, useMantineColorScheme } from '@mantine/core'
import { InboxDocument } from '../../../src/client/generated/graphql.ts'
import { useStore } from '../api/store.ts'
import { signOut, token } from '../api/token.ts'
import { useLiveQuery } from '../api/use-live-query.ts'
import { Icon } from '../parts/Icon.tsx'
import { useTroubles } from '../recovery/use-troubles.ts'
import { SessionList } from '../sessions/SessionList.tsx'
import { useWaitingCount } from './page-title.ts'
import { hrefOf, useRoute } from './route.ts'

const inbox = { first: 50 }

export function Sidebar({ onKeys }: { onKeys: () => void }) {
  const route = useRoute()
  const asked = useLiveQuery(InboxDocument, inbox).data?.interactions
  const { quarantined, parked, more } = useTroubles()
  const { colorScheme, setColorScheme } = useMantineColorScheme()
  const next = ({ auto: 'light', light: 'dark', dark: 'auto' } as const)[colorScheme]
  useWaitingCount((asked?.edges.length ?? 0) + quarantined.length + parked.length)
  const signedIn = useStore(token) !== null
  return (
    <div className="sidebar">
      <div className="brand">
        <img src="/icon.svg" alt="" width={26} height={26} />
        <span>Holdfast</span>
      </div>
      <Button component="a" href={hrefOf({ page: 'new' })} leftSection={<Icon name="plus" size={16} />} fullWidth>
        New session
      </Button>
      <nav className="nav" aria-label="Pages">
        <NavItem
          page="inbox"
          icon="inbox"
          label="Inbox"
          current={route.page}
          count={asked?.edges.length ?? 0}
          more={asked?.pageInfo.hasNextPage ?? false}
        />
        <NavItem
          page="recovery"
          icon="repair"
          label="Recovery"
          current={route.page}
          count={quarantined.length + parked.length}
          more={more}
        />
      </nav>
      <SessionList />
      <div className="sidebar-foot">
        <a href="/graphiql">GraphiQL</a>
        {/* A link cannot carry the token that this address then asks for. */}
        {!signedIn && <a href="/metrics">Metrics</a>}
        <a href="/readyz">Health</a>
        <span className="spring" />
        {signedIn && (
          <button type="button" className="link-button" onClick={signOut}>
            Sign out
          </button>
        )}
        <Tooltip label="Keys">
          <ActionIcon variant="subtle" color="gray" aria-label="Keyboard shortcuts" onClick={onKeys}>
            <Icon name="keyboard" size={16} />
          </ActionIcon>
        </Tooltip>
        <Tooltip label={`Colours: ${colorScheme}`}>
          <ActionIcon
            variant="subtle"
            color="gray"
            aria-label={`Colours: ${colorScheme}. Change to ${next}`}
            onClick={() => setColorScheme(next)}
          >
            <Icon name="theme" size={16} />
          </ActionIcon>
        </Tooltip>
      </div>
    </div>
  )
}

function NavItem(props: {
  page: 'inbox' | 'recovery'
  icon: 'inbox' | 'repair'
  label: string
  current: string
  count: number
  more: boolean
}) {
  const { page, icon, label, current, count, more } = props
  return (
    <a className="nav-item" href={hrefOf({ page })} aria-current={current === page ? 'page' : undefined}>
      <Icon name={icon} />
      <span>{label}</span>
      {count > 0 && (
        <span className="count" data-page={page}>
          {count}
          {more && '+'}
          <span className="visually-hidden"> waiting</span>
        </span>
      )}
    </a>
  )
}
