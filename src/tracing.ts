// Spans, through OpenTelemetry's API alone. Without an SDK behind it (traces.ts loads one when the settings ask for it) every call here is
// a few function calls that do nothing. Ids, codes, counts and names of ours go in; nothing that a person, a model, a tool or a provider
// has said (SEC-10).

import {
  type Span as ApiSpan,
  type Context,
  context,
  diag,
  type Link,
  propagation,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  type TextMapGetter,
  trace,
} from '@opentelemetry/api'
import { UnavailableError } from './errors.ts'

export type { Context, Link } from '@opentelemetry/api'

/** Everything that a span may say. A name that is not here does not compile; docs/operations.md lists the same ones. */
export type AttributeName =
  | 'graphql.operation.type'
  | 'graphql.operation.name'
  | 'gen_ai.operation.name'
  | 'gen_ai.provider.name'
  | 'gen_ai.request.model'
  | 'gen_ai.conversation.id'
  | 'gen_ai.response.finish_reasons'
  | 'gen_ai.usage.input_tokens'
  | 'gen_ai.usage.output_tokens'
  | 'gen_ai.usage.cache_read.input_tokens'
  | 'gen_ai.tool.name'
  | 'gen_ai.tool.call.id'
  | 'holdfast.request.id'
  | 'holdfast.session.id'
  | 'holdfast.execution.id'
  | 'holdfast.message.id'
  | 'holdfast.attempt'
  | 'holdfast.step.resumed'
  | 'holdfast.compaction.automatic'
  | 'holdfast.outcome'
  | 'holdfast.ended'
  | `holdfast.recovery.${'taken' | 'quarantined' | 'woken' | 'settled' | 'expired' | 'failed'}`

export type Attributes = { readonly [N in AttributeName]?: string | number | boolean | readonly string[] }

export interface SpanOptions {
  /** What it is a part of; `root` for nothing. Else the span that is active here. */
  parent?: Context
  /** What made it happen without being its parent. */
  links?: readonly Link[]
  kind?: 'internal' | 'server' | 'client'
  attributes?: Attributes
}

/** A span that has begun. Nothing here throws, and whatever comes after its end is dropped. */
export interface Span {
  set(attributes: Attributes): void
  /** Something went wrong: status ERROR, and `error.type` is this code of ours. */
  fail(code: string): void
  /** The same for a surprise, of which only the kind is told. */
  failWith(thrown: unknown): void
  /** Ends it; a second time does nothing. */
  end(): void
  /** It is not worth telling after all. */
  drop(): void
  /** Spans that begin in this work are parts of this one. */
  within<T>(work: () => T): T
}

/** The parent of what is part of nothing else. */
export const root: Context = ROOT_CONTEXT

/** Where in the tree this code runs: for work that is started elsewhere, such as by a bell, and belongs here. */
export const active = (): Context => context.active()

/** What links to the span that is active here; empty without one. */
export function here(): Link[] {
  const span = trace.getSpanContext(context.active())
  return span !== undefined && trace.isSpanContextValid(span) ? [{ context: idsOf(span) }] : []
}

/** Trace and span, and whether they are sampled: no `tracestate`, which is a header that anybody can fill. */
const idsOf = ({ traceId, spanId, traceFlags, isRemote }: Link['context']): Link['context'] => ({
  traceId,
  spanId,
  traceFlags,
  ...(isRemote === undefined ? {} : { isRemote }),
})

/** The caller's span, if its request names one in the way that OTEL_PROPAGATORS says. Of its headers nothing else is kept. */
export function callerOf(headers: Headers | undefined): Context {
  if (headers === undefined) return root
  const extracted = safely(() => trace.getSpanContext(propagation.extract(root, headers, fromHeaders)))
  return extracted === undefined ? root : trace.setSpanContext(root, idsOf(extracted))
}

const fromHeaders: TextMapGetter<Headers> = {
  keys: (headers) => [...headers.keys()],
  get: (headers, name) => headers.get(name) ?? undefined,
}

/** Those that have begun and not ended: the end of the process ends them. */
const open = new Set<Span>()

/** Ends what is still open, so that a process that leaves tells of it. */
export function endOpenSpans(): void {
  for (const span of open) {
    span.set({ 'holdfast.ended': 'shutdown' })
    span.end()
  }
}

const kinds = { internal: SpanKind.INTERNAL, server: SpanKind.SERVER, client: SpanKind.CLIENT }

export function startSpan(name: string, { parent = active(), links = [], kind, attributes = {} }: SpanOptions): Span {
  // Asked for each time: the SDK may come and go.
  const started = safely(() => {
    const options = { kind: kinds[kind ?? 'internal'], links: [...links], attributes: cleared(attributes) }
    return trace.getTracer('holdfast').startSpan(name, options, parent)
  })
  if (started === undefined) return nothing
  const inside = trace.setSpan(parent, started)
  let over = false
  const close = () => {
    over = true
    open.delete(span)
  }
  const change = (act: (to: ApiSpan) => void) => {
    if (!over) safely(() => act(started))
  }
  const span: Span = {
    set: (given) => change((to) => to.setAttributes(cleared(given))),
    fail: (code) =>
      change((to) =>
        to.setAttribute('error.type', isCode(code) ? code : other).setStatus({ code: SpanStatusCode.ERROR }),
      ),
    failWith: (thrown) => span.fail(thrown instanceof UnavailableError ? 'UNAVAILABLE' : 'INTERNAL_SERVER_ERROR'),
    end() {
      change((to) => to.end())
      close()
    },
    drop: close,
    within: (work) => context.with(inside, work),
  }
  if (started.isRecording()) open.add(span)
  return span
}

/** Runs the work as this span: it ends with the work, and fails with what the work throws. */
export async function inSpan<T>(name: string, options: SpanOptions, work: (span: Span) => Promise<T>): Promise<T> {
  const span = startSpan(name, options)
  try {
    return await span.within(() => work(span))
  } catch (thrown) {
    span.failWith(thrown)
    throw thrown
  } finally {
    span.end()
  }
}

const nothing: Span = {
  set() {},
  fail() {},
  failWith() {},
  end() {},
  drop() {},
  within: (work) => work(),
}

/** What OpenTelemetry says for an error without a known kind. */
const other = '_OTHER'
const isCode = (code: string) => /^[A-Z][A-Z0-9_]{1,63}$/.test(code)
/** An id, a code or a name: one word. Nothing that reads as a sentence gets past here, whoever calls. */
const isWord = (value: string) => /^[\x21-\x7e]{1,256}$/.test(value)

function cleared(attributes: Attributes): Record<string, string | number | boolean | string[]> {
  const kept: Record<string, string | number | boolean | string[]> = {}
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'number' || typeof value === 'boolean') kept[name] = value
    else if (typeof value === 'string') {
      if (isWord(value)) kept[name] = value
    } else if (value !== undefined) kept[name] = value.filter(isWord)
  }
  return kept
}

/** Traces never change an outcome: what breaks in the SDK breaks nothing here. */
function safely<T>(act: () => T): T | undefined {
  try {
    return act()
  } catch (thrown) {
    diag.error('a span could not be kept', thrown instanceof Error ? thrown.name : typeof thrown)
    return undefined
  }
}
