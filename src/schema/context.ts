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
  /** Of a subscription: waits for one of the places of its tenant, in which an item is answered. It is given back when the item is out. */
  itemPlace?(): Promise<void>
  /** Of an item that many streams of the tenant answer at the same time: in whose name they read together what is the same for all and small. */
  shared?: Context
  /** How often the peer was seen to take something of its answers. */
  taking: { readonly taken: number }
}
