import { ActionIcon, Drawer } from '@mantine/core'
import { useCallback, useEffect, useState } from 'react'
import { connection } from '../api/connection.ts'
import { useStore } from '../api/store.ts'
import { resumeOutbox } from '../composer/outbox.ts'
import { SessionPage } from '../conversation/SessionPage.tsx'
import { InboxPage } from '../inbox/InboxPage.tsx'
import { Contained } from '../parts/Contained.tsx'
import { Icon } from '../parts/Icon.tsx'
import { RecoveryPage } from '../recovery/RecoveryPage.tsx'
import { NewSession } from '../sessions/NewSession.tsx'
import { announcement } from './announce.ts'
import { ConnectionBar } from './ConnectionBar.tsx'
import { KeysDialog } from './KeysDialog.tsx'
import { useRoute } from './route.ts'
import { Sidebar } from './Sidebar.tsx'
import { SignIn } from './SignIn.tsx'
import { useKeys } from './use-keys.ts'
import { useNarrow } from './use-narrow.ts'

export function App() {
  const now = useStore(connection)
  useEffect(resumeOutbox, [])
  if (now.state === 'signedOut') return <SignIn refused={now.reason === 'refused'} />
  return <Shell />
}

function Shell() {
  const route = useRoute()
  const narrow = useNarrow()
  const [menu, setMenu] = useState(false)
  const [keys, setKeys] = useState(false)
  const openMenu = useCallback(() => setMenu(true), [])

  const search = useCallback(() => {
    setMenu(true)
    // The drawer of a narrow screen has to be there before something in it can be focused.
    requestAnimationFrame(() => document.getElementById('session-search')?.focus())
  }, [])
  useKeys({ onSearch: search })

  // biome-ignore lint/correctness/useExhaustiveDependencies: whoever has gone to another page has no more use for the list
  useEffect(() => setMenu(false), [route.page, route.page === 'session' && route.id])

  const sidebar = <Sidebar onKeys={() => setKeys(true)} />
  return (
    <div className="shell">
      <button type="button" className="skip" onClick={() => document.getElementById('main')?.focus()}>
        Skip to the conversation
      </button>
      {narrow ? (
        <Drawer opened={menu} onClose={() => setMenu(false)} title="Sessions" lockScroll={false} size={320}>
          {sidebar}
        </Drawer>
      ) : (
        <aside className="side" aria-label="Sessions and pages">
          {sidebar}
        </aside>
      )}
      <main className="main" id="main" tabIndex={-1}>
        <ConnectionBar />
        {narrow && route.page !== 'session' && (
          <div className="narrow-bar">
            <ActionIcon variant="subtle" color="gray" aria-label="Sessions" onClick={openMenu}>
              <Icon name="menu" />
            </ActionIcon>
            <span className="narrow-brand">Holdfast</span>
          </div>
        )}
        {route.page === 'new' && <NewSession />}
        {route.page === 'inbox' && <InboxPage />}
        {route.page === 'recovery' && <RecoveryPage />}
        {route.page === 'session' && (
          <Contained key={route.id}>
            <SessionPage id={route.id} onMenu={openMenu} />
          </Contained>
        )}
      </main>
      {keys && <KeysDialog onClose={() => setKeys(false)} />}
      <Announcer />
    </div>
  )
}

function Announcer() {
  const { text, count } = useStore(announcement)
  return (
    <div className="visually-hidden" role="status" aria-live="polite">
      <span key={count}>{text}</span>
    </div>
  )
}
