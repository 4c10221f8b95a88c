// A real MCP server over streamable HTTP, to be started, killed and started again on the same port. `MODE=legacy` has sessions, which it
// forgets when it dies; `modern` speaks the revision without them. Asks for the bearer token in SECRET, if there is one.
import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import { createMcpHandler, WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/server'
import { testServer } from './mcp-tools.mjs'

const sessions = new Map()

async function withSessions(request) {
  // Forgets its sessions, as a server does that was replaced behind a proxy.
  if (request.url.endsWith('/forget')) {
    sessions.clear()
    return new Response('forgotten')
  }
  const known = sessions.get(request.headers.get('mcp-session-id') ?? '')
  if (known) return known.handleRequest(request)
  if (request.headers.has('mcp-session-id')) return Response.json({ error: 'no such session' }, { status: 404 })
  const transport = new WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => void sessions.set(id, transport),
  })
  await testServer().connect(transport)
  return transport.handleRequest(request)
}

const modern = createMcpHandler(testServer)
const answer = process.env.MODE === 'modern' ? (request) => modern.fetch(request) : withSessions

const server = createServer(async (incoming, outgoing) => {
  const chunks = []
  for await (const chunk of incoming) chunks.push(chunk)
  const { method = 'GET', url = '/', headers } = incoming
  const body = chunks.length > 0 ? Buffer.concat(chunks) : undefined
  const gone = new AbortController()
  outgoing.once('close', () => gone.abort())
  const request = new Request(`http://${headers.host}${url}`, {
    method,
    headers,
    body,
    signal: gone.signal,
  })
  const allowed = !process.env.SECRET || headers.authorization === `Bearer ${process.env.SECRET}`
  const response = allowed
    ? await answer(request)
    : new Response(`not you: ${headers.authorization} ${url}`, { status: 401 })
  outgoing.writeHead(response.status, Object.fromEntries(response.headers)).flushHeaders()
  try {
    for await (const chunk of response.body ?? []) outgoing.write(chunk)
  } catch {}
  outgoing.end()
})
server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () => {
  console.log(JSON.stringify({ port: server.address().port, pid: process.pid }))
})
