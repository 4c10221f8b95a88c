import type { EventPayloads } from '../events.ts'
import type { Message } from '../generated/prisma/client.ts'
import { batched } from './batched.ts'
import { builder } from './builder.ts'
import { StepError } from './values.ts'

type Notice = EventPayloads['step.retry_scheduled']
type Key = Pick<Message, 'id' | 'sessionId' | 'seq'>

export const RetryNotice = builder.objectRef<Notice>('RetryNotice').implement({
  description: 'A request that failed before it gave any output, and is made again.',
  fields: (t) => ({
    attempt: t.exposeInt('attempt', { description: 'The attempt that comes next; the first one was 1.' }),
    retryAt: t.field({
      type: 'DateTime',
      nullable: true,
      description: 'When.',
      resolve: ({ retryAt }) => (retryAt === null ? null : new Date(retryAt)),
    }),
    error: t.expose('error', { type: StepError, description: 'Why the last one failed.' }),
  }),
})

/**
 * The notice under which each of these running steps stands, if any: the last of its log, unless output came after it. A reload shows
 * with it what a client that followed the events shows.
 */
export const retryOf = batched<Key, Notice | null>(async ({ db }, keys) => {
  const rows = await db.$queryRaw<{ id: string; type: string; payload: Notice }[]>`
    SELECT k.m AS id, e.type, e.payload
    FROM unnest(${keys.map((key) => key.sessionId)}::text[], ${keys.map((key) => key.id)}::text[], ${keys.map((key) => key.seq)}::int[]) k(s, m, q)
    CROSS JOIN LATERAL (
      SELECT type, payload FROM "Event"
      WHERE "sessionId" = k.s AND seq > k.q AND payload->>'messageId' = k.m
        AND type IN ('step.retry_scheduled', 'text.started', 'reasoning.started', 'tool.input_started')
      ORDER BY seq DESC LIMIT 1) e`
  const standing = new Map(
    rows.flatMap(({ id, type, payload }) => (type === 'step.retry_scheduled' ? [[id, payload]] : [])),
  )
  return keys.map(({ id }) => standing.get(id) ?? null)
})
