import type { LanguageModelV4, LanguageModelV4CallOptions, LanguageModelV4StreamPart } from '@ai-sdk/provider'
import { fieldOf, kindOf } from '../../thrown.ts'
import type { Clock } from '../clock.ts'
import { ProviderFailure } from './failure.ts'

export interface WireRequest {
  model: LanguageModelV4
  options: LanguageModelV4CallOptions
  signal: AbortSignal
  /** Longest silence in milliseconds; asked anew before each read. Time the consumer takes does not count. */
  idleMs: () => number
  /** Longest time of the whole request in milliseconds: a model that never stops talking is never silent. */
  requestMs: number
  clock: Clock
}

/** So long may a stream that always has a next part keep the process from everything else. */
const busyMsMax = 20

const turnOfTheLoop = () => new Promise<void>((resolve) => setImmediate(resolve))

type Reader = Pick<ReadableStreamDefaultReader<LanguageModelV4StreamPart>, 'read' | 'cancel'>

/** Whoever wrote the model, it may give anything in place of a stream. */
function readerOf(opened: unknown): Reader {
  const stream = fieldOf(opened, 'stream')
  const getReader = fieldOf(stream, 'getReader')
  if (typeof getReader !== 'function')
    throw new ProviderFailure('PROVIDER_INVALID', `The model gave no stream of parts: \`stream\` is ${kindOf(stream)}.`)
  try {
    return getReader.call(stream) as Reader
  } catch {
    throw new ProviderFailure('PROVIDER_INVALID', 'The model gave a stream that cannot be read.')
  }
}

/** Ends what nobody reads any more. How it takes that is no concern of ours. */
function abandon(stream: unknown): void {
  const cancel = fieldOf(stream, 'cancel')
  if (typeof cancel !== 'function') return
  try {
    Promise.resolve(cancel.call(stream)).catch(() => {})
  } catch {}
}

const broken = (what: string) =>
  new ProviderFailure('PROVIDER_UNAVAILABLE', `The provider's stream is broken: it ${what}.`)

/** What a read gave; null at the end. */
function partOf(read: unknown): LanguageModelV4StreamPart | null {
  if (typeof read !== 'object' || read === null) throw broken(`gave ${kindOf(read)} for a part`)
  if (fieldOf(read, 'done') === true) return null
  const part = fieldOf(read, 'value')
  if (typeof fieldOf(part, 'type') !== 'string') throw broken(`sent ${kindOf(part)} in place of a part with a type`)
  return part as LanguageModelV4StreamPart
}

/**
 * Makes one request and yields its stream parts as the model gives them. However it ends (real end, error, abort, idle
 * limit, a consumer that stops early), the request is aborted before it returns. A pending read is woken by the signal,
 * not by `return()`, which queues behind it as in every async generator.
 *
 * @throws the signal's reason when aborted, a retryable `ProviderFailure` at the idle limit, one that is not at the limit of the whole
 *   request, else what the model threw
 */
export async function* pull({
  model,
  options,
  signal,
  idleMs,
  requestMs,
  clock,
}: WireRequest): AsyncGenerator<LanguageModelV4StreamPart> {
  signal.throwIfAborted()
  const request = new AbortController()
  let wake = (_reason: unknown): void => {}
  const onAbort = () => {
    request.abort(signal.reason)
    wake(signal.reason)
  }
  signal.addEventListener('abort', onAbort, { once: true })

  // One waiter at a time, so no listener or promise outlives its read: a stream has thousands of them.
  const within = <T>(work: PromiseLike<T>): Promise<T> =>
    new Promise<T>((resolve, reject) => {
      const limit = idleMs()
      const disarm = clock.setTimeout(() => {
        reject(new ProviderFailure('PROVIDER_UNAVAILABLE', `The provider was silent for ${limit} ms, the idle limit.`))
      }, limit)
      wake = (reason) => {
        disarm()
        reject(reason)
      }
      // A model of the user's own may give no promise at all.
      Promise.resolve(work).then(
        (value) => {
          disarm()
          resolve(value)
        },
        (error) => {
          disarm()
          reject(error)
        },
      )
    })

  const until = clock.now() + requestMs
  let turnedAt = performance.now()
  let reader: Reader | undefined
  try {
    const opening = Promise.resolve(model.doStream({ ...options, abortSignal: request.signal }))
    // A model that ignores its signal may open a stream after we have left: nobody else would close it.
    opening.then(
      (opened) => {
        if (request.signal.aborted) abandon(fieldOf(opened, 'stream'))
      },
      () => {},
    )
    reader = readerOf(await within(opening))
    for (;;) {
      if (clock.now() > until) {
        const message = `The request did not end within ${requestMs} ms, the limit of one request.`
        throw new ProviderFailure('PROVIDER_INVALID', message)
      }
      if (performance.now() - turnedAt > busyMsMax) {
        await turnOfTheLoop()
        turnedAt = performance.now()
      }
      // An abort while the consumer was at work found nobody to wake.
      signal.throwIfAborted()
      const part = partOf(await within(reader.read()))
      if (part === null) return
      yield part
    }
  } finally {
    signal.removeEventListener('abort', onAbort)
    request.abort()
    abandon(reader)
  }
}
