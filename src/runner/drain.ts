// One busy period of one session in this process (design section 5): claim, then from safe boundary to safe boundary until nothing is
// owed, then give the claim back under the session's lock, deciding on what is there at that moment.
//
//   wake → eligible? → execution.started + claim → ┌ boundary → step → boundary ┐ → execution.settled, claim removed

import { retrying } from '../db.ts'
import { asError } from '../errors.ts'
import { type ExecutionOutcome, event } from '../events.ts'
import { newExecutionId } from '../ids.ts'
import { withLogFields } from '../log.ts'
import type { Link } from '../tracing.ts'
import { cleanUp } from './cleanup.ts'
import { type Compacted, compact } from './compaction.ts'
import type { Core } from './core.ts'
import { lineOfOwner } from './decide-again.ts'
import { atBoundary, type Boundary, isEligible, isOwed, readWork, type Work } from './eligible.ts'
import { giveUp } from './give-up.ts'
import { createHold, type Hold, HoldEnded, reading } from './hold.ts'
import { readPromoted } from './prepare.ts'
import { startDrainSpan } from './spans.ts'
import { fenceFailed, promotionsOf, type Retry, resumeStep, runStep, type StepResult } from './step.ts'
import { databaseWaitMs, waitSlackMs } from './waits.ts'

/** How long a session may wait for a place after its back-off before that is told. */
const placeWaitMs = 600_000

/** How often a decision is taken again because the session moved; each time somebody else made progress. */
const decideAgainMax = 1000
/** After so many looks in a row that were in vain the callers of this process wait until one has decided. */
const staleMax = 3

/** Claims the session if it has work. Null: nothing to do, or somebody else has it. */
async function acquire(core: Core, sessionId: string): Promise<Hold | null> {
  for (let look = 0; look < decideAgainMax; look++) {
    const seen = core.waits.begin({ sessionId }, 'liveness lock', waitSlackMs)
    const mayClaim = !core.stopping.aborted && (await core.leases.whenAlive(core.stopping))
    seen()
    if (!mayClaim) return null
    try {
      const claim = () => claimOnce(core, sessionId)
      // Where callers were faster it has the next turn.
      const found =
        look === 0
          ? await claim()
          : await core.turns.take(await retrying(() => lineOfOwner(core, sessionId), core.stopping), 'owner', claim)
      if (found !== 'stale') return found
    } catch (thrown) {
      if (core.stopping.aborted) return null
      throw thrown
    }
  }
  return null
}

async function claimOnce(core: Core, sessionId: string): Promise<Hold | null | 'stale'> {
  const read = retrying(() => readWork(core.db, sessionId), core.stopping)
  const work = await core.waits.during({ sessionId }, 'read', databaseWaitMs, read)
  if (work === null || !isEligible(work)) return null
  const { owner } = core
  const hold = createHold(sessionId, newExecutionId(), owner, core.waits)
  const sentAt = performance.now()
  const outcome = await core.eventLog.append({
    sessionId,
    events: [event('execution.started', { executionId: hold.executionId })],
    expectedSeq: work.seq,
    claim: { kind: 'acquire', executionId: hold.executionId, owner, leaseMs: core.config.leaseMs },
  })
  if (outcome.kind === 'appended') {
    core.leases.add(hold, sentAt)
    return hold
  }
  return outcome.kind === 'stale' ? 'stale' : null
}

/**
 * Runs the session until nothing is owed. `again`: there may be more for a new execution (after a failure, or when others had to
 * get their turn). A claim that is still held when the process stops stays in `core.leases`, to be handed over.
 */
