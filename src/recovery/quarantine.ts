// resolveQuarantine: a person decides what becomes of a row that was set aside (contract.graphql; design section 9). Both actions are
// events, so a resolved entry stays resolved on replay; the same action again gets the same answer and writes nothing.

import type { Tx } from '../db.ts'
import { type AppendRequest, appendIn } from '../event-log.ts'
import { type ExecutionPhase, event, type NewEvent, type QuarantineAction } from '../events.ts'
import { type Core, wake } from '../runner/core.ts'
import { again, decideAgain } from '../runner/decide-again.ts'
import type { Outcome } from '../runner/outcomes.ts'
import { isLookable } from '../runner/rules.ts'
import { interruptedByUser, readOpen } from '../runner/settle-open.ts'
import { type Evidence, readEvidence } from './evidence.ts'
import { outcomeUnknown, resolve } from './resolution.ts'
import { removeClaim, requestOf, settleCutOff } from './takeover.ts'

type Resolved = Outcome<'ResolveQuarantinePayload' | 'QuarantineNotFoundError'>

const notFound = (id: string, message: string): Resolved => ({ type: 'QuarantineNotFoundError', message, id })

/**
 * Resolves one entry. RETRY decides again with the outcome taken as unknown (an interrupted execution: its cleanup is finished); DISCARD
 * settles what is open and continues nothing. An entry that was resolved by the other action counts as not found: there is nothing open
 * under this id to act on.
 */
export async function resolveQuarantine(
  core: Core,
  tenant: string,
  { id, action }: { id: string; action: QuarantineAction },
): Promise<Resolved> {
  const find = () => core.db.quarantine.findFirst({ where: { id, session: { tenant } } })
  const found = isLookable(id) ? await find() : null
  if (found === null) return notFound(id, `there is no quarantine entry ${id}`)
  const { sessionId, executionId } = found
  return decideAgain(core, { tenant, sessionId }, async (): Promise<Resolved | typeof again> => {
    const entry = (await find())!
    if (entry.resolvedAt !== null) {
      if (entry.action !== action) return notFound(id, `${id} was resolved by ${entry.action} already`)
      return { type: 'ResolveQuarantinePayload', sessionId }
    }
    const resolved = event('quarantine.resolved', { quarantineId: id, action })
    // Read once outside: what cannot be read would spoil the transaction too.
    const isReadable = await readEvidence(core.db, sessionId).then(
      () => true,
      () => false,
    )
    const kind = await core.db.$transaction(async (tx) => {
      const request = await requestFor(core, tx, { ...entry, isReadable }, resolved, action)
      if (request === null) return 'stale'
      return (await appendIn(tx, request, core.owner)).kind
    })
    // Anything else: the session or the claim moved. Look again, first at the entry itself.
    if (kind !== 'appended') return again
    core.doorbell.ring([sessionId])
    core.log.info({ sessionId, executionId, action }, 'quarantine resolved')
    // What was admitted meanwhile, or goes on now, need not wait for a scan.
    wake(core, sessionId)
    return { type: 'ResolveQuarantinePayload', sessionId }
  })
}

/** The append that resolves the entry; null if somebody has resolved it since. */
async function requestFor(
  core: Core,
  tx: Tx,
  entry: { id: string; sessionId: string; executionId: string; kind: string; isReadable: boolean },
  resolved: NewEvent,
  action: QuarantineAction,
): Promise<AppendRequest | null> {
  const { sessionId, executionId } = entry
  const session = await tx.session.findUniqueOrThrow({ where: { id: sessionId }, select: { seq: true } })
  // Asked again behind the seq: whoever resolves it from here on makes this append stale.
  if ((await tx.quarantine.count({ where: { id: entry.id, resolvedAt: null } })) === 0) return null
  const alone: AppendRequest = { sessionId, events: [resolved], expectedSeq: session.seq }
  // A recovery row: RETRY lets the next scan look at it again, DISCARD makes every scan pass it over.
  if (entry.kind === 'RECOVERY') return alone
  if (action === 'DISCARD') alone.events = [resolved, ...(await withdrawals(tx, sessionId))]
  const evidence = entry.isReadable ? await readEvidence(tx, sessionId) : null
  if (evidence === null || evidence.claim.executionId !== executionId) return orphaned(tx, alone, executionId)
  // An execution that has its end gets no second one.
  if (evidence.hasEnd) {
    await removeClaim(tx, sessionId, evidence, { kind: 'dead', isStill: () => true })
    return alone
  }
  const events = action === 'DISCARD' ? discard(evidence) : retry(core, sessionId, evidence)
  const { claim } = evidence
  return {
    sessionId,
    events: [...alone.events, ...events],
    expectedSeq: evidence.seq,
    fence: {
      executionId,
      owner: claim.owner,
      phases: [claim.phase as ExecutionPhase],
      live: false,
      expiresAt: claim.expiresAt,
    },
    claim: { kind: 'remove' },
  }
}

