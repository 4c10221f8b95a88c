import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { dirname, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { brotliCompress, constants, gzip } from 'node:zlib'

// The web console: the files that `npm start`, or the packing of a release, has built from web/. They are small and few, so they are
// held in memory; what is asked for is looked up among them and never becomes a path.

/** What is sent as it is. */
export interface File {
  body: Buffer
  /** By content coding, those that make it smaller, the smallest first. */
  coded: readonly (readonly [name: string, body: Buffer])[]
  type: string
  etag: string
  /** Its name has a hash of its content: it never changes. */
  immutable: boolean
  /** Its Content-Security-Policy. */
  policy: string | null
}

/** By their path, `/` included. */
export type ConsoleFiles = ReadonlyMap<string, File>

const types: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
}

/**
 * No script and no style but our own files, nothing from elsewhere, no frames: what a model or a tool writes stays inert even if the
 * page should fail to see that it is markup (SEC-12). Pictures may be data, as attachments are.
 */
const policy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const here = dirname(fileURLToPath(import.meta.url))
/** Beside the bundled server, or where a server that runs from its sources finds it. */
const places = [join(here, 'web'), join(here, '../../dist/web')]

/** The files of the console that has been built, from the first of the places that has one; undefined when none has. */
export async function loadConsole(directories: readonly string[] = places): Promise<ConsoleFiles | undefined> {
  const directory = directories.find((place) =>
    statSync(join(place, 'index.html'), { throwIfNoEntry: false })?.isFile(),
  )
  if (directory === undefined) return undefined
  const files = new Map<string, File>()
  for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
    const type = types[extname(entry.name)]
    if (!entry.isFile() || type === undefined) continue
    const path = join(entry.parentPath, entry.name)
    const name = path.slice(directory.length).replaceAll('\\', '/')
    const immutable = name.startsWith('/assets/')
    const file = fileOf(readFileSync(path), { type, immutable, policy })
    file.coded = await codings(file.body)
    files.set(name === '/index.html' ? '/' : name, file)
  }
  return files
}

/** With its tag, and not compressed yet. */
export function fileOf(body: Buffer, as: Pick<File, 'type' | 'immutable' | 'policy'>): File {
  const etag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`
  return { body, coded: [], etag, ...as }
}

/** Compressed off the main thread. */
export async function codings(body: Buffer): Promise<[string, Buffer][]> {
  const quality = { [constants.BROTLI_PARAM_QUALITY]: 5 }
  const both: [string, Buffer][] = [
    ['br', await promisify(brotliCompress)(body, { params: quality })],
    ['gzip', await promisify(gzip)(body)],
  ]
  return both.filter(([, coded]) => coded.length < body.length)
}

/** Answers with a file. */
export function sendFile(request: IncomingMessage, response: ServerResponse, file: File): void {
  response.setHeader('cache-control', file.immutable ? 'public, max-age=31536000, immutable' : 'no-cache')
  response.setHeader('etag', file.etag)
  response.setHeader('vary', 'accept-encoding')
  if (request.headers['if-none-match']?.split(/,\s*/).includes(file.etag)) {
    response.writeHead(304)
    response.end()
    return
  }
  const accepted = String(request.headers['accept-encoding'] ?? '').split(/\s*,\s*/)
  const [coding, body] = file.coded.find(([name]) => accepted.includes(name)) ?? [null, file.body]
  response.writeHead(200, {
    'content-type': file.type,
    'content-length': body.length,
    ...(coding !== null && { 'content-encoding': coding }),
    ...(file.policy !== null && { 'content-security-policy': file.policy }),
    'cross-origin-opener-policy': 'same-origin',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
  })
  response.end(request.method === 'HEAD' ? undefined : body)
}
