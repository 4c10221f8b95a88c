// Decisions on approvals and questions (design section 7). This version asks nobody yet: tools that need approval are refused at start,
// so an interaction id names nothing, and that is the answer.

import { NotSupportedError } from './compact.ts'
import type { Core } from './core.ts'
import type { Outcome } from './outcomes.ts'

type Decision = Outcome<'InteractionPayload' | 'InteractionNotFoundError' | 'InteractionSettledError' | 'InvalidInputError'>

async function decide(core: Core, tenant: string, interactionId: string): Promise<Decision> {
  const interaction = await core.db.interaction.findFirst({ where: { id: interactionId, session: { tenant } } })
  if (interaction !== null) throw new NotSupportedError('deciding an interaction')
  return {
    type: 'InteractionNotFoundError',
    message: `there is no interaction ${interactionId}`,
    interactionId,
  }
}

type ById = { interactionId: string }

export const decideApproval = (core: Core, tenant: string, { interactionId }: ById) => decide(core, tenant, interactionId)
export const answerQuestion = (core: Core, tenant: string, { interactionId }: ById) => decide(core, tenant, interactionId)
export const dismissQuestion = (core: Core, tenant: string, { interactionId }: ById) => decide(core, tenant, interactionId)
