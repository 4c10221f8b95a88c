// Parses what clients send. A large text is parsed in a thread of its own, as the main one has leases to renew meanwhile. Few bytes are structure
// (json-gauge.ts), so what comes back from there is small but for its texts, and those are copied quickly.

import { readFileSync } from 'node:fs'
import { Worker } from 'node:worker_threads'

/** Up to here parsing takes less time than the way to the other thread. */
const inlineBytesMax = 262_144

/** It is no JSON. What the parser says of it would quote it. */
export class InvalidJsonError extends Error {
  override name = 'InvalidJsonError'
}

export interface JsonParser {
  /** The value; throws InvalidJsonError. `bytes` must not be used afterwards. */
  parse(bytes: Uint8Array<ArrayBuffer>): Promise<unknown>
  close(): Promise<void>
}

interface Answer {
  value?: unknown
  invalid?: boolean
}

interface Thread {
  worker: Worker
  waiting: { resolve(value: unknown): void; reject(error: Error): void }[]
}

export function createJsonParser({ inlineMax = inlineBytesMax }: { inlineMax?: number } = {}): JsonParser {
  const decoder = new TextDecoder()
  // Read now: it may be moved before the first large text comes.
  const source = readFileSync(new URL('./json-worker.mjs', import.meta.url), 'utf8')
  let thread: Thread | undefined

  function start(): Thread {
    const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(source)}`))
    const started: Thread = { worker, waiting: [] }
    worker.unref()
    // It answers in the order in which it was asked.
    worker.on('message', ({ value, invalid }: Answer) => {
      const waiter = started.waiting.shift()
      if (invalid) waiter?.reject(new InvalidJsonError())
      else waiter?.resolve(value)
    })
    // It has run out of memory, say. The next text gets a new one.
    const fail = (error: Error) => {
      if (thread === started) thread = undefined
      for (const { reject } of started.waiting.splice(0)) reject(error)
    }
    worker.on('error', fail)
    worker.on('exit', () => fail(new Error('the thread that parses JSON has ended')))
    return started
  }

  return {
    async parse(bytes) {
      if (bytes.length > inlineMax) {
        thread ??= start()
        const { worker, waiting } = thread
        return new Promise((resolve, reject) => {
          waiting.push({ resolve, reject })
          // Not copied, if it has its memory for itself.
          const isAlone = bytes.byteLength === bytes.buffer.byteLength
          worker.postMessage(bytes, isAlone ? [bytes.buffer] : [])
        })
      }
      try {
        return JSON.parse(decoder.decode(bytes))
      } catch {
        throw new InvalidJsonError()
      }
    },
    async close() {
      await thread?.worker.terminate()
    },
  }
}
