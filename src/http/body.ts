import type { IncomingMessage } from 'node:http'
import { GraphQLError } from 'graphql'
import { findInexact, type Inexact } from '../exact-numbers.ts'
import { createGauge, levelsMax, structureBytesMax } from './json-gauge.ts'

/** Text of 4 MB and attachments of 20 MB, which base64 and JSON make larger. */
export const bodyBytesMax = 40_000_000

/** An error of the request as a whole. */
export const badRequest = (status: number, message: string, code = 'BAD_REQUEST', headers?: Record<string, string>) =>
  new GraphQLError(message, { extensions: { code, http: { status, ...(headers && { headers }) } } })

export const tooLarge = (message: string) => badRequest(413, message, 'REQUEST_ENTITY_TOO_LARGE')

/** What a request with too many values besides its texts is told. */
export const tooMuchStructure = `the request has more than ${structureBytesMax} bytes besides its texts and attachments, or more than ${levelsMax} levels`

const overloaded = () =>
  new GraphQLError('the server holds too many large requests at the moment, try again', {
    extensions: { code: 'OVERLOADED', retryAfterMs: 1000, http: { status: 503, headers: { 'retry-after': '1' } } },
  })

/** The share of one body in what all may hold. */
export interface Held {
  /** False when the others hold too much. */
  take(bytes: number): boolean
  close(): void
}

/** Bytes of bodies that are being read or parsed: at most `most` at once, so that slow ones cannot fill the memory together. */
export function createBodies(most: number): { open(): Held } {
  let held = 0
  return {
    open() {
      let own = 0
      return {
        take(bytes) {
          if (held + bytes > most) return false
          own += bytes
          held += bytes
          return true
        },
        close() {
          held -= own
          own = 0
        },
      }
    },
  }
}

/** How long a peer whose body is refused may go on sending it before it is answered: one that only writes would not see why it is cut off. */
const lingerMs = 1000

export interface Body {
  bytes: Buffer<ArrayBuffer>
  /** The first number among the variables that cannot be kept as it is written. */
  inexact: Inexact | null
}

/** Variables, of one operation or of one in a batch. */
const isOfVariables = (path: Inexact['path']) => path[typeof path[0] === 'number' ? 1 : 0] === 'variables'

/**
 * The bytes of a request's body. Refuses it while it arrives, as soon as it is known to be too long or, where `isJson`, to have too many values. What
 * else comes of it is thrown away.
 */
export function readBody(request: IncomingMessage, isJson: boolean, held: Held): Promise<Body> {
  const most = isJson ? bodyBytesMax : structureBytesMax
  const gauge = createGauge()
  const chunks: Buffer[] = []
  let length = 0
  let refused: Error | undefined
  return new Promise((resolve, reject) => {
    const refuse = (error: Error) => {
      refused = error
      chunks.length = 0
      held.close()
      setTimeout(() => reject(error), lingerMs).unref()
    }
    const tooLong = () => tooLarge(`the body is too large: at most ${most} bytes are taken`)
    if (Number(request.headers['content-length'] ?? 0) > most) {
      // It is only announced: who is told now need not send it.
      refused = tooLong()
      reject(refused)
    }
    request.on('data', (chunk: Buffer) => {
      if (refused) return
      length += chunk.length
      if (length > most) refuse(tooLong())
      else if (!held.take(chunk.length)) refuse(overloaded())
      else if (isJson && !gauge.take(chunk)) refuse(tooLarge(tooMuchStructure))
      else chunks.push(chunk)
    })
    request.once('end', () => {
      if (refused) return reject(refused)
      // Memory of its own: it goes to another thread without being copied.
      const all = Buffer.from(new ArrayBuffer(length))
      let at = 0
      for (const chunk of chunks.splice(0)) at += chunk.copy(all, at)
      resolve({ bytes: all, inexact: gauge.hasInexact() ? findInexact(all, isOfVariables) : null })
    })
    // Cut off: nobody is there to be answered.
    request.once('close', () => reject(badRequest(400, 'the body ended before its time')))
  })
}
