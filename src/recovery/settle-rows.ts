// Rows that a scan settles without taking a claim: a recovery whose continuation is promoted already, and interactions past their
// expiry (design section 9, second and fourth pass).

import type { Db } from '../db.ts'
import { event } from '../events.ts'
import { continuationIdOf, recoveryIdOf } from '../ids.ts'
import type { Core } from '../runner/core.ts'
import type { ArmedRecovery } from './passes.ts'

/** What is wrong with an armed recovery row; null if it can be followed. */
export function recoveryFault(row: ArmedRecovery): string | null {
  if (row.id !== recoveryIdOf(row.executionId)) return `the recovery ${row.id} does not follow from its execution`
  if (row.continuationMessageId !== continuationIdOf(row.executionId))
    return `the recovery names ${row.continuationMessageId}, which is not the continuation of its execution`
  if (row.inputKind === null) return "the session has no input of the continuation's id"
  if (row.inputKind !== 'CONTINUATION') return `the input of the continuation's id is a ${row.inputKind}`
  return null
}

/**
 * Settles an armed recovery whose continuation is not pending any more. Live and on replay the event that promoted or withdrew it
 * settles the row in the same commit, so the log already says so, and the row alone is behind it: it is brought to what a replay gives.
 * No event is written, as nothing happened. False if the log does not say so: then the row is not to be trusted.
 */
export async function settleAsReplayed(db: Db, row: ArmedRecovery): Promise<boolean> {
  return db.$transaction(async (tx) => {
    await tx.$queryRaw`SELECT id FROM "Session" WHERE id = ${row.sessionId} FOR NO KEY UPDATE`
    const settled = await tx.$executeRaw`
      UPDATE "Recovery" r SET "wakePending" = false
       WHERE r."sessionId" = ${row.sessionId} AND r.id = ${row.id}
         AND (EXISTS (SELECT 1 FROM "Event" e WHERE e."sessionId" = r."sessionId" AND e.type IN ('prompt.promoted', 'prompt.withdrawn')
                         AND e.payload->>'messageId' = r."continuationMessageId")
              OR EXISTS (SELECT 1 FROM "Input" i JOIN "Event" e ON e."sessionId" = i."sessionId" AND e.seq > i."admittedSeq"
                          WHERE i."sessionId" = r."sessionId" AND i.id = r."continuationMessageId" AND e.type = 'interrupt.requested'))`
    return settled === 1
  })
}

/** Expires an open interaction, which declines its tool and lets the activity go on. False if somebody decided it meanwhile. */
export async function expireInteraction(core: Core, sessionId: string, interactionId: string): Promise<boolean> {
  const decideAgainMax = 20
  for (let look = 0; look < decideAgainMax; look++) {
    const session = await core.db.session.findUnique({ where: { id: sessionId }, select: { seq: true } })
    const open = await core.db.interaction.findFirst({ where: { id: interactionId, sessionId, state: 'OPEN' } })
    if (session === null || open === null) return false
    const outcome = await core.eventLog.append({
      sessionId,
      events: [
        event('interaction.settled', {
          interactionId,
          state: 'EXPIRED',
          answer: null,
          feedback: 'nobody answered in time',
          editedInput: null,
          remember: false,
        }),
      ],
      // Read before the interaction: a decision in between makes this stale.
      expectedSeq: session.seq,
    })
    if (outcome.kind === 'appended') return true
  }
  return false
}
