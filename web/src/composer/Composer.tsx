import { ActionIcon, SegmentedControl, Textarea, Tooltip } from '@mantine/core'
import { type ClipboardEvent, type KeyboardEvent, useRef, useState } from 'react'
import type { Delivery } from '../../../src/client/generated/graphql.ts'
import { Icon } from '../parts/Icon.tsx'
import { attached, attachmentBytesMax } from './attach.ts'
import { useDraft } from './draft.ts'
import type { Attached } from './outbox.ts'

interface Props {
  /** Under which the draft is kept. */
  draftOf: string
  placeholder: string
  /** While something runs, whether a prompt joins it or waits for its end is a choice. */
  running: boolean
  onSend(prompt: { text: string; attachments: Attached[]; delivery: Delivery }): void
  onStop?: (() => void) | undefined
  stopping?: boolean
  autoFocus?: boolean
}

export function Composer({ draftOf, placeholder, running, onSend, onStop, stopping, autoFocus }: Props) {
  const [text, setText] = useDraft(draftOf)
  const [delivery, setDelivery] = useState<Delivery>('STEER')
  const [files, setFiles] = useState<Attached[]>([])
  const [problem, setProblem] = useState<string | null>(null)
  const picker = useRef<HTMLInputElement>(null)
  const sendable = text.trim() !== '' || files.length > 0

  const add = async (list: Iterable<File>) => {
    setProblem(null)
    try {
      const read = await Promise.all([...list].map(attached))
      setFiles((files) => {
        const all = [...files, ...read]
        if (all.reduce((sum, { url }) => sum + url.length, 0) <= (attachmentBytesMax / 3) * 4) return all
        setProblem('Attachments may have 15 MB in all.')
        return files
      })
    } catch (thrown) {
      setProblem(thrown instanceof Error ? thrown.message : String(thrown))
    }
  }
  const send = (as: Delivery = delivery) => {
    if (!sendable) return
    onSend({ text, attachments: files, delivery: running ? as : 'STEER' })
    setText('')
    setFiles([])
    setProblem(null)
  }
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || event.shiftKey || event.nativeEvent.isComposing) return
    event.preventDefault()
    send(event.altKey || event.ctrlKey || event.metaKey ? 'QUEUE' : delivery)
  }
  const onPaste = (event: ClipboardEvent) => {
    if (event.clipboardData.files.length === 0) return
    event.preventDefault()
    void add(event.clipboardData.files)
  }

  return (
    <form
      className="composer"
      aria-label="Prompt"
      onSubmit={(event) => {
        event.preventDefault()
        send()
      }}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault()
        void add(event.dataTransfer.files)
      }}
    >
      {files.length > 0 && (
        <ul className="composer-files" aria-label="Files to send">
          {files.map(({ name, url }, index) => (
            <li key={url.slice(-40) + name}>
              <Icon name="file" size={14} /> {name}
              <button
                type="button"
                aria-label={`Remove ${name}`}
                onClick={() => setFiles(files.filter((_, other) => other !== index))}
              >
                <Icon name="close" size={12} />
              </button>
            </li>
          ))}
        </ul>
      )}
      {problem !== null && (
        <p className="form-error" role="alert">
          {problem}
        </p>
      )}
      <Textarea
        id="prompt"
        variant="unstyled"
        autosize
        minRows={1}
        maxRows={12}
        aria-label="Prompt"
        placeholder={placeholder}
        value={text}
        autoFocus={autoFocus}
        onChange={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
        onPaste={onPaste}
      />
      <div className="composer-bar">
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          onChange={(event) => {
            void add(event.currentTarget.files ?? [])
            event.currentTarget.value = ''
          }}
        />
        <Tooltip label="Attach files">
          <ActionIcon variant="subtle" color="gray" aria-label="Attach files" onClick={() => picker.current?.click()}>
            <Icon name="clip" />
          </ActionIcon>
        </Tooltip>
        {running && (
          <SegmentedControl
            size="xs"
            aria-label="Delivery"
            value={delivery}
            onChange={(value) => setDelivery(value as Delivery)}
            data={[
              { value: 'STEER', label: 'Steer' },
              { value: 'QUEUE', label: 'Queue' },
            ]}
          />
        )}
        {running && (
          <span className="composer-hint">{delivery === 'STEER' ? 'joins at the next step' : 'waits for the end'}</span>
        )}
        <span className="spring" />
        {onStop && (
          <Tooltip label="Stop (Alt+.)">
            <ActionIcon variant="light" color="red" size="lg" aria-label="Stop" loading={stopping} onClick={onStop}>
              <Icon name="stop" />
            </ActionIcon>
          </Tooltip>
        )}
        <Tooltip label="Send (Enter)">
          <ActionIcon type="submit" size="lg" aria-label="Send" disabled={!sendable}>
            <Icon name="send" />
          </ActionIcon>
        </Tooltip>
      </div>
    </form>
  )
}
