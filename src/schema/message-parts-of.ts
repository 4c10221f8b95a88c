import { joinedChunks } from '../chunk-text.ts'
import type { Chunk, Message, Part, ToolCall } from '../generated/prisma/client.ts'
import { batched, grouped } from './batched.ts'
import { columnsOf } from './columns.ts'

type Key = Pick<Message, 'id' | 'sessionId'>

const ofMessage = (row: { messageId: string }) => row.messageId
const idOf = (key: Key) => key.id

/** The parts of assistant messages, by index: two statements for any number of messages, a third one while text is open. */
export const partsOf = batched<Key, (Part | ToolCall)[]>(async ({ db }, keys) => {
  const sessions = keys.map((key) => key.sessionId)
  const ids = keys.map(idOf)
  const parts = await db.$queryRaw<Part[]>`
    SELECT ${columnsOf('Part', 'p')} FROM unnest(${sessions}::text[], ${ids}::text[]) k(s, m)
    JOIN "Part" p ON p."sessionId" = k.s AND p."messageId" = k.m`
  const calls = await db.$queryRaw<ToolCall[]>`
    SELECT ${columnsOf('ToolCall', 't')} FROM unnest(${sessions}::text[], ${ids}::text[]) k(s, m)
    JOIN "ToolCall" t ON t."sessionId" = k.s AND t."messageId" = k.m`
  const open = parts.filter((part) => !part.complete)
  if (open.length > 0) {
    // What has been streamed of an open part stands in its chunks; the part itself gets it at its end.
    const chunks = await db.$queryRaw<Chunk[]>`
      SELECT c.* FROM unnest(${open.map((part) => part.sessionId)}::text[], ${open.map(ofMessage)}::text[], ${open.map((part) => part.index)}::int[]) k(s, m, i)
      JOIN "Chunk" c ON c."sessionId" = k.s AND c."messageId" = k.m AND c.index = k.i ORDER BY c."offset"`
    for (const part of open)
      part.text = joinedChunks(
        chunks.filter((chunk) => chunk.messageId === part.messageId && chunk.index === part.index),
      )
  }
  return grouped<Key, Part | ToolCall>(keys, [...parts, ...calls], idOf, ofMessage).map((rows) =>
    rows.sort((a, b) => a.index - b.index),
  )
})
