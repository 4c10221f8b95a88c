// Sessions: created once, updated, archived (contract.graphql). Every call can be repeated byte for byte.

import type { EventPayloads } from '../events.ts'
import { event } from '../events.ts'
import type { Session } from '../generated/prisma/client.ts'
import type { Core } from './core.ts'
import { again, decideAgain } from './decide-again.ts'
import { invalidInput, type Outcome, sessionChanged, sessionNotFound } from './outcomes.ts'
import { brokenIdRule, brokenTextRule, isLookable } from './rules.ts'
import { createWithinDay } from './sessions-per-day.ts'

type Maybe<T> = T | null | undefined

export interface CreateSessionInput {
  sessionId: string
  title?: Maybe<string>
  instructions?: Maybe<string>
  model?: Maybe<string>
}

const titleBytesMax = 1000

type Invalid = Outcome<'InvalidInputError'>

function checkFields(
  core: Core,
  { title, instructions, model }: Omit<CreateSessionInput, 'sessionId'>,
): Invalid | null {
  const titleRule = title == null ? null : brokenTextRule(title, titleBytesMax)
  if (titleRule !== null) return invalidInput('title', titleRule)
  const instructionsRule = instructions == null ? null : brokenTextRule(instructions, core.config.limits.textBytes)
  if (instructionsRule !== null) return invalidInput('instructions', instructionsRule)
  if (model == null) return null
  const modelRule = brokenTextRule(model, titleBytesMax)
  if (modelRule !== null) return invalidInput('model', modelRule)
  if (core.models.knows(model)) return null
  return invalidInput('model', `"${model.slice(0, 100)}" is not known here; the query "models" lists what is`)
}

/** The session of this tenant, or null: another tenant's is as if it did not exist. */
export async function findSession(core: Core, tenant: string, sessionId: string): Promise<Session | null> {
  if (!isLookable(sessionId)) return null
  // The database compares the tenant: to fetch another's row first would take the longer the larger it is, and so tell of it.
  return core.db.session.findFirst({ where: { id: sessionId, tenant } })
}

/** What an existing session answers to a createSession: the same arguments as it was made with, or a conflict. */
async function compare(
  core: Core,
  tenant: string,
  input: CreateSessionInput,
): Promise<Outcome<'CreateSessionPayload' | 'SessionConflictError'> | null> {
  const { sessionId } = input
  const session = await core.db.session.findUnique({ where: { id: sessionId }, select: { tenant: true } })
  if (session === null) return null
  const conflict = (differingFields: string[]): Outcome<'SessionConflictError'> => ({
    type: 'SessionConflictError',
    message: `the id ${sessionId} is taken: ${differingFields.join(', ')} differs`,
    sessionId,
    differingFields,
  })
  if (session.tenant !== tenant) return conflict(['sessionId'])
  const first = await core.db.event.findUniqueOrThrow({ where: { sessionId_seq: { sessionId, seq: 1 } } })
  const made = first.payload as unknown as EventPayloads['session.created']
  const differing: string[] = []
  if ((input.title ?? null) !== made.title) differing.push('title')
  if ((input.instructions ?? null) !== made.instructions) differing.push('instructions')
  if ((input.model ?? null) !== (made.requestedModel ?? null)) differing.push('model')
  return differing.length > 0 ? conflict(differing) : { type: 'CreateSessionPayload', sessionId, created: false }
}

