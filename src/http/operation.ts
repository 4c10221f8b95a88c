import { AsyncLocalStorage } from 'node:async_hooks'
import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Caller } from '../access/caller.ts'
import type { Context } from '../schema/context.ts'

/** How often the peer of a connection was seen to take something. Moves on for as long as it reads, however slowly. */
export interface Taking {
  taken: number
}

/** What the transport knows of an operation; the rest of its context is the same for all. */
export interface Operation extends Pick<Context, 'requestId' | 'lastEventId' | 'position' | 'caller' | 'gone'> {
  taking: Taking
}

/** The id of the HTTP request that is being answered, for what goes wrong before its operation is known. */
export const requestIds = new AsyncLocalStorage<string>()

const saneId = /^[A-Za-z0-9._:+=@-]{1,128}$/

/** The id under which a request can be found again: the caller's own `x-request-id` if it is sane, else a new one. */
export function requestIdOf(request: IncomingMessage): string {
  const given = request.headers['x-request-id']
  return typeof given === 'string' && saneId.test(given) ? given : randomUUID()
}

/**
 * Calls `then` once, when the answer is over or its connection has gone; at once if that has been so already. An answer that waits in a pipeline behind
 * another is not told of the end of its connection, and whoever left while a token was checked has been told of.
 */
export function whenAnswered({ socket }: IncomingMessage, response: ServerResponse, then: () => void): void {
  if (response.destroyed || socket.destroyed) {
    then()
    return
  }
  const done = () => {
    response.off('close', done)
    socket.off('close', done)
    then()
  }
  // Each request in a pipeline listens.
  socket.setMaxListeners(0)
  response.once('close', done)
  socket.once('close', done)
}

/** An operation that comes with an HTTP request. */
export function operationOf(
  request: IncomingMessage,
  response: ServerResponse,
  requestId: string,
  caller: Caller,
): Operation {
  const gone = new AbortController()
  whenAnswered(request, response, () => gone.abort())
  const lastEventId = request.headers['last-event-id']
  return {
    requestId,
    caller,
    lastEventId: typeof lastEventId === 'string' && lastEventId !== '' ? lastEventId : null,
    position: { seq: null },
    taking: { taken: 0 },
    gone: gone.signal,
  }
}
