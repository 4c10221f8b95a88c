import type { LanguageModelV4, LanguageModelV4CallOptions, LanguageModelV4StreamPart } from '@ai-sdk/provider'
import type { Clock } from '../clock.ts'
import { ProviderFailure } from './failure.ts'

export interface WireRequest {
  model: LanguageModelV4
  options: LanguageModelV4CallOptions
  signal: AbortSignal
  /** Longest silence in milliseconds; asked anew before each read. Time the consumer takes does not count. */
  idleMs: () => number
  clock: Clock
}

/**
 * Makes one request and yields its stream parts as the model gives them. However it ends (real end, error, abort, idle
 * limit, a consumer that stops early), the request is aborted before it returns. A pending read is woken by the signal,
 * not by `return()`, which queues behind it as in every async generator.
 *
 * @throws the signal's reason when aborted, a retryable `ProviderFailure` at the idle limit, else what the model threw
 */
export async function* pull({
  model,
  options,
  signal,
  idleMs,
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
      work.then(
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

  let reader: ReadableStreamDefaultReader<LanguageModelV4StreamPart> | undefined
  try {
    const opening = Promise.resolve(model.doStream({ ...options, abortSignal: request.signal }))
    // A model that ignores its signal may open a stream after we have left: nobody else would close it.
    opening.then(
      ({ stream }) => {
        if (request.signal.aborted) stream.cancel().catch(() => {})
      },
      () => {},
    )
    reader = (await within(opening)).stream.getReader()
    for (;;) {
      // An abort while the consumer was at work found nobody to wake.
      signal.throwIfAborted()
      const { done, value } = await within(reader.read())
      if (done) return
      yield value
    }
  } finally {
    signal.removeEventListener('abort', onAbort)
    request.abort()
    reader?.cancel().catch(() => {})
  }
}
