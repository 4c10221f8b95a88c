// Runs one local tool call: deadline, signal, progress, bounded output. Whatever the tool does, this resolves, at the latest at the
// deadline; what the tool does after that is dropped (design section 6).

import type { Tool } from '../../config.ts'
import { asError } from '../../errors.ts'
import type { JsonValue, StepError } from '../../events.ts'
import type { Clock } from '../clock.ts'
import { safeText } from '../models/safe-text.ts'
import { boundOutput, boundText } from './output.ts'

export type ToolOutcome =
  | { kind: 'succeeded'; output: JsonValue }
  | { kind: 'failed'; error: StepError; thrown?: Error }

export interface ToolRun {
  tool: Tool
  /** Already checked against the tool's schema; what the schema made of it. */
  input: unknown
  sessionId: string
  messageId: string
  callId: string
  timeoutMs: number
  /** Aborted when the step must stop. */
  signal: AbortSignal
  clock: Clock
  progress: (update: JsonValue) => void
}

const errorTextBytesMax = 4096

/** Resolves with the outcome; never rejects. An aborted signal ends the wait only when the tool itself ends: the caller has a grace. */
export async function runTool(run: ToolRun): Promise<ToolOutcome> {
  const { tool, clock, timeoutMs } = run
  const deadline = new AbortController()
  const signal = AbortSignal.any([run.signal, deadline.signal])
  let settled = false
  const failed = (code: StepError['code'], message: string) => ({
    kind: 'failed' as const,
    error: { code, message: boundText(safeText(message), 50, errorTextBytesMax) },
  })
  const timedOut = new Promise<ToolOutcome>((resolve) => {
    const cancel = clock.setTimeout(() => {
      const message = `the tool did not finish within its deadline of ${timeoutMs} ms`
      deadline.abort(new Error(message))
      resolve(failed('TOOL_TIMEOUT', message))
    }, timeoutMs)
    deadline.signal.addEventListener('abort', cancel)
    run.signal.addEventListener('abort', cancel, { signal: deadline.signal })
  })
  const ran = (async (): Promise<ToolOutcome> => {
    try {
      const returned = await tool.execute(run.input, {
        sessionId: run.sessionId,
        messageId: run.messageId,
        callId: run.callId,
        signal,
        deadline: new Date(clock.now() + timeoutMs),
        progress: (update) => {
          if (!settled) run.progress(update as JsonValue)
        },
      })
      return { kind: 'succeeded', output: boundOutput(returned) }
    } catch (thrown) {
      const message = asError(thrown).message || 'the tool failed without a message'
      return { ...failed('TOOL_ERROR', message), thrown: asError(thrown) }
    }
  })()
  const outcome = await Promise.race([ran, timedOut])
  settled = true
  // Clears the timer; a tool that still runs is told that nobody waits any more.
  deadline.abort(new Error('the call is settled'))
  return outcome
}