export async function drain(core: Core, sessionId: string, armedBy: readonly Link[] = []): Promise<{ again: boolean }> {
  const hold = await acquire(core, sessionId)
  if (hold === null) return { again: false }
  const span = startDrainSpan(hold, armedBy)
  let isLeaving = false
  try {
    const fields = { sessionId, executionId: hold.executionId }
    const end = await span.within(() => withLogFields(fields, () => busyPeriod(core, hold)))
    isLeaving = end === 'leaving'
    span.endAs(end)
    return { again: end === 'again' }
  } catch (thrown) {
    span.failWith(thrown)
    core.log.error({ err: asError(thrown), sessionId, executionId: hold.executionId }, 'a drain failed')
    // A process that leaves hands it over with the others.
    isLeaving = hold.ended === 'shutdown'
    return { again: !isLeaving && (await giveUp(core, hold)) }
  } finally {
    span.end()
    await core.live.drop(sessionId)
    if (!isLeaving) core.leases.remove(hold)
  }
}

type BusyEnd = 'idle' | 'again' | 'leaving'

async function busyPeriod(core: Core, hold: Hold): Promise<BusyEnd> {
  const { sessionId } = hold
  const line = () => lineOfOwner(core, sessionId)
  let retry: Retry | null = null
  let steps = 0
  let hasCompacted = false
  let ignoring: ReadonlySet<string> = new Set()
  /** Looks in a row that found the session moved by the time they had decided. */
  let stale = 0
  for (let look = 0; ; look++) {
    if (hold.ended === 'cancelled') {
      await cleanUp(core, hold, ignoring)
      // What was admitted after the interrupt is new work.
      return 'again'
    }
    if (hold.ended === 'lost') return 'again'
    if (hold.ended === 'shutdown') return 'leaving'
    if (look > decideAgainMax + steps * decideAgainMax)
      throw new Error('the session moves faster than it can be decided on')

    hold.begun = () => {}
    try {
      // Callers decide faster than a request is prepared. Where they come without end they wait for this one now: it would never get to its step.
      if (stale++ >= staleMax) hold.begun = await core.turns.hold(await reading(hold, line))
      const work = await reading(hold, () => readWork(core.db, sessionId))
      if (work === null) throw new Error(`session ${sessionId} is gone`)
      // A step that waits for people is taken up where it stands; no boundary is reached before it has ended.
      const openStep = retry === null && work.open?.kind === 'ASSISTANT' && work.open.streamed ? work.open : null
      // Another attempt of the open step is no boundary: nothing is promoted within it.
      const isWithinStep = openStep !== null || retry?.messageId != null
      const boundary: Boundary = isWithinStep ? { kind: 'step', promote: [] } : atBoundary(work)
      // A process that stops begins nothing more; what is over is still settled by the one that ran it.
      if (core.stopping.aborted && boundary.kind !== 'rest') return 'leaving'
      if (boundary.kind === 'compact') {
        if ((await runCompaction(core, hold, work, boundary.input.id)) !== 'stale') stale = 0
        continue
      }
      if (boundary.kind === 'rest') {
        if ((await settle(core, hold, work, 'SUCCEEDED')) === 'done') return 'idle'
        continue
      }
      if (!isWithinStep && steps > 0 && hold.phase === 'SAFE' && core.coordinator.othersWait() && isOwed(work)) {
        if ((await settle(core, hold, work, 'RELEASED')) === 'done') return 'again'
        continue
      }
      // Its tools and people may take any time.
      if (openStep !== null) hold.begun()
      const result: StepResult =
        openStep === null
          ? await runStep(core, hold, work, boundary.promote, retry, !hasCompacted)
          : await resumeStep(core, hold, openStep.messageId)
      if (result.kind === 'settled' || result.kind === 'retry') steps++
      if (result.kind !== 'stale') stale = 0
      // One automatic compaction a boundary: then the step is tried, whatever came of it.
      hasCompacted = result.kind === 'compacted' || (result.kind === 'stale' && hasCompacted)
      const next = await afterStep(core, hold, result)
      if (next.end !== undefined) return next.end
      if (result.kind !== 'stale' && result.kind !== 'compacted') retry = next.retry
      ignoring = next.ignoring
    } catch (thrown) {
      // The next look says how the hold ended.
      if (!(thrown instanceof HoldEnded)) throw thrown
    } finally {
      hold.begun()
    }
  }
}

