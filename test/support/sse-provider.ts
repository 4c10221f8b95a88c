import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

/** One scripted answer: a stream of events, or an error with its status. */
export type SseReply =
  | { events: { type: string; [key: string]: unknown }[] }
  | { status: number; body: unknown; headers?: Record<string, string> }

export interface SseProvider {
  /** Without a path. */
  origin: string
  /** Every request in order of arrival; `body` is null for a GET. */
  // biome-ignore lint/suspicious/noExplicitAny: tests read whatever they pinned
  requests: { method: string; url: string; headers: Record<string, string | string[] | undefined>; body: any }[]
  /** Queues answers; each request takes the next one. Without one it is answered with status 500. */
  script(...replies: SseReply[]): void
  close(): Promise<void>
}

/**
 * A scripted HTTP server for providers whose streams are typed events: Anthropic's messages, OpenAI's responses. It knows nothing of
 * them; the helpers below speak Anthropic.
 */
export async function startSseProvider(): Promise<SseProvider> {
  const queue: SseReply[] = []
  const provider: SseProvider = {
    origin: '',
    requests: [],
    script: (...replies) => void queue.push(...replies),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const text = Buffer.concat(chunks).toString('utf8')
    const { method = '', url = '', headers } = request
    provider.requests.push({ method, url, headers, body: text === '' ? null : JSON.parse(text) })
    const reply = queue.shift() ?? {
      status: 500,
      body: { error: { type: 'unscripted', message: 'no reply was scripted' } },
    }
    if ('status' in reply) {
      response.writeHead(reply.status, { 'content-type': 'application/json', ...reply.headers })
      response.end(JSON.stringify(reply.body))
      return
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const event of reply.events) response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
    response.end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  provider.origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return provider
}

type Event = { type: string; [key: string]: unknown }

/** Anthropic's content blocks, each with its deltas. */
export const block = {
  text: (...deltas: string[]) => ({
    start: { type: 'text', text: '' },
    deltas: deltas.map((text) => ({ type: 'text_delta', text })),
  }),
  thinking: (thinking: string, signature: string) => ({
    start: { type: 'thinking', thinking: '', signature: '' },
    deltas: [
      { type: 'thinking_delta', thinking },
      { type: 'signature_delta', signature },
    ],
  }),
  redacted: (data: string) => ({ start: { type: 'redacted_thinking', data }, deltas: [] }),
  toolUse: (id: string, name: string, ...json: string[]) => ({
    start: { type: 'tool_use', id, name, input: {} },
    deltas: json.map((partial_json) => ({ type: 'input_json_delta', partial_json })),
  }),
}

/** A whole answer of Anthropic's messages API. */
export function anthropicReply(
  blocks: { start: object; deltas: object[] }[],
  { stop = 'end_turn', usage = {}, output = 5 }: { stop?: string; usage?: object; output?: number } = {},
): SseReply {
  return { events: [...opening(usage), ...blocks.flatMap(blockEvents), ...ending(stop, output)] }
}

/** As `anthropicReply`, broken off by an error in the stream. */
export const anthropicBroken = (blocks: { start: object; deltas: object[] }[], type: string): SseReply => ({
  events: [
    ...(blocks.length > 0 ? opening({}) : []),
    ...blocks.flatMap(blockEvents),
    { type: 'error', error: { type, message: 'hunter2' } },
  ],
})

/** An HTTP error as Anthropic sends it. */
export const anthropicError = (
  status: number,
  type: string,
  message = 'hunter2',
  headers: Record<string, string> = {},
): SseReply => ({
  status,
  headers,
  body: { type: 'error', error: { type, message }, request_id: 'req_1' },
})

const opening = (usage: object): Event[] => [
  {
    type: 'message_start',
    message: {
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      model: 'claude-test',
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: { input_tokens: 10, output_tokens: 1, ...usage },
    },
  },
  { type: 'ping' },
]
const blockEvents = ({ start, deltas }: { start: object; deltas: object[] }, index: number): Event[] => [
  { type: 'content_block_start', index, content_block: start },
  ...deltas.map((delta) => ({ type: 'content_block_delta', index, delta })),
  { type: 'content_block_stop', index },
]
const ending = (stop: string, output: number): Event[] => [
  { type: 'message_delta', delta: { stop_reason: stop, stop_sequence: null }, usage: { output_tokens: output } },
  { type: 'message_stop' },
]
