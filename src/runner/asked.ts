// The interactions of an open step that are still to be carried out: open ones, and decided ones whose tool has not settled.

import type { Tx } from '../db.ts'
import type { InteractionState, JsonValue, StepError } from '../events.ts'
import { declinedError } from './settle-open.ts'

export interface Asked {
  id: string
  callId: string
  toolName: string
  toolInput: JsonValue
  state: InteractionState
  answer: JsonValue
  feedback: string | null
  editedInput: JsonValue
}

/** What people still owe or have decided for this step, and the watermark of that moment. */
export async function readAsked(
  db: Tx,
  sessionId: string,
  messageId: string,
): Promise<{ seq: number; asked: Asked[] }> {
  const rows = await db.$queryRaw<{ seq: number; asked: Asked[] }[]>`
    SELECT s.seq, COALESCE((
      SELECT jsonb_agg(jsonb_build_object('id', n.id, 'callId', n."callId", 'toolName', n."toolName", 'toolInput', n."toolInput", 'state', n.state,
                                          'answer', n.answer, 'feedback', n.feedback, 'editedInput', n."editedInput") ORDER BY n."createdAt", n.id)
        FROM "Interaction" n
       WHERE n."sessionId" = s.id AND n."messageId" = ${messageId} AND (n.state = 'OPEN' OR n."wakePending")), '[]') AS asked
      FROM "Session" s WHERE s.id = ${sessionId}`
  return rows[0]!
}

/** What the model is told of a call that a person did not let run. */
export function decidedError(asked: Pick<Asked, 'state' | 'feedback'>): StepError {
  if (asked.state === 'EXPIRED') return { code: 'EXPIRED', message: 'nobody decided in time, so it was not run' }
  return declinedError(asked)
}