/** Creates the session, or finds that the same call did already (API-05 to API-08). */
export async function createSession(
  core: Core,
  tenant: string,
  input: CreateSessionInput,
): Promise<Outcome<'CreateSessionPayload' | 'SessionConflictError' | 'InvalidInputError' | 'LimitExceededError'>> {
  const { sessionId } = input
  const idRule = brokenIdRule('ses_', sessionId)
  if (idRule !== null) return invalidInput('sessionId', idRule)
  const existing = await compare(core, tenant, input)
  if (existing !== null) return existing
  const invalid = checkFields(core, input)
  if (invalid !== null) return invalid
  const created = event('session.created', {
    tenant,
    title: input.title ?? null,
    instructions: input.instructions ?? null,
    model: input.model ?? core.config.model,
    requestedModel: input.model ?? null,
  })
  const outcome = await createWithinDay(core, tenant, { sessionId, events: [created] })
  if ('type' in outcome) return outcome
  if (outcome.kind === 'appended') return { type: 'CreateSessionPayload', sessionId, created: true }
  // Somebody was faster: the same call elsewhere, or another one with this id.
  const other = await compare(core, tenant, input)
  if (other === null) throw new Error(`createSession of ${sessionId}: ${outcome.kind}`)
  return other
}

export interface UpdateSessionInput extends CreateSessionInput {
  ifSeq?: Maybe<number>
}

type UpdateOutcome = Outcome<
  'UpdateSessionPayload' | 'SessionNotFoundError' | 'SessionChangedError' | 'InvalidInputError'
>

interface Wanted {
  title: string | null
  instructions: string | null
  model: string
  archived: boolean
}

/** Appends one session.updated if anything differs from what is wanted; decides again when the session moved. */
function change(
  core: Core,
  tenant: string,
  sessionId: string,
  ifSeq: Maybe<number>,
  wantedOf: (session: Session) => Wanted,
): Promise<UpdateOutcome> {
  return decideAgain(core, { tenant, sessionId }, async (): Promise<UpdateOutcome | typeof again> => {
    const session = await findSession(core, tenant, sessionId)
    if (session === null) return sessionNotFound(sessionId)
    if (ifSeq != null && ifSeq !== session.seq) return sessionChanged(sessionId, session.seq)
    const wanted = wantedOf(session)
    const isSame =
      wanted.title === session.title &&
      wanted.instructions === session.instructions &&
      wanted.model === session.model &&
      wanted.archived === (session.archivedAt !== null)
    if (isSame) return { type: 'UpdateSessionPayload', sessionId }
    const archivedAt =
      wanted.archived && session.archivedAt !== null ? { archivedAt: session.archivedAt.toISOString() } : {}
    const updated = event('session.updated', { ...wanted, ...archivedAt })
    const outcome = await core.eventLog.append({ sessionId, events: [updated], expectedSeq: session.seq })
    return outcome.kind === 'appended' ? { type: 'UpdateSessionPayload', sessionId } : again
  })
}

/** Changes title, instructions or model; fields that are left out stay, null clears title and instructions (API-09, API-18). */
export async function updateSession(core: Core, tenant: string, input: UpdateSessionInput): Promise<UpdateOutcome> {
  const idRule = brokenIdRule('ses_', input.sessionId)
  if (idRule !== null) return invalidInput('sessionId', idRule)
  if (input.model === null) return invalidInput('model', 'must not be null; leave it out to keep the model')
  const invalid = checkFields(core, input)
  if (invalid !== null) return invalid
  return change(core, tenant, input.sessionId, input.ifSeq, (session) => ({
    title: input.title === undefined ? session.title : input.title,
    instructions: input.instructions === undefined ? session.instructions : input.instructions,
    model: input.model ?? session.model,
    archived: session.archivedAt !== null,
  }))
}

/** Puts a session into the archive or takes it out (API-22). */
export async function archiveSession(
  core: Core,
  tenant: string,
  input: { sessionId: string; archived?: Maybe<boolean>; ifSeq?: Maybe<number> },
): Promise<UpdateOutcome> {
  const idRule = brokenIdRule('ses_', input.sessionId)
  if (idRule !== null) return invalidInput('sessionId', idRule)
  return change(core, tenant, input.sessionId, input.ifSeq, ({ title, instructions, model }) => ({
    title,
    instructions,
    model,
    archived: input.archived ?? true,
  }))
}
