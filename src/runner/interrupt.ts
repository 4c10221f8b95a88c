// interruptSession (design section 8): durable from any process. One commit asks and, if a claim lives, moves it to CANCELLING; from
// then on its owner can do nothing but the one cleanup append. The answer comes when that is durable.
//
//   no claim ──► settled or disarmed in the commit that asks
//   live claim ──► CANCELLING ──► owner stops, cleans up, claim gone ──► answer
//   dead owner or lapsed lease ──► taken over and settled here

import { type ClaimRow, readClaim } from '../claim.ts'
import type { Tx } from '../db.ts'
import { AppendRefusedError, BusyError } from '../errors.ts'
import { event, type NewEvent, type StepError } from '../events.ts'
import type { Core } from './core.ts'
import { again, decideAgain } from './decide-again.ts'
import { isOwed, readWork, type Work } from './eligible.ts'
import { type Outcome, sessionNotFound } from './outcomes.ts'
import { isLookable } from './rules.ts'
import { findSession } from './sessions.ts'
import { interruptedByUser, type OpenRows, readOpen, settleOpen } from './settle-open.ts'

/** How long the mutation waits for the owner's cleanup. */
export const interruptDeadlineMs = 30_000

/** Each look more means that a lease ran out and was renewed after all. */
const looksMax = 100

const unknown: StepError = {
  code: 'OUTCOME_UNKNOWN',
  message: 'interrupted after its process was gone; what it did is not known',
}

type InterruptOutcome = Outcome<'InterruptSessionPayload' | 'InterruptPendingError' | 'SessionNotFoundError'>

const answer = (sessionId: string, interrupted: boolean): InterruptOutcome => ({
  type: 'InterruptSessionPayload',
  sessionId,
  interrupted,
})

const pendingAnswer = (sessionId: string, executionId: string): InterruptOutcome => ({
  type: 'InterruptPendingError',
  message: 'the interrupt is kept, but what was running is not settled yet; nothing further of it will happen',
  sessionId,
  executionId,
})

const requested = (executionId: string | null): NewEvent =>
  event('interrupt.requested', { interruptedExecutionId: executionId })

/** Was this execution stopped by an earlier call? */
async function wasInterrupted(db: Tx, sessionId: string, executionId: string): Promise<boolean> {
  if (!isLookable(executionId)) return false
  const rows = await db.$queryRaw<unknown[]>`
    SELECT 1 FROM "Event" WHERE "sessionId" = ${sessionId} AND type = 'interrupt.requested'
       AND payload->>'interruptedExecutionId' = ${executionId} LIMIT 1`
  return rows.length > 0
}

/** Ends everything that is open. Of a started tool nobody knows what it did, unless its owner is there to say that it stopped. */
const interrupted = (open: OpenRows, startedError: StepError): NewEvent[] =>
  settleOpen(open, {
    tool: ({ started }) => (started ? startedError : interruptedByUser),
    compaction: interruptedByUser,
    step: { interrupted: interruptedByUser },
  })

/** Without a claim: disarms what is queued and settles a step that waits for a person, in the commit that asks. */
async function interruptUnclaimed(core: Core, sessionId: string, work: Work): Promise<'done' | 'nothing' | 'again'> {
  const open = await readOpen(core.db, sessionId)
  if (open.seq !== work.seq) return 'again'
  if (!isOwed(work) && open.step === null && open.compaction === null && open.interactions.length === 0)
    return 'nothing'
  const outcome = await core.eventLog.append({
    sessionId,
    events: [requested(null), ...interrupted(open, interruptedByUser)],
    expectedSeq: work.seq,
    unclaimed: true,
  })
  return outcome.kind === 'appended' ? 'done' : 'again'
}

/** The entry by which recovery has set this execution aside: its owner was dead or its lease had run out, and nobody else ends it. */
const openQuarantine = (core: Core, { sessionId, executionId }: ClaimRow) =>
  core.db.quarantine.findFirst({ where: { sessionId, executionId, kind: 'EXECUTION', resolvedAt: null } })

/** Will its owner not do it any more? One that died is set aside long before its lease runs out (INT-15). */
const isLapsed = async (core: Core, claim: ClaimRow) => !claim.live || (await openQuarantine(core, claim)) !== null

/** Settles for an owner that is gone; also ends a quarantine of its execution (INT-15, INT-25, INT-30). */
async function takeOver(core: Core, claim: ClaimRow): Promise<boolean> {
  const { sessionId, executionId, owner, phase, expiresAt } = claim
  const open = await readOpen(core.db, sessionId)
  const quarantine = await openQuarantine(core, claim)
  const asked = phase === 'CANCELLING' ? [] : [requested(executionId)]
  const outcome = await core.eventLog.append({
    sessionId,
    events: [
      ...asked,
      ...(quarantine === null ? [] : [event('quarantine.resolved', { quarantineId: quarantine.id, action: 'RETRY' })]),
      ...interrupted(open, unknown),
      event('execution.settled', { executionId, outcome: 'INTERRUPTED', retryAt: null }),
    ],
    fence: { executionId, owner, phases: [phase], live: false, expired: quarantine === null, expiresAt },
    expectedSeq: open.seq,
    claim: { kind: 'remove' },
  })
  return outcome.kind === 'appended'
}

