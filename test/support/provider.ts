import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** One thing that a scripted reply does. Made by the helpers below. */
export type Step =
  | { kind: 'chunk'; body: unknown }
  | { kind: 'raw'; text: string }
  | { kind: 'status'; code: number; body: unknown; headers: Record<string, string> }
  | { kind: 'wait'; gate: Promise<unknown> }
  | { kind: 'hang' }
  | { kind: 'cut' }

export interface RecordedRequest {
  body: {
    model: string
    messages: { role: string; content?: unknown; tool_calls?: unknown; tool_call_id?: string }[]
    tools?: { type: string; function: { name: string; description?: string; parameters?: unknown } }[]
    tool_choice?: unknown
    [key: string]: unknown
  }
  headers: IncomingMessage['headers']
  /** No reply was scripted for it. */
  unexpected: boolean
  /** The client went away before the reply was complete. */
  aborted: boolean
  /** Resolves when the reply is over: complete, cut or aborted. */
  ended: Promise<void>
}

export interface Provider {
  /** For OPENAI_COMPATIBLE_BASE_URL, ends with `/v1`. */
  baseUrl: string
  /** Chat completion requests in order of arrival. Others (`GET /models`) are not recorded here. */
  requests: RecordedRequest[]
  /** How often `GET /models` was asked. */
  listings: number
  /** What `GET /models` lists; null makes it fail with status 500. */
  models: string[] | null
  /** Queues replies; each request takes the next one. Without one it is answered with status 500. */
  script(...replies: Step[][]): void
  /** Resolves with request `n` (from 0) as soon as it has arrived with its whole body. */
  request(n: number): Promise<RecordedRequest>
  /** Resolves once request `n` has been aborted by its client. */
  aborted(n: number): Promise<void>
  /** Throws if there was an unscripted request or a scripted reply is left over. */
  expectDone(): void
  close(): Promise<void>
}

const delta = (value: object): Step => ({
  kind: 'chunk',
  body: { choices: [{ index: 0, delta: value, finish_reason: null }] },
})

/** Text, one chunk for each argument. */
export const text = (...deltas: string[]): Step[] => deltas.map((content) => delta({ content }))
/** Reasoning, one chunk for each argument. */
export const reasoning = (...deltas: string[]): Step[] => deltas.map((content) => delta({ reasoning_content: content }))

/** One tool call as `toolCalls` takes it. Arguments: a value, or a string that is sent as it is. */
export interface ScriptedCall {
  name: string
  args: unknown
  id?: string
}
let calls = 0
/** Tool calls of one answer, numbered from 0; use it once per reply. Arguments come in two chunks each. */
export function toolCalls(...scripted: ScriptedCall[]): Step[] {
  return scripted.flatMap(({ name, args, id = `call_${++calls}` }, index) => {
    const input = typeof args === 'string' ? args : JSON.stringify(args)
    const half = Math.ceil(input.length / 2)
    const first = { index, id, type: 'function', function: { name, arguments: input.slice(0, half) } }
    const rest = { index, function: { arguments: input.slice(half) } }
    return [delta({ tool_calls: [first] }), ...(input.length > half ? [delta({ tool_calls: [rest] })] : [])]
  })
}
/** A single tool call. */
export const toolCall = (name: string, args: unknown, id?: string): Step[] => toolCalls({ name, args, id })

export interface ScriptedUsage {
  input?: number
  output?: number
  reasoning?: number
  cached?: number
}
/** The finish reason as servers announce it: `finishing` keeps the stream open after it, `finish` ends it properly. */
export const finishing = (reason: 'stop' | 'length' | 'tool_calls' | 'content_filter' = 'stop'): Step[] => [
  { kind: 'chunk', body: { choices: [{ index: 0, delta: {}, finish_reason: reason }] } },
]
export const finish = (
  reason: 'stop' | 'length' | 'tool_calls' | 'content_filter' = 'stop',
  usage: ScriptedUsage = {},
): Step[] => [...finishing(reason), ...end(usage)]
/** Usage and the end marker, without a finish reason. */
export const end = ({ input = 10, output = 5, reasoning = 0, cached = 0 }: ScriptedUsage = {}): Step[] => [
  {
    kind: 'chunk',
    body: {
      choices: [],
      usage: {
        prompt_tokens: input,
        completion_tokens: output,
        total_tokens: input + output,
        prompt_tokens_details: { cached_tokens: cached },
        completion_tokens_details: { reasoning_tokens: reasoning },
      },
    },
  },
  { kind: 'raw', text: 'data: [DONE]\n\n' },
]

