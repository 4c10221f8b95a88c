// What went wrong with an MCP server, in our own words: errors of libraries quote commands, addresses and answers.

import { ProtocolError, SdkError, SdkErrorCode, SdkHttpError } from '@modelcontextprotocol/client'

export interface McpFailure {
  /** Fits into "MCP server "x": …". Nothing of it is a secret, except perhaps the text of a refusal, which is to be masked. */
  reason: string
  /** The server is not there any more: connect again. `refused`: it is, but knows our session no longer and has not done anything. */
  kind: 'lost' | 'refused' | 'answered' | 'unclear'
}

const DEEPEST = 6

/** Explains whatever the client threw. Never throws. */
export function mcpFailure(error: unknown): McpFailure {
  if (error instanceof ProtocolError) {
    // A refusal is the server's word to the model, which has to know what to do better.
    if (error.message.includes('stream ended without an answer'))
      return { reason: 'it ended the call without an answer', kind: 'unclear' }
    return { reason: `it refused: ${error.message.slice(0, 1000)}`, kind: 'answered' }
  }
  if (error instanceof SdkHttpError) {
    return { reason: `it answered HTTP ${error.status}`, kind: error.status === 404 ? 'refused' : 'unclear' }
  }
  const code = systemCode(error)
  if (code === 'ENOENT') return { reason: 'its command was not found (ENOENT)', kind: 'lost' }
  if (code !== undefined) return { reason: `it cannot be reached (${code})`, kind: 'lost' }
  if (error instanceof SdkError) {
    switch (error.code) {
      case SdkErrorCode.RequestTimeout:
        return { reason: 'it did not answer in time', kind: 'unclear' }
      case SdkErrorCode.ConnectionClosed:
      case SdkErrorCode.NotConnected:
      case SdkErrorCode.SendFailed:
        return { reason: 'the connection to it was closed', kind: 'lost' }
    }
  }
  if (error instanceof TypeError && error.message === 'fetch failed')
    return { reason: 'it cannot be reached', kind: 'lost' }
  return { reason: 'it did not answer as the protocol asks', kind: 'unclear' }
}

/** Code of the operating system or HTTP client, as ECONNREFUSED; the client wraps it in errors of its own. */
function systemCode(error: unknown): string | undefined {
  let at = error
  for (let depth = 0; depth < DEEPEST && typeof at === 'object' && at !== null; depth++) {
    const { code, cause, data } = at as { code?: unknown; cause?: unknown; data?: { cause?: unknown } }
    if (typeof code === 'string' && /^(E[A-Z]{3,20}|UND_ERR_[A-Z_]{1,30})$/.test(code)) return code
    at = cause ?? data?.cause
  }
  return undefined
}
