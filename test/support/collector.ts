import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A span as it arrived, in words. */
export interface ReceivedSpan {
  name: string
  kind: 'internal' | 'server' | 'client' | 'other'
  traceId: string
  spanId: string
  /** Null for a root. */
  parentSpanId: string | null
  links: { traceId: string; spanId: string }[]
  attributes: Record<string, unknown>
  /** Status ERROR. */
  failed: boolean
  startedAt: bigint
  endedAt: bigint
  /** What the process says of itself. */
  resource: Record<string, unknown>
}

export interface Collector {
  /** For OTEL_EXPORTER_OTLP_ENDPOINT. */
  url: string
  spans(): ReceivedSpan[]
  /** All that was received, byte for byte: paths, headers and bodies. */
  received(): string
  /** Paths of the requests. */
  paths(): string[]
  /** What it does with requests from now on. */
  behave(how: 'answer' | 'refuse' | 'hang'): void
  close(): Promise<void>
}

interface Value {
  stringValue?: string
  intValue?: number | string
  doubleValue?: number
  boolValue?: boolean
  arrayValue?: { values: Value[] }
}
type Pairs = { key: string; value: Value }[]

const plain = ({ stringValue, intValue, doubleValue, boolValue, arrayValue }: Value): unknown =>
  arrayValue?.values.map(plain) ?? stringValue ?? boolValue ?? (intValue === undefined ? doubleValue : Number(intValue))
const record = (pairs: Pairs = []) => Object.fromEntries(pairs.map(({ key, value }) => [key, plain(value)]))

interface Body {
  resourceSpans?: {
    resource?: { attributes?: Pairs }
    scopeSpans: {
      spans: {
        name: string
        kind: number
        traceId: string
        spanId: string
        parentSpanId?: string
        links?: { traceId: string; spanId: string }[]
        attributes?: Pairs
        status?: { code?: number }
        startTimeUnixNano: string
        endTimeUnixNano: string
      }[]
    }[]
  }[]
}

const kinds: Record<number, ReceivedSpan['kind']> = { 1: 'internal', 2: 'server', 3: 'client' }

const spansOf = ({ resourceSpans = [] }: Body): ReceivedSpan[] =>
  resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map((span) => ({
        name: span.name,
        kind: kinds[span.kind] ?? 'other',
        traceId: span.traceId,
        spanId: span.spanId,
        parentSpanId: span.parentSpanId || null,
        links: (span.links ?? []).map(({ traceId, spanId }) => ({ traceId, spanId })),
        attributes: record(span.attributes),
        failed: span.status?.code === 2,
        startedAt: BigInt(span.startTimeUnixNano),
        endedAt: BigInt(span.endTimeUnixNano),
        resource: record(resource?.attributes),
      })),
    ),
  )

/** A collector on a free loopback port that takes OTLP over HTTP with JSON. */
export async function startCollector(): Promise<Collector> {
  const spans: ReceivedSpan[] = []
  const paths: string[] = []
  let received = ''
  let behaviour: 'answer' | 'refuse' | 'hang' = 'answer'
  const server = createServer(async (request, response: ServerResponse) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const body = Buffer.concat(chunks).toString('utf8')
    paths.push(request.url ?? '')
    received += `${request.url} ${JSON.stringify(request.headers)}\n${body}\n`
    if (behaviour === 'hang') return
    if (behaviour === 'refuse') {
      response.writeHead(400).end('no')
      return
    }
    if (request.url === '/v1/traces' && request.headers['content-type'] === 'application/json')
      spans.push(...spansOf(JSON.parse(body) as Body))
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans: () => spans,
    received: () => received,
    paths: () => paths,
    behave(how) {
      behaviour = how
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}
