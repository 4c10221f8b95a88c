import { z } from 'zod'
import { defineTool, prepareTool, type Tool, type ToolContext, type ToolDefinition } from '../../config.ts'
import { type Clock, realClock } from '../clock.ts'

const LONGEST_WAIT_MS = 86_400_000
// The runner aborts at the deadline and says so in its own words; this bound is for a caller that does not.
const BEHIND_DEADLINE_MS = 1000
const REPORTS = 10

const timeZone = z.string().refine(isTimeZone, 'must be an IANA time zone such as Europe/Berlin')

const currentTime = (clock: Clock) =>
  defineTool({
    name: 'current_time',
    description: 'Tells the current date and time, in UTC and in a time zone if one is given.',
    inputSchema: z.object({ timeZone: timeZone.optional() }),
    execute({ timeZone }) {
      const now = new Date(clock.now())
      if (timeZone === undefined) return { utc: now.toISOString() }
      const local = new Intl.DateTimeFormat('en-GB', { dateStyle: 'full', timeStyle: 'long', timeZone }).format(now)
      return { utc: now.toISOString(), timeZone, local }
    },
  })

const wait = (clock: Clock) =>
  defineTool({
    name: 'wait',
    description: 'Waits for a number of milliseconds.',
    inputSchema: z.object({ ms: z.int().min(0).max(LONGEST_WAIT_MS) }),
    execute: ({ ms }, context) => waitFor(ms, context, clock),
  })

/** Never runs here: a call opens a question to a person, and the answer is the output (design section 7). */
const askUser = defineTool({
  name: 'ask_user',
  description:
    'Asks the user a question and waits for the answer, however long that takes. Use it when you cannot go on without a decision or ' +
    'a fact that only the user has. `options` are answers to choose from; the user may also answer in other words.',
  inputSchema: z.object({
    question: z.string().min(1).max(2000),
    options: z.array(z.string().min(1).max(200)).max(10).optional(),
  }),
  execute() {
    throw new Error('ask_user is answered by a person and cannot be run')
  },
})

/** Waits, and reports progress ten times on the way. Ends early, with the signal's reason, when that is aborted. */
async function waitFor(ms: number, { signal, deadline, progress }: ToolContext, clock: Clock) {
  const start = clock.now()
  const last = deadline.getTime() + BEHIND_DEADLINE_MS
  for (let report = 1; report <= REPORTS; report++) {
    const until = start + Math.round((ms * report) / REPORTS)
    await pause(Math.min(until, last) - clock.now(), signal, clock)
    if (until > last) throw new Error(`the deadline of this call passed after ${last - start} of ${ms} ms`)
    progress({ waitedMs: until - start, ofMs: ms })
  }
  return { waitedMs: ms }
}

function pause(ms: number, signal: AbortSignal, clock: Clock): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason)
    const abort = () => {
      cancel()
      reject(signal.reason)
    }
    const cancel = clock.setTimeout(() => {
      signal.removeEventListener('abort', abort)
      resolve()
    }, ms)
    signal.addEventListener('abort', abort, { once: true })
  })
}

function isTimeZone(name: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone: name })
    return true
  } catch {
    return false
  }
}

function prepared(definition: ToolDefinition): Tool {
  const checked = prepareTool(definition)
  if ('issues' in checked) throw new Error(`${definition.name}: ${checked.issues[0]?.message}`)
  return checked.tool
}

/** The tools that every session has, on the given clock. */
export function createBuiltinTools(clock: Clock): Tool[] {
  return [
    prepared(currentTime(clock)),
    prepared(wait(clock)),
    Object.freeze({ ...prepared(askUser), asks: 'question' as const }),
  ]
}

/** The tools that every session has: `current_time`, `wait` and `ask_user`. */
export const builtinTools: Tool[] = createBuiltinTools(realClock)
