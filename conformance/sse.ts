import { type Arrivals, arrivals, waitMs, within } from './arrivals.ts'
import { authorization, type Target } from './http.ts'

/** One block of an event stream, as it came. */
export interface Frame {
  id: string | null
  event: string | null
  data: string
  /** Nothing but a comment: what keeps a connection awake. */
  comment: boolean
  /** When it came, in ms. */
  at: number
}

export interface EventStream {
  status: number
  headers: Headers
  frames: Arrivals<Frame>
  /** Reads nothing more until `resume`, so that the server's side fills up. */
  pause(): void
  resume(): void
  close(): void
}

/** Opens a subscription over server-sent events. The status may be anything: the check looks at it. */
export async function openEventStream(
  target: Target,
  operation: { query: string; variables?: Record<string, unknown> },
  headers: Record<string, string> = {},
): Promise<EventStream> {
  const gone = new AbortController()
  const opening = fetch(target.endpoint, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'text/event-stream',
      ...authorization(target),
      ...headers,
    },
    body: JSON.stringify(operation),
    signal: gone.signal,
  })
  const response = await within('the headers of an event stream', opening, waitMs)
  const frames = arrivals<Frame>()
  let gate: Promise<void> | null = null
  let open = () => {}
  const reader = response.body?.getReader()

  async function read(): Promise<void> {
    const decoder = new TextDecoder()
    let rest = ''
    for (;;) {
      if (gate !== null) await gate
      const part = await reader?.read()
      if (part === undefined || part.done) return frames.close('the stream was closed')
      const blocks = (rest + decoder.decode(part.value, { stream: true })).replaceAll('\r\n', '\n').split('\n\n')
      rest = blocks.pop()!
      for (const block of blocks) frames.push(frameOf(block))
    }
  }
  read().catch((error: Error) => frames.close(`the connection broke: ${error.message}`))

  return {
    status: response.status,
    headers: response.headers,
    frames,
    pause() {
      gate ??= new Promise((resolve) => {
        open = resolve
      })
    },
    resume() {
      gate = null
      open()
    },
    close() {
      gone.abort()
      open()
    },
  }
}

function frameOf(block: string): Frame {
  const frame: Frame = { id: null, event: null, data: '', comment: true, at: Date.now() }
  for (const line of block.split('\n')) {
    if (line === '' || line.startsWith(':')) continue
    const colon = line.indexOf(':')
    const field = colon === -1 ? line : line.slice(0, colon)
    const value = colon === -1 ? '' : line.slice(colon + 1).replace(/^ /, '')
    frame.comment = false
    if (field === 'id') frame.id = value
    else if (field === 'event') frame.event = value
    else if (field === 'data') frame.data += value
  }
  return frame
}
