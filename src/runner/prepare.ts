// Everything that a provider request needs, gathered before the step is started (design section 5): promoted inputs, history, model, tools.
// The caller appends with the seq that this was read at, so what has changed meanwhile makes it prepare again.

import type { LanguageModelV4Prompt } from '@ai-sdk/provider'
import type { Release } from '../byte-budget.ts'
import type { Attachment, JsonValue, StepError } from '../events.ts'
import { readActivity } from './activity.ts'
import type { Core } from './core.ts'
import type { PendingInput, Work } from './eligible.ts'
import { compactAbove, estimateTokens, floorTokens } from './estimate.ts'
import { lowerHistory, type Promoted, readHistory } from './history.ts'
import type { AttemptTool } from './models/attempt.ts'
import type { ResolvedModel } from './models/registry.ts'

export interface Prepared {
  model: ResolvedModel
  instructions: string | null
  prompt: LanguageModelV4Prompt
  tools: AttemptTool[]
  /** The last step that the allowance gives: no tools may be called. */
  isLastStep: boolean
  /** The request is estimated to come too close to the model's context: compact before it. */
  isTooLong: boolean
  /** How often history was compacted since a step ended clean. */
  compactions: number
  /** The activity's latest calls, for the loop guard. */
  calls: { name: string; input: JsonValue }[]
}

/**
 * What this boundary promotes, in order, with its content: the inputs as far as they fit, at least one prompt. The rest stays pending and
 * armed and is first in line at the next boundary. Continuations are small and always go along.
 */
export async function readPromoted(
  core: Core,
  sessionId: string,
  inputs: readonly PendingInput[],
): Promise<Promoted[]> {
  if (inputs.length === 0) return []
  const prompts = inputs.filter(({ kind }) => kind === 'PROMPT').map(({ id }) => id)
  const left = new Set(prompts.slice(await fitting(core, sessionId, prompts)))
  const promoted = inputs.filter(({ id }) => !left.has(id))
  const rows = await core.db.input.findMany({ where: { sessionId, id: { in: promoted.map(({ id }) => id) } } })
  const byId = new Map(rows.map((row) => [row.id, row]))
  return promoted.map(({ id, kind, recoveryPhase }) => {
    const row = byId.get(id)
    if (row === undefined) throw new Error(`input ${id} is gone`)
    return {
      id,
      kind: kind as Promoted['kind'],
      text: row.text,
      attachments: row.attachments as unknown as Attachment[],
      hidden: kind === 'CONTINUATION' && recoveryPhase !== 'UNKNOWN',
    }
  })
}

/** How many of these prompts, from the first on, one boundary may promote. Looks at no more of them than it has to. */
async function fitting(core: Core, sessionId: string, ids: string[]): Promise<number> {
  if (ids.length < 2) return ids.length
  const { promotedBytesMax: bytesMax } = core
  const rows = await core.db.$queryRaw<{ n: number }[]>`
    WITH RECURSIVE walk AS (
      SELECT 0 AS n, 0::bigint AS bytes
      UNION ALL
      SELECT w.n + 1, w.bytes + octet_length(i.text) + octet_length(i.attachments::text)
        FROM walk w JOIN "Input" i ON i.id = (${ids}::text[])[w.n + 1] AND i."sessionId" = ${sessionId}
       WHERE w.bytes <= ${bytesMax})
    SELECT max(n) AS n FROM walk WHERE bytes <= ${bytesMax}`
  return Math.max(1, rows[0]!.n)
}

type Preparation = { ok: true; prepared: Prepared } | { ok: false; error: StepError }

/**
 * Prepares one request. A failure for good comes back as a StepError (unknown model, allowance used up); anything thrown is a failure
 * for now. `before` is what the same step asked with earlier: it keeps its instructions.
 */
export async function prepare(
  core: Core,
  sessionId: string,
  work: Work,
  promoted: readonly Promoted[],
  before?: Prepared,
): Promise<Preparation> {
  let release: Release = () => {}
  // Counted while it is read and lowered. The runner waits for nobody here: how many sessions run at once is bounded by itself.
  const room = async (bytes: number) => {
    release = core.bytes.add(bytes, 'runner')
  }
  try {
    return await prepareIn(room, core, sessionId, work, promoted, before)
  } finally {
    release()
  }
}

async function prepareIn(
  room: (bytes: number) => Promise<void>,
  core: Core,
  sessionId: string,
  work: Work,
  promoted: readonly Promoted[],
  before?: Prepared,
): Promise<Preparation> {
  const model = core.models.resolve(work.model)
  if (model === undefined) {
    const message = `the model "${work.model}" is not configured here: set its provider up or choose another with updateSession`
    return { ok: false, error: { code: 'UNKNOWN_MODEL', message } }
  }
  const rows = await readHistory(core.db, sessionId, {
    room,
  })
  const history = before === undefined ? rows : { ...rows, instructions: before.instructions }
  const startsActivity = promoted.some(({ kind }) => kind === 'PROMPT')
  const { steps: used, calls } = startsActivity ? { steps: 0, calls: [] } : await readActivity(core.db, sessionId)
  const { stepLimit } = core.config
  if (used >= stepLimit)
    return { ok: false, error: { code: 'STEP_LIMIT', message: `the activity has used its ${stepLimit} steps` } }
  const tools = [...core.tools.values()].map(({ name, description, jsonSchema }) => ({
    name,
    description,
    inputSchema: jsonSchema,
  }))
  const { contextTokens } = model
  const floor = floorTokens(history, tools)
  if (contextTokens !== null && floor > contextTokens) {
    const message = `instructions and tools alone take about ${floor} tokens, the model's context has ${contextTokens}`
    return { ok: false, error: { code: 'CONTEXT_OVERFLOW', message } }
  }
  return {
    ok: true,
    prepared: {
      model,
      instructions: history.instructions,
      isTooLong: contextTokens !== null && estimateTokens(history, promoted, tools) > contextTokens * compactAbove,
      compactions: history.compactions,
      prompt: lowerHistory(history, promoted, model.id),
      tools,
      isLastStep: used + 1 >= stepLimit,
      calls,
    },
  }
}