/** A compaction request, alone at its boundary. If this process dies in it, only a step that is owed goes on. */
async function runCompaction(core: Core, hold: Hold, work: Work, id: string): Promise<Compacted> {
  const model = core.models.resolve(work.model)
  const moveTo = work.stepOwed ? 'CONTINUE' : 'SAFE'
  try {
    const options = { request: { id }, expectedSeq: work.seq, isForStep: work.stepOwed, moveTo } as const
    return await compact(core, hold, model, options)
  } catch (thrown) {
    // The loop looks at how the hold ended.
    if (!(thrown instanceof HoldEnded)) throw thrown
    return 'failed'
  }
}

interface AfterStep {
  end?: BusyEnd
  retry: Retry | null
  ignoring: ReadonlySet<string>
}

async function afterStep(core: Core, hold: Hold, result: Awaited<ReturnType<typeof runStep>>): Promise<AfterStep> {
  const none: AfterStep = { retry: null, ignoring: new Set() }
  switch (result.kind) {
    case 'finished':
      return { ...none, end: 'again' }
    case 'released':
    case 'waiting':
      return { ...none, end: 'idle' }
    case 'stopped':
      return { ...none, ignoring: result.ignoring }
    case 'retry':
      await pause(core, hold, result.delayMs)
      return { ...none, retry: result.retry }
    case 'settled':
      // The failure ends this execution; what is armed goes on in a new one.
      if (result.failed !== null && (await settleFailed(core, hold)) === 'done') return { ...none, end: 'again' }
      return none
    case 'stale':
    case 'compacted':
      return none
  }
}

/**
 * Waits out a back-off. Others run in its place meanwhile, so that a provider which refuses everything holds nothing else up; the lease
 * goes on being renewed. The end of the hold, or of the process, ends the wait.
 */
async function pause(core: Core, hold: Hold, ms: number): Promise<void> {
  const ends = [hold.signal, core.stopping]
  const due = new Promise<void>((resolve) => {
    if (ends.some(({ aborted }) => aborted)) return resolve()
    const done = () => {
      cancel()
      for (const signal of ends) signal.removeEventListener('abort', done)
      resolve()
    }
    const cancel = core.clock.setTimeout(done, ms)
    for (const signal of ends) signal.addEventListener('abort', done)
  })
  // The places are those of other sessions, whose waits have bounds of their own.
  const placed = core.waits.begin(hold, 'place', ms + placeWaitMs)
  await core.coordinator.stepAside(hold.sessionId, due, hold.signal)
  placed()
}

/** Gives the claim back, if the session is still as it was decided on; together with a continuation that asks for nothing. */
async function settle(core: Core, hold: Hold, work: Work, outcome: ExecutionOutcome): Promise<'done' | 'again'> {
  const boundary = atBoundary(work)
  const hidden = outcome === 'SUCCEEDED' && boundary.kind === 'rest' ? boundary.promote : []
  const promoted = await reading(hold, () => readPromoted(core, hold.sessionId, hidden))
  hold.closing = true
  const settled = await core.eventLog.append({
    sessionId: hold.sessionId,
    events: [
      ...promotionsOf(promoted),
      event('execution.settled', { executionId: hold.executionId, outcome, retryAt: null }),
    ],
    fence: hold.fence([hold.phase]),
    expectedSeq: work.seq,
    claim: { kind: 'remove' },
    patience: hold.signal,
  })
  if (settled.kind === 'appended') return 'done'
  hold.closing = false
  if (settled.kind !== 'stale') await fenceFailed(core, hold, 'settle')
  return 'again'
}

/** Ends an execution whose step has failed. Nothing has to be looked at: whatever is armed gets an execution of its own. */
async function settleFailed(core: Core, hold: Hold): Promise<'done' | 'again'> {
  hold.closing = true
  const settled = await core.eventLog.append({
    sessionId: hold.sessionId,
    events: [event('execution.settled', { executionId: hold.executionId, outcome: 'FAILED', retryAt: null })],
    fence: hold.fence([hold.phase]),
    claim: { kind: 'remove' },
    patience: hold.signal,
  })
  if (settled.kind === 'appended') return 'done'
  hold.closing = false
  await fenceFailed(core, hold, 'settle')
  return 'again'
}
