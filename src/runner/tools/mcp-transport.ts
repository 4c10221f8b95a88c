// The wire to an MCP server: a process of ours, or streamable HTTP.

import { StreamableHTTPClientTransport, type Transport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import type { McpServer } from '../../config.ts'

/** A transport that has not been started. `said` gets what a process writes to its standard error, in pieces. */
export function mcpTransport(server: McpServer, said: (text: string) => void): Transport {
  if ('url' in server) return overHttp(server)
  const { command, args, env } = server
  const transport = new StdioClientTransport({ command, args, env, stderr: 'pipe' })
  // Read in any case: a process whose pipe is full stands still.
  transport.stderr?.on('data', (chunk: Buffer) => said(chunk.toString('utf8')))
  return transport
}

function overHttp({ url: given, headers: own }: { url: string; headers: Record<string, string> }): Transport {
  const url = new URL(given)
  const headers = new Headers(own)
  if ((url.username !== '' || url.password !== '') && !headers.has('authorization')) {
    const pair = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`
    headers.set('authorization', `Basic ${Buffer.from(pair).toString('base64')}`)
  }
  // fetch refuses such a URL and would quote it.
  url.username = ''
  url.password = ''
  return answered(new StreamableHTTPClientTransport(url, { requestInit: { headers } }))
}

const STREAM_ENDED = -32_000

/**
 * The client waits for an answer until its deadline even if the stream that should bring it has ended. With this the request fails as
 * soon as the stream is over.
 */
function answered(transport: StreamableHTTPClientTransport): Transport {
  const open = new Set<string | number>()
  const send = transport.send.bind(transport)
  transport.onmessage = (message) => {
    if (!('method' in message) && message.id !== undefined) open.delete(message.id)
  }
  transport.send = async (message, options) => {
    if (Array.isArray(message) || !('method' in message) || !('id' in message)) return send(message, options)
    const { id } = message
    open.add(id)
    const onRequestStreamEnd = () => {
      options?.onRequestStreamEnd?.()
      const error = { code: STREAM_ENDED, message: 'the stream ended without an answer' }
      if (open.delete(id)) transport.onmessage?.({ jsonrpc: '2.0', id, error })
    }
    try {
      await send(message, { ...options, onRequestStreamEnd })
    } catch (error) {
      open.delete(id)
      throw error
    }
  }
  return transport
}
