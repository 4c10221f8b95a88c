// Requests over HTTP: mostly as they should be, sometimes in the odd shapes that clients, proxies and scanners send.
import { request } from 'node:http'
import type { Random } from '../support/random.ts'
import type { FuzzOperation } from './operation.ts'
import { whyWrong } from './verdict.ts'

/** No answer for so long is one that never comes. */
const answerMsMax = 120_000
/** A stream is read for so many bytes or so long, then left. */
const streamBytesMax = 20_000

export interface Sent {
  /** Status and beginning of the answer. */
  told: string
  /** What is wrong with it; null if nothing is. */
  wrong: string | null
}

interface Shape {
  method: string
  path: string
  headers: Record<string, string>
  body?: string | Buffer
  /** The body is broken off after so many bytes, and the connection with it. */
  cutAt?: number
  /** The client goes away without waiting. */
  leaves?: boolean
}

const encode = encodeURIComponent
const safely = (text: string) => text.replace(/[\ud800-\udfff]/g, '?')

function shapeOf(random: Random, operation: FuzzOperation, all: readonly FuzzOperation[]): Shape {
  const json = JSON.stringify({ ...operation, kind: undefined })
  const plain: Shape = {
    method: 'POST',
    path: '/graphql',
    headers: {
      'content-type': 'application/json',
      accept: operation.kind === 'subscription' ? 'text/event-stream' : 'application/json',
    },
    body: json,
  }
  if (random.chance(0.75)) return plain
  const with_ = (over: Partial<Shape>): Shape => ({ ...plain, ...over, headers: { ...plain.headers, ...over.headers } })
  switch (random.below(16)) {
    case 0: {
      const { variables, extensions } = operation
      const broken = random.chance(0.3) ? '{' : ''
      const query = `query=${encode(safely(operation.query))}&variables=${encode(safely(broken + JSON.stringify(variables ?? null)))}`
      return with_({
        method: 'GET',
        path: `/graphql?${query}${extensions ? `&extensions=${encode(safely(broken + JSON.stringify(extensions)))}` : ''}`,
        body: undefined,
      })
    }
    case 1:
      return with_({ body: JSON.stringify(all.map((one) => ({ ...one, kind: undefined }))) })
    case 2:
      return with_({
        headers: {
          accept: random.of([
            '*/*',
            'text/html',
            'multipart/mixed',
            'application/graphql-response+json',
            'x',
            '',
          ] as const),
        },
      })
    case 3:
      return with_({
        headers: {
          'content-type': random.of([
            'text/plain',
            'application/graphql',
            'multipart/form-data',
            'application/x-www-form-urlencoded',
            'application/json; charset=utf-16',
            'x/y',
            '',
          ] as const),
        },
      })
    case 4:
      return with_({ body: json.slice(0, random.below(json.length)) })
    case 5:
      return with_({
        body: random.of([
          '',
          'null',
          '[]',
          '{}',
          '1',
          '"x"',
          'true',
          '{"query":1}',
          '{"query":null}',
          '{"query":{}}',
          '[[]]',
          '[null]',
          '{"query":""}',
          '\0',
          '{"query":"{__typename}","query":"x"}',
        ] as const),
      })
    case 6:
      return with_({
        headers: { 'content-encoding': random.of(['gzip', 'br', 'deflate', 'zstd', 'identity', 'x'] as const) },
      })
    case 7:
      return with_({
        headers: {
          upgrade: random.of(['h2c', 'websocket', 'x'] as const),
          connection: 'Upgrade',
          'http2-settings': 'AAMAAABkAARAAAAAAAIAAAAA',
        },
      })
    case 8:
      return with_({
        headers: {
          'last-event-id': random.of(['0', '-1', 'x', '99999999999999999999', '1e9'] as const),
          accept: 'text/event-stream',
        },
      })
    case 9:
      return with_({ cutAt: random.below(json.length + 1) })
    case 10:
      return with_({ leaves: true })
    case 11:
      return with_({ method: random.of(['PUT', 'DELETE', 'HEAD', 'OPTIONS', 'PATCH'] as const) })
    case 12:
      return with_({
        body: JSON.stringify({ extensions: { persistedQuery: { version: 1, sha256Hash: 'x'.repeat(64) } } }),
      })
    case 13:
      return with_({
        headers: {
          'x-request-id': random.of(['a', 'x'.repeat(500), '{}', 'a b'] as const),
          authorization: random.of(['Bearer x', 'Basic eA==', 'x', ''] as const),
        },
      })
    case 14:
      return with_({ body: Buffer.from(json, random.of(['utf16le', 'latin1'] as const)) })
    default:
      return with_({
        method: 'GET',
        path: random.of([
          '/',
          '/graphiql',
          '/healthz',
          '/readyz',
          '/metrics',
          '/none',
          '//graphql',
          '/graphql/',
          '/graphql?',
          '/%',
          '/graphql?query=%',
        ] as const),
        body: undefined,
      })
  }
}

