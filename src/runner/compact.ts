// compactSession: a compaction request is an input of its own kind (design section 5). Running one comes with a later version, so that
// none is taken yet: an input that nothing would ever run must not be made durable.

import type { Core } from './core.ts'
import type { Outcome } from './outcomes.ts'

/** A feature of the contract that this version does not have yet; shown to the caller as what it is. */
export class NotSupportedError extends Error {
  override name = 'NotSupportedError'
  constructor(readonly feature: string) {
    super(`${feature} is not supported by this version yet; nothing was changed`)
  }
}

export async function compactSession(
  _core: Core,
  _tenant: string,
  _input: { sessionId: string; messageId: string },
): Promise<
  Outcome<
    | 'CompactSessionPayload'
    | 'PromptConflictError'
    | 'SessionNotFoundError'
    | 'InvalidInputError'
    | 'LimitExceededError'
  >
> {
  throw new NotSupportedError('compactSession')
}
