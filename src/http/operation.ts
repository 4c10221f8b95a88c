import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { Context } from '../schema/context.ts'

/** What the transport knows of an operation; the rest of its context is the same for all. */
export type Operation = Pick<Context, 'requestId' | 'lastEventId' | 'position'>

const saneId = /^[A-Za-z0-9._:+=@-]{1,128}$/

/** The id under which a request can be found again: the caller's own `x-request-id` if it is sane, else a new one. */
export function requestIdOf(request: IncomingMessage): string {
  const given = request.headers['x-request-id']
  return typeof given === 'string' && saneId.test(given) ? given : randomUUID()
}

/** An operation that comes with an HTTP request. */
export function operationOf(request: IncomingMessage, requestId: string): Operation {
  const lastEventId = request.headers['last-event-id']
  return {
    requestId,
    lastEventId: typeof lastEventId === 'string' && lastEventId !== '' ? lastEventId : null,
    position: { seq: null },
  }
}
