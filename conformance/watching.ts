import { type Arrivals, arrivals } from './arrivals.ts'
import { eventFields } from './contract.ts'
import type { GraphqlError, Target } from './http.ts'
import { Failed } from './outcome.ts'
import { type EventStream, openEventStream } from './sse.ts'
import type { Socket } from './websocket.ts'
import type { Item } from './world.ts'

export const subscription = `subscription ($id: ID!, $after: Int) { sessionEvents(sessionId: $id, after: $after) ${eventFields} }`

/** One `sessionEvents` stream, whatever carries it. */
export interface Watching {
  items: Arrivals<Item>
  /** GraphQL errors that came instead of an item. */
  errors: GraphqlError[]
  /** The end was said as the protocol wants it: `complete`, or over WebSocket an `error`. */
  completed: () => boolean
  /** Waits until an item passes the test; answers it. */
  see(what: string, test: (item: Item) => boolean, ms?: number): Promise<Item>
  /** Waits until nothing more comes; answers the codes of the errors that came. */
  end(what: string): Promise<(string | undefined)[]>
  /** The LogSynced that has to come. */
  synced(): Promise<Item>
  pause(): void
  resume(): void
  close(): void
}

export async function watchEventStream(
  target: Target,
  sessionId: string,
  after: number,
  headers?: Record<string, string>,
): Promise<Watching> {
  const stream = await openEventStream(target, { query: subscription, variables: { id: sessionId, after } }, headers)
  return watching(stream, (push, end) => {
    let read = 0
    return () => {
      for (const frame of stream.frames.all.slice(read)) {
        read++
        if (frame.event === 'next') push(JSON.parse(frame.data))
        if (frame.event === 'complete') end(true)
      }
      if (stream.frames.closed !== null) end(false)
    }
  })
}

let operations = 0

/** Begins the operation on an open socket; `close` closes the socket. */
export function watchSocket(socket: Socket, sessionId: string, after: number): Watching {
  const id = `watch-${++operations}`
  socket.send({ type: 'subscribe', id, payload: { query: subscription, variables: { id: sessionId, after } } })
  return watching(socket, (push, end) => {
    let read = 0
    return () => {
      for (const message of socket.received.all.slice(read)) {
        read++
        if (message.id !== id) continue
        if (message.type === 'next') push(message.payload)
        if (message.type === 'error') push({ errors: message.payload })
        if (message.type === 'error' || message.type === 'complete') end(true)
      }
      if (socket.received.closed !== null) end(false)
    }
  })
}

type Result = { data?: { sessionEvents: Item } | null; errors?: GraphqlError[] }

function watching(
  carrier: Pick<EventStream, 'pause' | 'resume' | 'close'> &
    ({ frames: Arrivals<unknown> } | { received: Arrivals<unknown> }),
  reading: (push: (result: Result) => void, end: (said: boolean) => void) => () => void,
): Watching {
  const items = arrivals<Item>()
  const errors: GraphqlError[] = []
  let completed = false
  const take = reading(
    ({ data, errors: refused }) => {
      if (refused) errors.push(...refused)
      if (data?.sessionEvents) items.push(data.sessionEvents)
    },
    (said) => {
      if (items.closed === null) completed = said
      items.close(said ? 'the operation was completed' : 'the connection ended without completing the operation')
    },
  )
  const source: Arrivals<unknown> = 'frames' in carrier ? carrier.frames : carrier.received
  // Looks at each arrival; the wait itself is bounded by those who wait for items.
  source
    .until(
      'the end of the stream',
      () => {
        take()
        return items.closed !== null
      },
      streamMsMax,
    )
    .catch(take)

  const see: Watching['see'] = async (what, test, ms) => {
    await items.until(what, (all) => all.some(test), ms)
    return items.all.find(test)!
  }
  return {
    items,
    errors,
    completed: () => completed,
    see,
    async end(what) {
      await items.end(what).catch(() => {
        throw new Failed(what, 'the operation to end', { items: items.all.length, errors })
      })
      return errors.map(({ extensions }) => extensions?.code)
    },
    synced: () => see('LogSynced', (item) => item.__typename === 'LogSynced'),
    pause: () => carrier.pause(),
    resume: () => carrier.resume(),
    close: () => carrier.close(),
  }
}

/** No check watches longer. */
const streamMsMax = 120_000

/** The text of one part, from its deltas by offset; fails at a hole. Applied twice, as applying one twice must change nothing. */
export function joined(items: readonly Item[], messageId: string, index: number): string {
  const deltas = items.filter(
    (item) => typeof item.offset === 'number' && item.messageId === messageId && item.index === index,
  )
  let text = ''
  for (const { offset, text: piece } of deltas.flatMap((delta) => [delta, delta])) {
    if (offset > text.length)
      throw new Failed('the offset of a delta', `at most ${text.length}, as no more was received`, offset)
    text = text.slice(0, offset) + piece + text.slice(offset + piece.length)
  }
  return text
}

export const logged = (items: readonly Item[]) => items.filter((item) => item.seq !== null)
export const seqs = (items: readonly Item[]) => logged(items).map((item) => item.seq!)
export const named = (typename: string) => (item: Item) => item.__typename === typename
export const upTo = (from: number, to: number) => Array.from({ length: Math.max(0, to - from + 1) }, (_, n) => from + n)
