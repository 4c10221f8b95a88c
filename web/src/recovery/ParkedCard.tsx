import { Button } from '@mantine/core'
import { ResumeSessionDocument } from '../../../src/client/generated/graphql.ts'
import { act, useAct } from '../api/act.ts'
import { Notice } from '../parts/Notice.tsx'

/** Why a session is parked, and the button that lets it go on. */
export function ParkedCard({
  sessionId,
  reason,
  onResumed,
}: {
  sessionId: string
  reason: string | null
  onResumed?: () => void
}) {
  const { busy, error, run } = useAct()
  const resume = async () => {
    if (await run(() => act(ResumeSessionDocument, { input: { sessionId } }))) onResumed?.()
  }
  return (
    <Notice
      tone="warn"
      title="Parked: recovery has stopped trying by itself"
      actions={
        <Button size="xs" loading={busy} onClick={() => void resume()}>
          Resume
        </Button>
      }
    >
      <p>{reason ?? 'No reason was given.'}</p>
      <p className="notice-help">Resume takes up what is owed. A new prompt does so, too.</p>
      {error !== null && (
        <p className="form-error" role="alert">
          {error}
        </p>
      )}
    </Notice>
  )
}
