// The spans of the runner (docs/operations.md, Traces): a drain is a root, its steps and compactions are within it, provider requests and
// tool calls within those. Each ends whatever happens; none decides anything.

import { type Attributes, type Context, type Link, root, type Span, startSpan } from '../tracing.ts'
import { type Hold, HoldEnded } from './hold.ts'
import { ProviderFailure } from './models/failure.ts'
import type { ProviderEvent } from './models/provider-event.ts'

const idsOf = ({ sessionId, executionId }: Hold, messageId?: string): Attributes => ({
  'holdfast.session.id': sessionId,
  'holdfast.execution.id': executionId,
  ...(messageId === undefined ? {} : { 'holdfast.message.id': messageId }),
})

/** An end that came from outside is no failure: an interrupt, a lost claim, a process that leaves. */
function tellEnd(span: Span, hold: Hold): void {
  if (hold.ended !== null) span.set({ 'holdfast.ended': hold.ended })
}

/** Runs the work as a span under this hold. */
async function inHoldSpan<R>(
  name: string,
  hold: Hold,
  attributes: Attributes,
  work: (span: Span) => Promise<R>,
): Promise<R> {
  const span = startSpan(name, { attributes })
  try {
    return await span.within(() => work(span))
  } catch (thrown) {
    if (!(thrown instanceof HoldEnded)) span.failWith(thrown)
    throw thrown
  } finally {
    tellEnd(span, hold)
    span.end()
  }
}

/** A busy period. Whoever armed it has its answer long before this ends, so it is a link and no parent. */
export function startDrainSpan(hold: Hold, armedBy: readonly Link[]): Span & { endAs(outcome: string): void } {
  const span = startSpan('drain', { parent: root, links: armedBy, attributes: idsOf(hold) })
  return {
    ...span,
    endAs(outcome) {
      span.set({ 'holdfast.outcome': outcome })
      tellEnd(span, hold)
      span.end()
    },
  }
}

type StepEnd = { kind: string; failed?: string | null }

/** One attempt of a step with its tools, or what was left of one that waited for people (`attempt` null). */
export function inStepSpan<R extends StepEnd>(
  hold: Hold,
  messageId: string,
  attempt: number | null,
  work: () => Promise<R>,
): Promise<R> {
  const number: Attributes = attempt === null ? { 'holdfast.step.resumed': true } : { 'holdfast.attempt': attempt }
  return inHoldSpan('step', hold, { ...idsOf(hold, messageId), ...number }, async (span) => {
    const result = await work()
    span.set({ 'holdfast.outcome': result.kind })
    if (result.failed) span.fail(result.failed)
    return result
  })
}

/** A provider request: the stream as it is, and its span, which ends where the stream does or where its reader leaves it. */
export async function* tracedRequest(
  hold: Hold,
  messageId: string,
  modelId: string,
  stream: AsyncIterable<ProviderEvent>,
): AsyncGenerator<ProviderEvent> {
  const slash = modelId.indexOf('/')
  const model = modelId.slice(slash + 1)
  const span = startSpan(`chat ${model}`, {
    kind: 'client',
    attributes: {
      ...idsOf(hold, messageId),
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': modelId.slice(0, slash),
      'gen_ai.request.model': model,
      'gen_ai.conversation.id': hold.sessionId,
    },
  })
  try {
    for await (const event of stream) {
      if (event.type === 'finish') {
        const { inputTokens, outputTokens, cachedInputTokens } = event.usage
        span.set({
          'gen_ai.response.finish_reasons': [event.reason],
          'gen_ai.usage.input_tokens': inputTokens,
          'gen_ai.usage.output_tokens': outputTokens,
          'gen_ai.usage.cache_read.input_tokens': cachedInputTokens,
        })
      }
      yield event
    }
  } catch (thrown) {
    if (thrown instanceof ProviderFailure) span.fail(thrown.code)
    else if (!hold.signal.aborted) span.failWith(thrown)
    throw thrown
  } finally {
    tellEnd(span, hold)
    span.end()
  }
}

/** A tool that runs. `within`: the step, as a decision may dispatch it from anywhere. */
export function startToolSpan(
  hold: Hold,
  { messageId, callId, name, within }: { messageId: string; callId: string; name: string; within: Context },
): Span & { endAs(code: string | null): void } {
  const span = startSpan(`execute_tool ${name}`, {
    parent: within,
    attributes: {
      ...idsOf(hold, messageId),
      'gen_ai.operation.name': 'execute_tool',
      'gen_ai.tool.name': name,
      'gen_ai.tool.call.id': callId,
    },
  })
  return {
    ...span,
    endAs(code) {
      // What a tool does when it is told to stop is no failure of its own.
      if (code !== null && !hold.signal.aborted) span.fail(code)
      tellEnd(span, hold)
      span.end()
    },
  }
}

/** A compaction; its request is within it. */
export function inCompactionSpan<R extends string>(
  hold: Hold,
  messageId: string,
  automatic: boolean,
  work: (span: Span) => Promise<R>,
): Promise<R> {
  const attributes = { ...idsOf(hold, messageId), 'holdfast.compaction.automatic': automatic }
  return inHoldSpan('compaction', hold, attributes, async (span) => {
    const outcome = await work(span)
    span.set({ 'holdfast.outcome': outcome })
    return outcome
  })
}
