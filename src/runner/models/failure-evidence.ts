import { isError, kindOf } from '../../thrown.ts'

/**
 * What can be read from an error without understanding prose: HTTP status, the machine-readable fields of the
 * provider's error body, the system's error code. `text` is the prose; see `failure.ts` for the one case that reads it.
 */
export interface Evidence {
  status?: number
  /** Error codes, types and states of the body, folded: `Context_Length_Exceeded` and `contextLengthExceededError` are one. */
  codes: string[]
  /** The same as the provider spells it, for people. */
  label?: string
  /** A code that says more than the HTTP status repeated. */
  hasCode: boolean
  param?: string
  text: string
  headers?: Record<string, string>
  /** Code of the operating system or HTTP client: ECONNRESET, UND_ERR_SOCKET. */
  system?: string
  /** What kind of value it was, if it is none that anybody throws. */
  odd?: string
  /** Name of the error's class, as `AI_TypeValidationError`. */
  name: string
}

const LONGEST_BODY = 100_000
const DEEPEST = 5

/** Folds the spellings of an error code: lower case, letters and digits only, without a trailing "error". */
export function foldCode(code: string): string {
  const folded = code.toLowerCase().replace(/[^a-z0-9]/g, '')
  return folded.replace(/(error|exception)$/, '') || folded
}

/** Gathers the evidence of any thrown value or streamed error part. Never throws. */
export function gatherEvidence(error: unknown): Evidence {
  const found: Evidence = { codes: [], hasCode: false, text: '', name: '' }
  const kind = kindOf(error)
  if (!isError(error) && !['an object', 'a string'].includes(kind)) found.odd = kind
  try {
    gather(error, found)
  } catch {
    // A getter or a proxy that throws: what was found so far has to do.
  }
  return found
}

function gather(error: unknown, found: Evidence): void {
  if (!isRecord(error)) return
  found.name = text(error.name)
  found.status = statusOf(error.statusCode)
  if (isRecord(error.responseHeaders)) found.headers = textsOf(error.responseHeaders)
  if (error instanceof Error) {
    // Fields of an Error are the library's; the provider's are in what it carries.
    found.system = systemCode(error)
    for (const body of [error.data, parse(error.responseBody), error.value]) readBody(body, found, 0)
    if (found.name === 'AI_ProviderStreamError') readFields(error, found)
  } else {
    readBody(error, found, 0)
  }
}

const textsOf = (record: Record<string, unknown>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(record).flatMap(([name, value]) => (typeof value === 'string' ? [[name, value]] : [])),
  )

function readBody(body: unknown, found: Evidence, depth: number): void {
  const value = Array.isArray(body) ? body[0] : body
  if (!isRecord(value) || depth > DEEPEST) return
  if (typeof value.error === 'string') found.text += ` ${value.error}`
  // Where an envelope holds an error, the envelope's own type ("error", "response.failed") says nothing.
  const inner = [value.error, value.response, value.data].filter(isRecord)
  if (inner.length === 0) readFields(value, found)
  for (const each of inner) readBody(each, found, depth + 1)
  if (isRecord(value.metadata)) {
    readBody(value.metadata, found, depth + 1)
    // OpenRouter reports moderation as a plain 403 with these two fields.
    if (Array.isArray(value.metadata.reasons) && 'flagged_input' in value.metadata)
      found.codes.push('moderationblocked')
  }
}

function readFields(fields: Record<string, unknown>, found: Evidence): void {
  if (typeof fields.message === 'string') found.text += ` ${fields.message}`
  if (typeof fields.param === 'string') found.param = fields.param
  for (const key of ['code', 'type', 'status', 'error_type'] as const) {
    const value = fields[key]
    const status = statusOf(value)
    if (status !== undefined) found.status ??= status
    else if (typeof value === 'string' && value !== '') {
      found.codes.push(foldCode(value))
      // Shown to people: only what looks like an identifier, never prose that may quote a key or the prompt, nor a number that is an address.
      if (found.label === undefined && /^[a-z_][\w.-]{0,63}$/i.test(value)) found.label = value
      if (key === 'code' || key === 'error_type') found.hasCode = true
    }
  }
}

function systemCode(error: Error): string | undefined {
  let current: unknown = error
  for (let depth = 0; depth < DEEPEST && current instanceof Error; depth++) {
    const { code } = current as { code?: unknown }
    if (typeof code === 'string' && /^[A-Z][A-Z0-9_]{2,40}$/.test(code)) return code
    current = current.cause
  }
  return undefined
}

function statusOf(value: unknown): number | undefined {
  const number = typeof value === 'string' && /^\d{3}$/.test(value) ? Number(value) : value
  return typeof number === 'number' && number >= 300 && number <= 599 ? number : undefined
}

function parse(body: unknown): unknown {
  if (typeof body !== 'string' || body.length > LONGEST_BODY) return undefined
  try {
    return JSON.parse(body)
  } catch {
    return undefined
  }
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}
