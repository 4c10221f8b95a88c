import { createHash } from 'node:crypto'
import { APICallError } from '@ai-sdk/provider'
import type { DemoFailure } from './demo-commands.ts'

const ANSWERS: Record<DemoFailure | 'overflow', { status?: number; code: string; headers?: Record<string, string> }> = {
  auth: { status: 401, code: 'invalid_api_key' },
  quota: { status: 429, code: 'insufficient_quota' },
  rate: { status: 429, code: 'rate_limit_exceeded', headers: { 'retry-after': '1' } },
  overload: { status: 529, code: 'overloaded_error' },
  invalid: { status: 400, code: 'invalid_value' },
  content: { status: 400, code: 'content_policy_violation' },
  mid: { code: 'connection_lost' },
  overflow: { status: 400, code: 'context_length_exceeded' },
}

/** The error that a real provider package would throw, so that demo failures take the same way as real ones. */
export function demoFailure(kind: DemoFailure | 'overflow'): APICallError {
  const { status, code, headers } = ANSWERS[kind]
  const message = `demo/echo was told to fail: ${kind}`
  return new APICallError({
    message,
    url: 'demo:echo',
    requestBodyValues: {},
    statusCode: status,
    responseHeaders: headers,
    data: { error: { message, code } },
    cause: status === undefined ? Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' }) : undefined,
  })
}

const REMEMBERED = 1000

/**
 * Counts attempts, for `/fail KIND TIMES`. In memory and per process on purpose: it is a toy to try retries with, and an
 * attempt that moves to another process starts from zero. Attempts belong together when kind and content are the same,
 * so two sessions with the same first prompt share a count; the count ends with the attempt that passes. The oldest of
 * more than 1000 counts is forgotten.
 */
export function demoFailureCounter(): (kind: string, content: unknown, times: number) => boolean {
  const counts = new Map<string, number>()
  return (kind, content, times) => {
    if (times === Number.POSITIVE_INFINITY) return true
    const key = `${kind} ${createHash('sha256').update(JSON.stringify(content)).digest('base64')}`
    const attempt = (counts.get(key) ?? 0) + 1
    counts.delete(key)
    if (attempt > times) return false
    counts.set(key, attempt)
    for (const oldest of counts.keys()) {
      if (counts.size <= REMEMBERED) break
      counts.delete(oldest)
    }
    return true
  }
}