/** An HTTP answer instead of a stream; only as the first step of a reply. */
export const status = (code: number, body: unknown = {}, headers: Record<string, string> = {}): Step[] => [
  { kind: 'status', code, body, headers },
]
/** An error body as OpenAI-compatible servers send it. */
export const errorBody = (code: string | number | null, message = 'scripted failure', more: object = {}) => ({
  error: { message, type: null, param: null, code, ...more },
})
/** An error in the middle of the stream. */
export const streamError = (code: string | number | null, message = 'scripted failure'): Step[] => [
  { kind: 'chunk', body: errorBody(code, message) },
]
/** Holds the stream open until the promise is fulfilled, or the client goes away. */
export const wait = (gate: Promise<unknown>): Step[] => [{ kind: 'wait', gate }]
/** Says nothing more until the client goes away. As the first step: not even headers. */
export const hang = (): Step[] => [{ kind: 'hang' }]
/** Destroys the connection. */
export const cut = (): Step[] => [{ kind: 'cut' }]
/** Any server-sent event text, sent as it is. */
export const raw = (text: string): Step[] => [{ kind: 'raw', text }]

/** A promise and the function that fulfils it, for `wait`. */
export function gate(): { promise: Promise<void>; open: () => void } {
  let open = () => {}
  const promise = new Promise<void>((resolve) => {
    open = resolve
  })
  return { promise, open }
}

/** Puts steps into one reply: `reply(text('a'), finish())`. */
export const reply = (...steps: Step[][]): Step[] => steps.flat()

/** A scripted OpenAI-compatible server on a free loopback port. Real HTTP, so that what is tested is what is on the wire. */
export async function startProvider(): Promise<Provider> {
  const queue: Step[][] = []
  const arrivals = new Set<() => void>()
  const notify = () => {
    for (const check of arrivals) check()
  }
  const until = (condition: () => boolean): Promise<void> =>
    new Promise((resolve) => {
      const check = () => {
        if (!condition()) return
        arrivals.delete(check)
        resolve()
      }
      arrivals.add(check)
      check()
    })

  const server = createServer((request, response) => {
    void serve(request, response).catch((error) => response.destroy(error))
  })

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method === 'GET' && request.url === '/v1/models') {
      provider.listings++
      return answerListing(response, provider.models)
    }
    if (request.method !== 'POST' || request.url !== '/v1/chat/completions') {
      response.writeHead(404, { 'content-type': 'application/json' }).end('{"error":{"message":"no such path"}}')
      return
    }
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const closed = new Promise<void>((resolve) => response.once('close', resolve))
    const recorded: RecordedRequest = {
      body: JSON.parse(Buffer.concat(chunks).toString('utf8')) as RecordedRequest['body'],
      headers: request.headers,
      unexpected: queue.length === 0,
      aborted: false,
      ended: closed,
    }
    let cutByUs = false
    response.once('close', () => {
      recorded.aborted = !response.writableFinished && !cutByUs
      notify()
    })
    provider.requests.push(recorded)
    notify()
    const steps = queue.shift() ?? status(500, errorBody(null, 'no reply was scripted for this request'))
    await play(steps, response, closed, () => {
      cutByUs = true
    })
  }

  const provider: Provider = {
    baseUrl: '',
    requests: [],
    listings: 0,
    models: ['scripted'],
    script: (...replies) => void queue.push(...replies),
    async request(n) {
      await until(() => provider.requests.length > n)
      return provider.requests[n]!
    },
    aborted: (n) => until(() => provider.requests[n]?.aborted === true),
    expectDone() {
      const unexpected = provider.requests.filter((request) => request.unexpected).length
      if (unexpected > 0) throw new Error(`${unexpected} request(s) without a scripted reply`)
      if (queue.length > 0) throw new Error(`${queue.length} scripted replies were not asked for`)
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  provider.baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`
  return provider
}

async function play(
  steps: Step[],
  response: ServerResponse,
  closed: Promise<void>,
  cutting: () => void,
): Promise<void> {
  const stream = () => {
    if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
  }
  for (const step of steps) {
    if (response.destroyed) return
    switch (step.kind) {
      case 'status':
        response.writeHead(step.code, { 'content-type': 'application/json', ...step.headers })
        response.end(typeof step.body === 'string' ? step.body : JSON.stringify(step.body))
        return
      case 'chunk':
        stream()
        response.write(
          `data: ${JSON.stringify({ id: 'scripted', object: 'chat.completion.chunk', model: 'scripted', ...(step.body as object) })}\n\n`,
        )
        break
      case 'raw':
        stream()
        response.write(step.text)
        break
      case 'wait':
        await Promise.race([step.gate, closed])
        break
      case 'hang':
        await closed
        return
      case 'cut':
        cutting()
        // What was written before has to be on its way, or the client would not see it.
        if (response.headersSent) await new Promise((resolve) => response.write('', resolve))
        response.destroy()
        return
    }
  }
  stream()
  response.end()
}

function answerListing(response: ServerResponse, models: string[] | null): void {
  response.writeHead(models === null ? 500 : 200, { 'content-type': 'application/json' })
  response.end(JSON.stringify({ object: 'list', data: (models ?? []).map((id) => ({ id, object: 'model' })) }))
}