/** Waits until the claim of this execution is gone. `lapsed`: its owner will not do it any more. */
async function untilSettled(
  core: Core,
  sessionId: string,
  executionId: string,
  deadline: number,
): Promise<'settled' | 'lapsed' | 'pending'> {
  let wake = () => {}
  let rung = true
  const stop = core.doorbell.listen(sessionId, () => {
    rung = true
    wake()
  })
  try {
    for (;;) {
      rung = false
      // Asked before the row is read: a cleanup that commits in between leaves neither, and has not failed.
      const isRunHere = core.leases.heldBy(sessionId)?.executionId === executionId
      const claim = await readClaim(core.db, sessionId)
      if (claim?.executionId !== executionId) return 'settled'
      if (await isLapsed(core, claim)) return 'lapsed'
      // Our own drain has ended and left the claim: its cleanup could not be written.
      if (claim.owner === core.owner && !isRunHere) return 'pending'
      const left = deadline - performance.now()
      if (left <= 0) return 'pending'
      if (rung) continue
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, Math.min(left, core.config.pollMs))
        wake = () => {
          clearTimeout(timer)
          resolve()
        }
        if (rung) wake()
      })
    }
  } finally {
    stop()
  }
}

/** Asks a live owner to stop: logged at once; a second time only if something was armed since (INT-29). */
async function requestCancel(core: Core, claim: ClaimRow, work: Work): Promise<boolean> {
  const { sessionId, executionId } = claim
  if (claim.phase === 'CANCELLING') {
    if (!isOwed(work)) return true
    const outcome = await core.eventLog.append({
      sessionId,
      events: [requested(executionId)],
      fence: { executionId, owner: null, phases: ['CANCELLING'] },
      expectedSeq: work.seq,
    })
    return outcome.kind === 'appended'
  }
  const outcome = await core.eventLog.append({
    sessionId,
    events: [requested(executionId)],
    fence: { executionId, owner: null, phases: ['READY', 'UNKNOWN', 'SAFE', 'CONTINUE'] },
    claim: { kind: 'move', to: 'CANCELLING' },
  })
  if (outcome.kind !== 'appended') return false
  // The owner is told at once if it is here; elsewhere the doorbell tells it, its next fence or renewal at the latest.
  const hold = core.leases.heldBy(sessionId)
  if (hold?.executionId === executionId) hold.end('cancelled')
  return true
}

/** Stops what runs, disarms what waits, and answers when that is durable. */
export async function interruptSession(
  core: Core,
  tenant: string,
  { sessionId, executionId }: { sessionId: string; executionId?: string | null | undefined },
): Promise<InterruptOutcome> {
  const deadline = performance.now() + interruptDeadlineMs
  let stoppedExecution: string | null = null

  /** One look: an answer, or the execution whose owner has been asked to stop. */
  async function decide(): Promise<InterruptOutcome | { asked: string } | typeof again> {
    if ((await findSession(core, tenant, sessionId)) === null) return sessionNotFound(sessionId)
    const claim = await readClaim(core.db, sessionId)
    if (stoppedExecution !== null && claim?.executionId !== stoppedExecution) return answer(sessionId, true)
    if (executionId != null && claim?.executionId !== executionId)
      return answer(sessionId, await wasInterrupted(core.db, sessionId, executionId))
    const work = await readWork(core.db, sessionId)
    if (work === null) return sessionNotFound(sessionId)
    if (claim === null) {
      const done = await interruptUnclaimed(core, sessionId, work)
      return done === 'again' ? again : answer(sessionId, done === 'done')
    }
    if (await isLapsed(core, claim)) {
      try {
        return (await takeOver(core, claim)) ? answer(sessionId, true) : again
      } catch (thrown) {
        // It is durable that this stops; what refuses the end of it is set aside, for a person.
        if (stoppedExecution === null || !(thrown instanceof AppendRefusedError)) throw thrown
        core.log.error({ err: thrown, sessionId, executionId: claim.executionId }, 'an interrupt could not be settled')
        return pendingAnswer(sessionId, claim.executionId)
      }
    }
    return (await requestCancel(core, claim, work)) ? { asked: claim.executionId } : again
  }

  for (let look = 0; look < looksMax; look++) {
    // Others have their turn while the owner stops: what is waited for is the owner's, and it needs one itself.
    const decided = await decideAgain(core, { tenant, sessionId, rank: 'interrupt' }, decide)
    if ('type' in decided) return decided
    stoppedExecution = decided.asked
    const waited = await untilSettled(core, sessionId, decided.asked, deadline)
    if (waited === 'settled') return answer(sessionId, true)
    if (waited === 'pending') return pendingAnswer(sessionId, decided.asked)
  }
  throw new BusyError(`the claim of ${sessionId} lapsed ${looksMax} times while it was interrupted`)
}
