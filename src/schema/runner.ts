// Stands in until recovery/quarantine.ts is there.
import { NotSupportedError } from '../runner/compact.ts'
import type { Core } from '../runner/core.ts'
import type { Outcome } from '../runner/outcomes.ts'

export async function resolveQuarantine(
  _core: Core,
  _tenant: string,
  _input: { id: string; action: 'RETRY' | 'DISCARD' },
): Promise<Outcome<'ResolveQuarantinePayload' | 'QuarantineNotFoundError'>> {
  throw new NotSupportedError('resolveQuarantine')
}