/**
 * What an earlier recovery left to be taken up, as when this execution was cut off before it promoted anything: discarded with it. What people
 * have admitted stays as it is.
 */
async function withdrawals(tx: Tx, sessionId: string): Promise<NewEvent[]> {
  const where = { sessionId, kind: 'CONTINUATION', state: 'PENDING' }
  const continuations = await tx.input.findMany({ where, orderBy: { admittedSeq: 'asc' }, select: { id: true } })
  return continuations.map(({ id }) => event('prompt.withdrawn', { messageId: id }))
}

/** Settles what is open; a step's end also clears what the session owes. */
function discard({ claim, open, stepOwed }: Evidence): NewEvent[] {
  const { executionId } = claim
  const settled = event('execution.settled', { executionId, outcome: 'CLEARED', retryAt: null })
  // Owed without an open step: only a stop says that nothing continues.
  const stop =
    stepOwed && open.step === null ? [event('interrupt.requested', { interruptedExecutionId: executionId })] : []
  return [...stop, ...settleCutOff(open, failed), settled]
}

const failed = { failed: outcomeUnknown, continues: false }

/** Decides again. Whatever the phase was, the outcome is taken as unknown; an interrupt that was accepted is brought to its end. */
function retry(core: Core, sessionId: string, evidence: Evidence): NewEvent[] {
  const { claim, open } = evidence
  const { executionId } = claim
  if (claim.phase === 'CANCELLING') {
    return [
      ...settleCutOff(open, { interrupted: interruptedByUser }),
      event('execution.settled', { executionId, outcome: 'INTERRUPTED', retryAt: null }),
    ]
  }
  const decision = resolve(evidence, 'UNKNOWN')
  if (decision.kind === 'Quarantine' || decision.kind === 'Remove')
    throw new Error(`an unknown outcome gives ${decision.kind}`)
  // A person acted, so the bounds of automatic recovery do not park it.
  const unbounded: Evidence = {
    ...evidence,
    recoveries: Number.NEGATIVE_INFINITY,
    claim: { ...claim, expiredForMs: 0 },
  }
  const right = { kind: 'dead', isStill: () => true } as const
  return [...requestOf(core, sessionId, unbounded, decision, right).request.events]
}

/** The claim is gone or another execution's, or cannot be read: the entry is closed, and its execution gets the end it lacks. */
async function orphaned(tx: Tx, alone: AppendRequest, executionId: string): Promise<AppendRequest> {
  const { sessionId } = alone
  const claim = await tx.claim.findUnique({ where: { sessionId }, select: { executionId: true } })
  const ends = await tx.$queryRaw<unknown[]>`
    SELECT 1 FROM "Event" e WHERE e."sessionId" = ${sessionId} AND e.type IN ('execution.settled', 'step.recovered')
       AND e.payload->>'executionId' = ${executionId}`
  if (ends.length > 0 || (claim !== null && claim.executionId !== executionId)) return alone
  const settled = event('execution.settled', { executionId, outcome: 'CLEARED', retryAt: null })
  const open = await readOpen(tx, sessionId)
  const events = [...alone.events, ...settleCutOff(open, failed), settled]
  if (claim === null) return { ...alone, events, unclaimed: true }
  const fence = { executionId, owner: null, phases: null, live: false }
  return { ...alone, events, fence, claim: { kind: 'remove' } }
}
