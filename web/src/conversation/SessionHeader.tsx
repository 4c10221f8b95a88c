import { ActionIcon, Menu, Tooltip } from '@mantine/core'
import { useState } from 'react'
import {
  ArchiveSessionDocument,
  CompactSessionDocument,
  type SessionStatus,
} from '../../../src/client/generated/graphql.ts'
import { newMessageId } from '../../../src/client/ids.ts'
import type { SessionView } from '../../../src/client/view.ts'
import { act, useAct } from '../api/act.ts'
import { announce } from '../app/announce.ts'
import { Icon } from '../parts/Icon.tsx'
import { StatusBadge } from '../parts/StatusBadge.tsx'
import { SettingsDialog } from './SettingsDialog.tsx'
import { UsageNote } from './UsageNote.tsx'
import { VerifyDialog } from './VerifyDialog.tsx'

interface Props {
  view: SessionView
  status: SessionStatus
  timeline: boolean
  onTimeline: () => void
  onMenu: () => void
}

export function SessionHeader({ view, status, timeline, onTimeline, onMenu }: Props) {
  const [dialog, setDialog] = useState<'settings' | 'verify' | null>(null)
  const { error, run } = useAct()
  const archived = view.archivedAt !== null
  const archive = () => run(() => act(ArchiveSessionDocument, { input: { sessionId: view.id, archived: !archived } }))
  const compact = () =>
    run(async () => {
      await act(CompactSessionDocument, { input: { sessionId: view.id, messageId: newMessageId() } })
      announce('Compaction was asked for')
    })
  return (
    <header className="session-header">
      <ActionIcon className="narrow-only" variant="subtle" color="gray" aria-label="Sessions" onClick={onMenu}>
        <Icon name="menu" />
      </ActionIcon>
      <div className="session-heading">
        <h1>
          <button type="button" className="title-button" title="Rename" onClick={() => setDialog('settings')}>
            {view.title ?? 'Untitled session'}
          </button>
        </h1>
        <div className="session-facts">
          <StatusBadge status={status} />
          <span className="session-model">{view.model}</span>
          <UsageNote usage={view.usage} />
        </div>
      </div>
      {error !== null && (
        <span className="form-error" role="alert">
          {error}
        </span>
      )}
      <Tooltip label="Timeline (Alt+T)">
        <ActionIcon
          variant={timeline ? 'light' : 'subtle'}
          color="gray"
          aria-label="Timeline"
          aria-pressed={timeline}
          onClick={onTimeline}
        >
          <Icon name="clock" />
        </ActionIcon>
      </Tooltip>
      <Menu position="bottom-end" withinPortal>
        <Menu.Target>
          <ActionIcon variant="subtle" color="gray" aria-label="More about this session">
            <Icon name="dots" />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item leftSection={<Icon name="edit" size={16} />} onClick={() => setDialog('settings')}>
            Title, model, instructions…
          </Menu.Item>
          <Menu.Item leftSection={<Icon name="fold" size={16} />} onClick={() => void compact()}>
            Compact the history
          </Menu.Item>
          <Menu.Item leftSection={<Icon name="archive" size={16} />} onClick={() => void archive()}>
            {archived ? 'Take out of the archive' : 'Archive'}
          </Menu.Item>
          <Menu.Divider />
          <Menu.Item leftSection={<Icon name="check" size={16} />} onClick={() => setDialog('verify')}>
            Check against the log…
          </Menu.Item>
          <Menu.Item
            leftSection={<Icon name="copy" size={16} />}
            onClick={() => void navigator.clipboard?.writeText(view.id)}
          >
            Copy the id
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
      {dialog === 'settings' && <SettingsDialog view={view} onClose={() => setDialog(null)} />}
      {dialog === 'verify' && <VerifyDialog sessionId={view.id} onClose={() => setDialog(null)} />}
    </header>
  )
}
