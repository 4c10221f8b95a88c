// The activity so far (design section 1): the steps since the last user's message. Read from all rows, as a compaction takes earlier steps
// out of the history that the model sees, and not out of what they have used up (PROMO-24).

import type { Tx } from '../db.ts'
import type { JsonValue } from '../events.ts'
import { failsAt } from './tools/loop-guard.ts'

export interface Activity {
  /**
   * Steps that it has used up. A step that failed and was tried again under a new message uses none (RETRY: STEP-15); one whose outcome is
   * unknown does. The one that still runs is the one that is asked for.
   */
  steps: number
  /** Its latest calls, oldest first: as many as the loop guard can ask for. */
  calls: { name: string; input: JsonValue }[]
}

/** Reads backward from the newest message to the user's, by the index on seq. */
export async function readActivity(db: Tx, sessionId: string): Promise<Activity> {
  const rows = await db.$queryRaw<Activity[]>`
    WITH step AS MATERIALIZED (
      SELECT m.id, m.seq, m.status, m."errorCode" FROM "Message" m
       WHERE m."sessionId" = ${sessionId} AND m.kind = 'ASSISTANT' AND m.seq > COALESCE((
         SELECT u.seq FROM "Message" u WHERE u."sessionId" = ${sessionId} AND u.kind = 'USER' ORDER BY u.seq DESC LIMIT 1), 0))
    SELECT (SELECT count(*)::int FROM step WHERE status <> 'RUNNING' AND (status <> 'FAILED' OR "errorCode" = 'OUTCOME_UNKNOWN')) AS steps,
           COALESCE((SELECT jsonb_agg(jsonb_build_object('name', c.name, 'input', c.input) ORDER BY c.seq, c.index)
             FROM (SELECT t.name, t.input, t.index, s.seq FROM step s
                     JOIN "ToolCall" t ON t."sessionId" = ${sessionId} AND t."messageId" = s.id
                    ORDER BY s.seq DESC, t.index DESC LIMIT ${failsAt - 1}::int) c), '[]') AS calls`
  return rows[0]!
}
