import { Loader, Modal } from '@mantine/core'
import { useEffect, useState } from 'react'
import { VerifySessionDocument, type VerifySessionQuery } from '../../../src/client/generated/graphql.ts'
import { apollo } from '../api/apollo.ts'

/** Replays the log on the server and says whether the tables agree with it. */
export function VerifyDialog({ sessionId, onClose }: { sessionId: string; onClose: () => void }) {
  const [result, setResult] = useState<VerifySessionQuery['verifySession'] | null>(null)
  const [error, setError] = useState<string | null>(null)
  useEffect(() => {
    apollo
      .query({ query: VerifySessionDocument, variables: { id: sessionId }, fetchPolicy: 'no-cache' })
      .then(({ data }) => setResult(data?.verifySession ?? null))
      .catch((thrown: unknown) => setError(thrown instanceof Error ? thrown.message : String(thrown)))
  }, [sessionId])
  return (
    <Modal opened onClose={onClose} title="Check against the log" lockScroll={false} centered>
      <div role="status">
        {error !== null && <p className="form-error">{error}</p>}
        {!result && error === null && <Loader size="sm" aria-label="Replaying the log" />}
        {result?.consistent && <p>All {result.events} events were replayed; they give exactly what is stored.</p>}
        {result && !result.consistent && (
          <>
            <p>What is stored differs from what {result.events} events give:</p>
            <ul>
              {result.differences.map((difference) => (
                <li key={difference}>{difference}</li>
              ))}
            </ul>
          </>
        )}
      </div>
    </Modal>
  )
}
