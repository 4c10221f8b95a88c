// Very many sessions at rest, and a few that owe work in each of the ways there are, as rows: what a scan reads of them is looked at, nothing
// of them is ever run, so they have no log.
import type { Db } from '../src/db.ts'

/** How many owe work, by why. */
export const owed = { expired: 20, dead: 20, armed: 20, stepOwed: 20, recovery: 10, decided: 10 }
export const owedInAll = Object.values(owed).reduce((sum, n) => sum + n, 0)
/** The owner of the claims that have not expired. */
export const deadOwner = 'own_.dead'

/** Writes `count` sessions, set-based. One in ten has been recovered once, one in ten has asked a person. */
export async function writeSessions(db: Db, count: number): Promise<void> {
  const run = (sql: string) => db.$executeRawUnsafe(sql)
  await run(`
    INSERT INTO "Session" (id, tenant, title, model, seq, "createdAt", "updatedAt")
    SELECT 'ses_' || n, 'default', 'Session ' || n, 'demo/echo', 9, now() - n * interval '1 second', now() - n * interval '1 second'
      FROM generate_series(1, ${count}) n`)
  await run(`
    INSERT INTO "Input" (id, "sessionId", kind, text, "requestedDelivery", delivery, state, "wakePending", "executionRequested", "admittedSeq",
                         "promotedSeq", "createdAt")
    SELECT 'msg_' || n, 'ses_' || n, CASE WHEN n % 10 = 1 THEN 'CONTINUATION' ELSE 'PROMPT' END, 'hi', 'STEER', 'STEER', 'PROMOTED', false, true, 2, 4,
           now() FROM generate_series(1, ${count}) n`)
  await run(`
    INSERT INTO "Message" (id, "sessionId", kind, seq, "createdAt", model, status, streamed, finish, "settledAt")
    SELECT 'msg_.' || n, 'ses_' || n, 'ASSISTANT', 5, now(), 'demo/echo', 'ENDED', true, 'stop', now() FROM generate_series(1, ${count}) n`)
  await run(`
    INSERT INTO "Recovery" (id, "sessionId", "executionId", phase, "continuationMessageId", "wakePending", "createdAt")
    SELECT 'rec_' || n, 'ses_' || n, 'exe_' || n, 'READY', 'msg_' || n, false, now() FROM generate_series(1, ${count}, 10) n`)
  await run(`
    INSERT INTO "ToolCall" ("sessionId", "messageId", "callId", index, name, status, input, output, "startedAt", "settledAt")
    SELECT 'ses_' || n, 'msg_.' || n, 'c', 0, 'send', 'COMPLETED', '{}', '"done"', now(), now() FROM generate_series(1, ${count}, 10) n`)
  await run(`
    INSERT INTO "Interaction" (id, "sessionId", "messageId", "callId", kind, state, "toolName", "toolInput", prompt, "createdAt", "expiresAt",
                               "settledAt")
    SELECT 'req_' || n, 'ses_' || n, 'msg_.' || n, 'c', 'APPROVAL', 'APPROVED', 'send', '{}', 'May it?', now(), now(), now()
      FROM generate_series(1, ${count}, 10) n`)
}

/** Makes sessions spread over all of them owe work. */
export async function owe(db: Db, count: number): Promise<void> {
  const apart = Math.floor(count / owedInAll)
  let taken = 0
  /** The next `n` of the sessions that are to owe work, as numbers `n`, each one in ten that has a recovery and an interaction. */
  const next = (n: number) => {
    const first = taken
    taken += n
    return `(SELECT (k * ${apart} / 10) * 10 + 1 AS n FROM generate_series(${first}, ${first + n - 1}) k) picked`
  }
  const run = (sql: string) => db.$executeRawUnsafe(sql)
  const claim = (owner: string, expires: string, n: number) =>
    run(`INSERT INTO "Claim" ("sessionId", "executionId", owner, phase, "startedAt", "expiresAt")
         SELECT 'ses_' || n, 'exe_.' || n, '${owner}', 'READY', now(), now() + interval '${expires}' FROM ${next(n)}`)
  await claim('own_.gone', '-1 minute', owed.expired)
  await claim(deadOwner, '1 hour', owed.dead)
  await run(`INSERT INTO "Input" (id, "sessionId", kind, text, "requestedDelivery", delivery, state, "wakePending", "executionRequested",
                                  "admittedSeq", "createdAt")
             SELECT 'msg_armed' || n, 'ses_' || n, 'PROMPT', 'go on', 'STEER', 'STEER', 'PENDING', true, true, 6, now() FROM ${next(owed.armed)}`)
  await run(`UPDATE "Session" SET "stepOwed" = true FROM ${next(owed.stepOwed)} WHERE id = 'ses_' || picked.n`)
  await run(`WITH input AS (
               INSERT INTO "Input" (id, "sessionId", kind, text, "requestedDelivery", delivery, state, "wakePending", "executionRequested",
                                    "admittedSeq", "createdAt")
               SELECT 'msg_.continue.r' || n, 'ses_' || n, 'CONTINUATION', 'continue', 'QUEUE', 'QUEUE', 'PENDING', true, true, 6, now()
                 FROM ${next(owed.recovery)} RETURNING id, "sessionId")
             INSERT INTO "Recovery" (id, "sessionId", "executionId", phase, "continuationMessageId", "wakePending", "createdAt")
             SELECT replace(id, 'msg_.continue', 'rec_'), "sessionId", replace(id, 'msg_.continue', 'exe_'), 'READY', id, true, now() FROM input`)
  await run(`UPDATE "Interaction" SET "wakePending" = true FROM ${next(owed.decided)} WHERE id = 'req_' || picked.n`)
}
