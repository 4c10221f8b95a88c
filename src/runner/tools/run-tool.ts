// Runs one local tool call: deadline, signal, progress, bounded output. Whatever the tool does, throws or gives, this resolves, at the latest
// at the deadline; what the tool does after that is dropped, and said (design section 6).

import type { Tool } from '../../config.ts'
import { asError } from '../../errors.ts'
import type { JsonValue, StepError } from '../../events.ts'
import { toolWords } from '../../tool-words.ts'
import type { Clock } from '../clock.ts'
import { safeText } from '../models/safe-text.ts'
import { plainJson } from '../plain-json.ts'
import { boundOutput, boundText, outputBytesMax } from './output.ts'

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
  /** Told of progress that nobody can be shown. */
  unshown: (reason: string) => void
  /** Told how a tool ended that did so after its deadline: nobody waits for it any more. */
  late: (outcome: ToolOutcome) => void
}

const errorTextBytesMax = 4096

/** The text of an error as it is kept: storable and bounded, whatever foreign code made it of. */
export const errorText = (message: string): string => boundText(safeText(message), 50, errorTextBytesMax)

/**
 * A copy of what the tool reports, as it is at this moment: the tool may go on changing its own. It reaches every stream that is open here, so
 * what cannot be written or is too much to send again and again is no progress, and costs nobody the stream.
 */
function shownProgress(update: unknown): { progress: JsonValue } | { unshown: string } {
  try {
    const progress = plainJson(update)
    if (progress === undefined) return { unshown: 'it has no JSON form' }
    const bytes = Buffer.byteLength(JSON.stringify(progress), 'utf8')
    return bytes > outputBytesMax
      ? { unshown: `it has ${bytes} bytes, at most ${outputBytesMax} are shown` }
      : { progress }
  } catch (thrown) {
    return { unshown: asError(thrown).message }
  }
}

/** Resolves with the outcome; never rejects. An aborted signal ends the wait only when the tool itself ends: the caller has a grace. */
export async function runTool(run: ToolRun): Promise<ToolOutcome> {
  const { tool, clock, timeoutMs } = run
  const deadline = new AbortController()
  const signal = AbortSignal.any([run.signal, deadline.signal])
  let settled = false
  const failed = (code: StepError['code'], message: string) => ({
    kind: 'failed' as const,
    error: { code, message: errorText(message) },
  })
  const threw = (thrown: unknown, prefix = ''): ToolOutcome => {
    const words = toolWords(thrown) || 'the tool failed without a message'
    return { ...failed('TOOL_ERROR', prefix + words), thrown: asError(thrown) }
  }
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
    let returned: unknown
    try {
      returned = await tool.execute(run.input, {
        sessionId: run.sessionId,
        messageId: run.messageId,
        callId: run.callId,
        signal,
        deadline: new Date(clock.now() + timeoutMs),
        progress: (update) => {
          if (settled) return
          const shown = shownProgress(update)
          if ('unshown' in shown) run.unshown(shown.unshown)
          else run.progress(shown.progress)
        },
      })
    } catch (thrown) {
      return threw(thrown)
    }
    try {
      return { kind: 'succeeded', output: boundOutput(returned) }
    } catch (thrown) {
      // The model must not take it for a call that did nothing.
      return threw(thrown, 'the tool ran, but its output cannot be kept: ')
    }
  })()
  const outcome = await Promise.race([ran, timedOut])
  settled = true
  if (outcome.kind === 'failed' && outcome.error.code === 'TOOL_TIMEOUT') void ran.then(run.late)
  // Clears the timer; a tool that still runs is told that nobody waits any more.
  deadline.abort(new Error('the call is settled'))
  return outcome
}
