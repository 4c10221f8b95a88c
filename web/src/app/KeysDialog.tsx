import { Kbd, Modal } from '@mantine/core'

export const keys: readonly (readonly [string, string])[] = [
  ['Enter', 'Send the prompt'],
  ['Shift + Enter', 'New line'],
  ['Ctrl + Enter', 'Send it as queued while something runs'],
  ['Alt + .', 'Stop what runs'],
  ['Alt + N', 'New session'],
  ['Alt + K', 'Search sessions'],
  ['Alt + I', 'Inbox'],
  ['Alt + T', 'Timeline of the session'],
  ['Alt + P', 'To the prompt'],
]

export function KeysDialog({ onClose }: { onClose: () => void }) {
  return (
    <Modal opened onClose={onClose} title="Keys" lockScroll={false} centered>
      <dl className="keys">
        {keys.map(([key, what]) => (
          <div key={key}>
            <dt>
              <Kbd>{key}</Kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Modal>
  )
}
