// One try of followSession: one snapshot read, or one stream from its start to its end. Neither rejects.

import type { Clock } from './backoff.ts'
import type { StreamItem } from './follow-state.ts'
import { SessionEventsDocument, SessionSnapshotDocument } from './generated/graphql.ts'
import { type Problem, problemOfAnswer, problemOfThrown } from './problem.ts'
import type { Snapshot } from './snapshot.ts'
import type { Transport } from './transport.ts'

/** How long an answer may take. The transport may have a shorter limit of its own. */
const answerMs = 60_000

export const lost = (message: string): Problem => ({ code: 'NETWORK', message, again: true })

/** Like the promise, but over when the time is or the signal aborts; what comes later is dropped. */
function within<T>(ms: number, clock: Clock, signal: AbortSignal, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    const cancel = clock.after(ms, () => reject(new Error(`no answer within ${ms} ms`)))
    signal.addEventListener('abort', abort, { once: true })
    promise.then(resolve, reject).finally(() => {
      cancel()
      signal.removeEventListener('abort', abort)
    })
  })
}

/** Reads the snapshot. Null: there is no such session. */
export async function readSnapshot(
  transport: Transport,
  sessionId: string,
  messages: number,
  signal: AbortSignal,
  clock: Clock,
): Promise<Snapshot | Problem | null> {
  try {
    const variables = { id: sessionId, last: messages, inputs: 'PENDING' as const }
    const asked = transport.execute(SessionSnapshotDocument, variables, { signal })
    const answer = await within(answerMs, clock, signal, asked)
    const problem = problemOfAnswer(answer)
    // Its messages are too large for one answer: fewer of them, the others by their pages.
    if (problem?.code === 'DOCUMENT_TOO_LARGE' && messages > 1)
      return readSnapshot(transport, sessionId, Math.floor(messages / 2), signal, clock)
    if (problem !== null) return problem
    return answer.data ? (answer.data.session ?? null) : lost('an answer without data')
  } catch (thrown) {
    return problemOfThrown(thrown)
  }
}

/**
 * Passes each item to `take` until the stream is over, and says why. `take` may end it itself with a problem. When the signal aborts,
 * the subscription is ended and nothing is taken any more.
 */
export function readStream(
  transport: Transport,
  sessionId: string,
  after: number,
  signal: AbortSignal,
  take: (item: StreamItem) => Problem | null,
): Promise<Problem> {
  return new Promise((resolve) => {
    let isOver = false
    let stop: (() => void) | null = null
    const over = (problem: Problem) => {
      if (isOver) return
      isOver = true
      signal.removeEventListener('abort', aborted)
      stop?.()
      resolve(problem)
    }
    const aborted = () => over(lost('closed'))
    if (signal.aborted) return aborted()
    signal.addEventListener('abort', aborted)
    try {
      stop = transport.subscribe(
        SessionEventsDocument,
        { sessionId, after },
        {
          next(answer) {
            if (isOver) return
            const problem = problemOfAnswer(answer) ?? (answer.data ? take(answer.data.sessionEvents) : null)
            if (problem !== null) over(problem)
          },
          error: (thrown) => over(problemOfThrown(thrown)),
          complete: () => over(lost('the stream ended')),
        },
      )
    } catch (thrown) {
      over(problemOfThrown(thrown))
    }
    // Over before the function to end it was there.
    if (isOver) stop?.()
  })
}
