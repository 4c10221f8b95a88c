import type { ExecutionResult } from 'graphql'
import { isAsyncIterable, type Plugin } from 'graphql-yoga'
import type { Operation } from './operation.ts'

/**
 * Sends subscriptions as server-sent events, in the distinct connections mode of the GraphQL over SSE protocol, with what its
 * readers need to come back: an `id:` with each event that has a seq (STREAM-18). `pingMs`: the longest silence.
 */
export function useEventStream({ pingMs }: { pingMs: number }): Plugin<object, Operation> {
  return {
    onResultProcess({ result, resultProcessor, setResultProcessor, serverContext }) {
      if (!isAsyncIterable(result)) return
      const stream = (result as AsyncIterable<ExecutionResult>)[Symbol.asyncIterator]()
      if (resultProcessor) {
        setResultProcessor(() => eventStream(stream, serverContext, pingMs), 'text/event-stream')
        return
      }
      // The client accepts nothing that a stream can be sent as and gets 406. Nobody else would return the source.
      return stream.return?.().then(() => {})
    },
  }
}

/** An item goes out in pieces, so that a reader that takes a long one slowly is seen to take it. */
const pieceBytes = 256 * 1024

function eventStream(stream: AsyncIterator<ExecutionResult>, operation: Operation, pingMs: number): Response {
  const { position, gone, taking } = operation
  const encoder = new TextEncoder()
  let rest: Uint8Array = new Uint8Array()
  let ping: NodeJS.Timeout | undefined
  async function end() {
    clearInterval(ping)
    await stream.return?.()
  }
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      // Flushes the headers: some browsers report an open stream only after its first byte.
      controller.enqueue(encoder.encode(':\n\n'))
      ping = setInterval(() => {
        // Not into the middle of an item.
        if (rest.length === 0 && (controller.desiredSize ?? 0) > 0) controller.enqueue(encoder.encode(':\n\n'))
      }, pingMs)
      ping.unref()
    },
    async pull(controller) {
      // Asked for more: what went before has been taken.
      taking.taken += 1
      if (rest.length === 0) {
        const item = await stream.next()
        if (item.done) {
          clearInterval(ping)
          controller.enqueue(encoder.encode('event: complete\ndata:\n\n'))
          controller.close()
          return
        }
        const id = position.seq === null ? '' : `id: ${position.seq}\n`
        rest = encoder.encode(`${id}event: next\ndata: ${JSON.stringify(item.value)}\n\n`)
      }
      // A copy, as the stream may detach what it is given.
      controller.enqueue(rest.slice(0, pieceBytes))
      rest = rest.subarray(pieceBytes)
    },
    cancel: end,
  })
  // Only now, as the body starts its timer while it is made. The adapter that writes it to the socket does not cancel it when the client has
  // gone, and does not even look at it when the client had gone before.
  if (gone.aborted) void end()
  else gone.addEventListener('abort', () => void end(), { once: true })
  const headers = {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache, no-transform',
    'x-accel-buffering': 'no',
  }
  return new Response(body, { headers })
}
