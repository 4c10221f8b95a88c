import type { SessionStatus } from '../../../src/client/generated/graphql.ts'
import { statusWords } from './status.ts'

export function StatusBadge({ status }: { status: SessionStatus }) {
  const { label, tone } = statusWords[status]
  return (
    <span className="badge" data-tone={tone}>
      <span className="badge-dot" aria-hidden />
      {label}
    </span>
  )
}
