import { endedMessage } from '../access/caller.ts'
import type { Moved } from '../activity-hub.ts'
import { activityStream } from '../activity-stream.ts'
import { sessionStream } from '../session-stream.ts'
import { startAnswer } from './batched.ts'
import { builder } from './builder.ts'
import { selectOf } from './columns.ts'
import type { Context } from './context.ts'
import { SessionEvent } from './event/base.ts'
import { refusal } from './refusal.ts'
import { Session } from './session.ts'

builder.subscriptionFields((t) => ({
  sessionEvents: t.field({
    type: SessionEvent,
    description:
      'Every event behind `after`, then one LogSynced at the watermark, then what happens from then on: never a gap, never a repeat. Open text is caught up with one delta from offset 0.',
    args: {
      sessionId: t.arg.id({ required: true, description: 'The session. Unknown: error NOT_FOUND.' }),
      after: t.arg.int({
        defaultValue: 0,
        description:
          'The last seq that the client has. Negative: error BAD_USER_INPUT; beyond the watermark: CURSOR_AHEAD. Over SSE a Last-Event-ID header stands for it.',
      }),
    },
    subscribe: async (_root, args, context) => {
      const after = cursorOf(args.after, context)
      await checkCursor(args.sessionId, after, context)
      const { caller, gone, taking, tenant } = context
      return sessionStream(context.core, {
        sessionId: args.sessionId,
        after,
        signal: gone,
        whenUnauthenticated: caller.whenEnded,
        holder: tenant,
        taken: () => taking.taken,
      })
    },
    resolve: (item, _args, context) => {
      context.position.seq = item.seq
      return item
    },
  }),
  sessionActivity: t.prismaField({
    type: Session,
    description: 'One session whenever its status, title or watermark changes. Live only; bursts may come as one item.',
    subscribe: (_root, _args, { core, tenant, caller, gone }) =>
      activityStream(core, {
        tenant,
        signal: gone,
        whenUnauthenticated: (then) => caller.whenEnded(() => then(refusal('UNAUTHENTICATED', endedMessage))),
      }),
    resolve: async (_query, moved, _args, context) => {
      startAnswer(context)
      await context.itemPlace?.()
      const { row, context: shared } = togetherOf(moved, context)
      context.shared = shared
      return row
    },
  }),
}))

type Row = Awaited<ReturnType<Context['db']['session']['findUniqueOrThrow']>>

/** What streams that are told of the same change read together. */
interface Together {
  /** The session as it was after this change or later; what comes after is another change. */
  row: Promise<Row>
  /** Ends with no client. */
  context: Context
}
const together = new WeakMap<Moved, Together>()
const never = new AbortController().signal

function togetherOf(moved: Moved, context: Context): Together {
  let one = together.get(moved)
  if (one === undefined) {
    const row = context.db.session.findUniqueOrThrow({ select: selectOf('Session'), where: { id: moved.sessionId } })
    one = { row, context: { ...context, gone: never } }
    together.set(moved, one)
    // Whoever comes next reads it again.
    row.catch(() => together.delete(moved))
  }
  return one
}

function cursorOf(argument: number | null | undefined, { lastEventId }: Context): number {
  if (lastEventId === null) return argument ?? 0
  if (!/^\d{1,10}$/.test(lastEventId))
    throw refusal('BAD_USER_INPUT', 'Last-Event-ID must be the id of an event of this stream')
  return Number(lastEventId)
}

/** Throws before the stream starts: an answer that a client can tell from an event. */
async function checkCursor(sessionId: string, after: number, { core, tenant }: Context): Promise<void> {
  if (after < 0) throw refusal('BAD_USER_INPUT', `after must be 0 or more, not ${after}`)
  const session = sessionId.includes('\0')
    ? null
    : await core.db.session.findFirst({ where: { id: sessionId, tenant }, select: { seq: true } })
  if (!session) throw refusal('NOT_FOUND', `there is no session ${JSON.stringify(sessionId)}`)
  if (after > session.seq)
    throw refusal(
      'CURSOR_AHEAD',
      `after is ${after}, but the log ends at ${session.seq}: this cursor is of another database`,
    )
}
