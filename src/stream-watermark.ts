// Where a stream passes from replay to live: the log's last seq, and which parts and tool calls are open at exactly that seq. One
// statement, so one snapshot: a part whose end stands at or below the watermark is never taken for open (STREAM-10, STREAM-27).

import type { Tx } from './db.ts'
import type { PartAddress } from './stream-text.ts'

export interface Watermark {
  seq: number
  parts: PartAddress[]
  running: { messageId: string; callId: string }[]
}

/** Null: there is no such session. */
export async function readWatermark(db: Tx, sessionId: string): Promise<Watermark | null> {
  const rows = await db.$queryRaw<Watermark[]>`
    SELECT s.seq,
      COALESCE((SELECT jsonb_agg(o.part) FROM (
        SELECT jsonb_build_object('messageId', p."messageId", 'index', p.index, 'kind', p.kind, 'callId', NULL) AS part
          FROM "Part" p WHERE p."sessionId" = s.id AND NOT p.complete
        UNION ALL
        SELECT jsonb_build_object('messageId', t."messageId", 'index', t.index, 'kind', 'TOOL_INPUT', 'callId', t."callId")
          FROM "ToolCall" t WHERE t."sessionId" = s.id AND t."settledAt" IS NULL AND t.status = 'STREAMING') o), '[]') AS parts,
      COALESCE((SELECT jsonb_agg(jsonb_build_object('messageId', t."messageId", 'callId', t."callId"))
          FROM "ToolCall" t WHERE t."sessionId" = s.id AND t."settledAt" IS NULL AND t."startedAt" IS NOT NULL), '[]') AS running
    FROM "Session" s WHERE s.id = ${sessionId}`
  return rows[0] ?? null
}
