import { Button } from '@mantine/core'
import { ResolveQuarantineDocument } from '../../../src/client/generated/graphql.ts'
import { act, useAct } from '../api/act.ts'
import { Notice } from '../parts/Notice.tsx'

/** Why something was set aside, and the two ways to end that. */
interface Props {
  entry: { id: string; kind: string; reason: string }
  onResolved?: () => void
  /** Ends the execution as interrupted, which ends the quarantine as well. */
  onStop?: (() => void) | undefined
  stopping?: boolean
}

export function QuarantineCard({ entry, onResolved, onStop, stopping }: Props) {
  const { busy, error, run } = useAct()
  const resolve = async (action: 'RETRY' | 'DISCARD') => {
    if (await run(() => act(ResolveQuarantineDocument, { input: { id: entry.id, action } }))) onResolved?.()
  }
  return (
    <Notice
      tone="bad"
      title={entry.kind === 'EXECUTION' ? 'An execution was set aside' : 'A recovery was set aside; other work goes on'}
      actions={
        <>
          <Button size="xs" loading={busy} onClick={() => void resolve('RETRY')}>
            Retry
          </Button>
          <Button size="xs" variant="default" disabled={busy} onClick={() => void resolve('DISCARD')}>
            Discard
          </Button>
          {onStop && (
            <Button size="xs" variant="subtle" color="red" loading={stopping} onClick={onStop}>
              Stop again
            </Button>
          )}
        </>
      }
    >
      <p>{entry.reason}</p>
      <p className="notice-help">
        Retry decides again and takes the outcome as unknown. Discard settles what is open and continues nothing.
      </p>
      {error !== null && (
        <p className="form-error" role="alert">
          {error}
        </p>
      )}
    </Notice>
  )
}
