import type { Caller } from '../access/caller.ts'
import type { Tx } from '../db.ts'
import type { QuarantineAction } from '../events.ts'
import type { Core } from '../runner/core.ts'
import type { Outcome } from '../runner/outcomes.ts'

export type ResolveQuarantine = (
  core: Core,
  tenant: string,
  input: { id: string; action: QuarantineAction },
) => Promise<Outcome<'ResolveQuarantinePayload' | 'QuarantineNotFoundError'>>

/** What every resolver gets. One object per operation. */
export interface Context {
  core: Core
  /** Of a query: one read-only snapshot (read-snapshot.ts). Of anything else: the plain client. */
  db: Tx
  /** Of the caller: all that may be read or changed belongs to it. */
  tenant: string
  caller: Caller
  /** What recovery does when a person asks: its room is not known here, the roof brings it. */
  resolveQuarantine: ResolveQuarantine
  /** Aborts when the operation is over: its client has gone, or has everything. What an operation opened ends with it, whatever way it came. */
  gone: AbortSignal
  /** Stands in the answer's header, in masked errors and in every log line of this operation. */
  requestId: string
  /** The header of a browser that comes back to an event stream; stands for `after`. */
  lastEventId: string | null
  /** The seq of the stream item that is being sent, null for one that is not in the log. */
  position: { seq: number | null }
  /** How often the peer was seen to take something of its answers. */
  taking: { readonly taken: number }
}
