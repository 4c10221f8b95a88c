// GraphQL over nothing but fetch: POST for queries and mutations, server-sent events for subscriptions. Browsers, Node, and whatever
// else has fetch.

import { createParser } from 'eventsource-parser'
import { ProblemError, problemOfStatus } from './problem.ts'
import { type Answer, bearer, type Sink, type Token, type Transport, textOf } from './transport.ts'

export interface FetchOptions {
  /** The address of the GraphQL endpoint, such as `/graphql` in a page that the server itself serves. */
  url: string
  token?: Token
  /** Sent with each request besides what the client sends itself. */
  headers?: Record<string, string>
  fetch?: typeof globalThis.fetch
  /** How long a query or a mutation may take: 60 s unless given. An interrupt is answered after 30 s at the latest. */
  timeoutMs?: number
  /** How long a stream may be silent before it counts as lost: 30 s unless given. The server says something every 10 s. */
  silenceMs?: number
}

const isJson = (response: Response) => /[/+]json\b/.test(response.headers.get('content-type') ?? '')

async function answerOf<Result>(response: Response): Promise<Answer<Result>> {
  // GraphQL errors before the execution come with a 4xx as well; what they say is worth more than the status.
  const body: unknown = isJson(response) ? await response.json() : null
  if (typeof body === 'object' && body !== null && ('data' in body || 'errors' in body)) return body as Answer<Result>
  throw new ProblemError(problemOfStatus(response.status, `HTTP ${response.status} ${response.statusText}`.trim()))
}

/** A transport over fetch alone. The signal of `execute` ends the request; the end of a subscription ends its response. */
export function fetchTransport(options: FetchOptions): Transport {
  const { url, token, timeoutMs = 60_000, silenceMs = 30_000 } = options
  const fetching = options.fetch ?? globalThis.fetch.bind(globalThis)

  async function post(accept: string, query: string, variables: unknown, signal: AbortSignal): Promise<Response> {
    const authorization = await bearer(token)
    return fetching(url, {
      method: 'POST',
      headers: {
        ...options.headers,
        accept,
        'content-type': 'application/json',
        ...(authorization && { authorization }),
      },
      body: JSON.stringify({ query, variables }),
      signal,
    })
  }

  async function stream<Result>(query: string, variables: unknown, sink: Sink<Result>, gone: AbortController) {
    const silence = () => gone.abort(new Error(`nothing came for ${silenceMs} ms`))
    let timer = setTimeout(silence, silenceMs)
    try {
      const response = await post('text/event-stream', query, variables, gone.signal)
      if (!/^text\/event-stream\b/.test(response.headers.get('content-type') ?? '') || response.body === null) {
        sink.next(await answerOf<Result>(response))
        return sink.complete()
      }
      let isComplete = false
      const parser = createParser({
        onEvent({ event, data }) {
          if (event === 'complete') isComplete = true
          else if (event === 'next' && !gone.signal.aborted) sink.next(JSON.parse(data))
        },
      })
      const decoder = new TextDecoder()
      const reader = response.body.getReader()
      while (!isComplete) {
        const { done, value } = await reader.read()
        if (done) throw new Error('the connection ended in the middle of the stream')
        clearTimeout(timer)
        timer = setTimeout(silence, silenceMs)
        parser.feed(decoder.decode(value, { stream: true }))
      }
      sink.complete()
    } catch (thrown) {
      sink.error(gone.signal.aborted ? gone.signal.reason : thrown)
    } finally {
      clearTimeout(timer)
      gone.abort()
    }
  }

  return {
    async execute(document, variables, { signal } = {}) {
      const limit = AbortSignal.timeout(timeoutMs)
      const either = signal ? AbortSignal.any([signal, limit]) : limit
      return answerOf(await post('application/json', textOf(document), variables, either))
    },
    subscribe(document, variables, sink) {
      const gone = new AbortController()
      void stream(textOf(document), variables, sink, gone)
      return () => gone.abort(new Error('closed'))
    },
  }
}