function verdictOf(shape: Shape, status: number, type: string, text: string): string | null {
  if (status >= 500) return `status ${status}: ${text.slice(0, 300)}`
  if (/event-stream/.test(type)) {
    for (const [, data] of text.matchAll(/^data: ?(.+)$/gm)) {
      let item: unknown
      try {
        item = JSON.parse(data!)
      } catch {
        // The piece that was cut off as the stream was left.
        continue
      }
      const why = whyWrong(item)
      if (why !== null) return why
    }
    return null
  }
  if (!/json/.test(type) || shape.method === 'HEAD') return null
  try {
    return whyWrong(JSON.parse(text))
  } catch {
    return `an answer that is no JSON: ${text.slice(0, 200)}`
  }
}

/** Sends the operation in one shape or another and reads what comes. Never rejects. */
export function sendOverHttp(
  url: string,
  random: Random,
  operation: FuzzOperation,
  others: readonly FuzzOperation[],
): Promise<Sent> {
  const shape = shapeOf(random, operation, [operation, ...others])
  const streamMs = random.from(5, 60)
  const gone = shape.leaves || shape.cutAt !== undefined
  return new Promise((resolve) => {
    const body = shape.body === undefined ? undefined : Buffer.from(shape.body as string)
    const done = (told: string, wrong: string | null) => {
      clearTimeout(timer)
      resolve({ told, wrong })
      sent.destroy()
    }
    const timer = setTimeout(() => done('', `no answer within ${answerMsMax} ms`), answerMsMax)
    const { hostname, port } = new URL(url)
    const length = body && shape.method !== 'GET' ? { 'content-length': String(body.length) } : {}
    const sent = request({
      hostname,
      port,
      method: shape.method,
      path: shape.path,
      headers: { ...shape.headers, ...length },
    })
    sent.on('error', (error: NodeJS.ErrnoException) =>
      done(String(error.code), gone || shape.headers.upgrade ? null : `the connection broke: ${error.message}`),
    )
    sent.on('upgrade', (_response, socket) => {
      socket.destroy()
      done('upgraded', null)
    })
    sent.on('response', (response) => {
      let text = ''
      const type = response.headers['content-type'] ?? ''
      const status = response.statusCode ?? 0
      const finish = () => done(`${status} ${text.slice(0, 20_000)}`, verdictOf(shape, status, type, text))
      response.setEncoding('utf8').on('data', (piece: string) => {
        text += piece
        if (/event-stream/.test(type) && text.length > streamBytesMax) finish()
      })
      response.on('end', finish)
      response.on('error', finish)
      if (/event-stream/.test(type)) setTimeout(finish, streamMs)
    })
    if (shape.cutAt !== undefined && body) {
      sent.write(body.subarray(0, shape.cutAt))
      setImmediate(() => done('cut', null))
    } else sent.end(body)
    if (shape.leaves) setTimeout(() => done('left', null), random.below(5))
  })
}
