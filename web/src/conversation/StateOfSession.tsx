import type { SessionStatus } from '../../../src/client/generated/graphql.ts'
import type { SessionView } from '../../../src/client/view.ts'
import { Notice } from '../parts/Notice.tsx'
import { ParkedCard } from '../recovery/ParkedCard.tsx'
import { QuarantineCard } from '../recovery/QuarantineCard.tsx'

interface Props {
  view: SessionView
  status: SessionStatus
  onStop: () => void
  stopping: boolean
}

/** Why a session does not simply go on, and what ends that. Nothing while it does. */
export function StateOfSession({ view, status, onStop, stopping }: Props) {
  return (
    <>
      {view.parkedReason !== null && <ParkedCard sessionId={view.id} reason={view.parkedReason} />}
      {view.quarantine
        .filter(({ resolvedAt }) => resolvedAt === null)
        .map((entry) => (
          <QuarantineCard
            key={entry.id}
            entry={entry}
            // Only an execution can be stopped; a recovery that was set aside holds nothing up.
            onStop={entry.kind === 'EXECUTION' ? onStop : undefined}
            stopping={stopping}
          />
        ))}
      {status === 'RECOVERING' && (
        <Notice tone="info" title="Recovering">
          The process that worked on this is gone. Another one takes it up; there is nothing to do.
        </Notice>
      )}
      {view.archivedAt !== null && (
        <Notice tone="info">This session is in the archive. A new prompt takes it out.</Notice>
      )}
    </>
  )
}
