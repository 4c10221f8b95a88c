import type { TypedDocumentNode } from '@graphql-typed-document-node/core'
import { type Clock, delayMs, realClock } from './backoff.ts'
import { type Problem, ProblemError, problemOfAnswer, problemOfThrown } from './problem.ts'
import type { Transport } from './transport.ts'

export interface UntilAnsweredOptions {
  signal?: AbortSignal
  /** How often to ask again, 10 unless given: about three minutes. */
  retries?: number
  clock?: Clock
}

/**
 * Sends a mutation, the same byte for byte, until it is answered, and gives back its data: for a lost answer, a restart of the server,
 * UNAVAILABLE, an unexpected error. It has its effect once, as its ids are the caller's. A member of the result union is an answer, errors included.
 * Throws ProblemError for what asking again does not mend or when the retries are used up, and the signal's reason.
 */
export async function untilAnswered<Result, Variables>(
  transport: Pick<Transport, 'execute'>,
  document: TypedDocumentNode<Result, Variables>,
  variables: Variables,
  options: UntilAnsweredOptions = {},
): Promise<Result> {
  const { signal, retries = 10, clock = realClock } = options
  for (let failures = 1; ; failures++) {
    signal?.throwIfAborted()
    let problem: Problem
    try {
      const answer = await transport.execute(document, variables, signal ? { signal } : {})
      const found = problemOfAnswer(answer)
      if (found === null && answer.data != null) return answer.data
      problem = found ?? { code: 'NETWORK', message: 'an answer without data', again: true }
    } catch (thrown) {
      signal?.throwIfAborted()
      problem = problemOfThrown(thrown)
    }
    if (!problem.again || failures > retries) throw new ProblemError(problem)
    await pause(delayMs(failures, clock), clock, signal)
  }
}

function pause(ms: number, clock: Clock, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    // Aborted while the answer was on its way: nobody will tell again.
    if (signal?.aborted) return reject(signal.reason)
    const abort = () => {
      cancel()
      reject(signal!.reason)
    }
    const cancel = clock.after(ms, () => {
      signal?.removeEventListener('abort', abort)
      resolve()
    })
    signal?.addEventListener('abort', abort, { once: true })
  })
}
