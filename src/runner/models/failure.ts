import { isError } from '../../thrown.ts'
import { type Evidence, foldCode, gatherEvidence } from './failure-evidence.ts'
import { retryAfter } from './retry-after.ts'

export type ProviderFailureCode =
  | 'PROVIDER_AUTH'
  | 'PROVIDER_QUOTA'
  | 'PROVIDER_RATE_LIMIT'
  | 'PROVIDER_CONTENT'
  | 'PROVIDER_INVALID'
  | 'PROVIDER_UNAVAILABLE'
  | 'CONTEXT_OVERFLOW'

/**
 * A provider request that failed, classified. The message can be shown and stored: it holds our own words, the HTTP
 * status and the provider's error identifier, never the provider's prose, which may quote the key or the prompt.
 * For the same reason it has no `cause`.
 */
export class ProviderFailure extends Error {
  override readonly name = 'ProviderFailure'
  readonly code: ProviderFailureCode
  /** The retry policy may try again (design section 6). An overflow is not a retry: it asks for a compaction. */
  readonly retryable: boolean
  /** The wait that the provider asks for, in milliseconds, uncapped. */
  readonly retryAfterMs?: number

  constructor(code: ProviderFailureCode, message: string, retryAfterMs?: number) {
    super(message)
    this.code = code
    this.retryable = code === 'PROVIDER_UNAVAILABLE' || code === 'PROVIDER_RATE_LIMIT'
    if (retryAfterMs !== undefined) this.retryAfterMs = retryAfterMs
  }
}

/** Is it one of ours? False for what cannot even be asked. */
export const isProviderFailure = (thrown: unknown): thrown is ProviderFailure =>
  isError(thrown) && thrown instanceof ProviderFailure

type Table = [ProviderFailureCode, Set<string>][]
const fold = (...codes: string[]) => new Set(codes.map(foldCode))

// These say more than the status they come with: a 429 may be an empty account, a 400 a content filter.
const DECISIVE: Table = [
  [
    'CONTEXT_OVERFLOW',
    fold(
      'context_length_exceeded', // OpenAI, Azure, Groq, OpenRouter
      'context_window_exceeded',
      'exceed_context_size_error', // llama.cpp
      'model_max_prompt_tokens_exceeded',
    ),
  ],
  ['PROVIDER_CONTENT', fold('content_filter', 'content_policy_violation', 'content_policy', 'moderation_blocked')],
  [
    'PROVIDER_QUOTA',
    fold(
      'insufficient_quota',
      'quota_exceeded',
      'billing_hard_limit_reached',
      'billing_not_active',
      'billing_error',
      'insufficient_balance',
      'insufficient_credits',
      'payment_required',
    ),
  ],
  ['PROVIDER_AUTH', fold('invalid_api_key', 'api_key_invalid', 'expired_api_key', 'account_deactivated')],
]

// An error in the middle of a stream has no status of its own: then the general types have to do.
const GENERAL: Table = [
  ['PROVIDER_AUTH', fold('authentication_error', 'unauthenticated', 'permission_error', 'permission_denied')],
  [
    'PROVIDER_RATE_LIMIT',
    fold('rate_limit_error', 'rate_limit_exceeded', 'rate_limit', 'too_many_requests', 'resource_exhausted'),
  ],
  [
    'PROVIDER_INVALID',
    fold(
      'invalid_request_error',
      'invalid_argument',
      'bad_request',
      'not_found_error',
      'model_not_found',
      'unsupported_value',
      'request_too_large',
    ),
  ],
]

// Errors of the provider packages themselves that come before any request: retrying cannot help.
const UNSENDABLE = new Set(
  [
    'InvalidPrompt',
    'InvalidArgument',
    'UnsupportedFunctionality',
    'NoSuchModel',
    'LoadSetting',
    'UnsupportedModelVersion',
  ].map((name) => `AI_${name}Error`),
)

// Last resort, for answers of status 400 or 413 whose body has no error code (older vLLM, Ollama, LM Studio, LiteLLM).
const OVERFLOW_PROSE =
  /context (length|window|size|limit)|maximum context|prompt is too long|input token count|too many (input |prompt )?tokens/i

/**
 * Classifies whatever a provider request threw or streamed as an error, by its HTTP status, the identifiers in its body
 * and the system's error code. Prose decides in one case only: an overflow that a server reports without any code. What
 * nobody knows counts as unavailable: the retry budget bounds it. `now` (ms) is what an HTTP date is measured against.
 */
export function classifyFailure(error: unknown, now: number = Date.now()): ProviderFailure {
  if (isProviderFailure(error)) return error
  const evidence = gatherEvidence(error)
  const code = decide(evidence)
  return new ProviderFailure(code, describe(code, evidence), retryAfter(evidence.headers, now))
}

function decide(evidence: Evidence): ProviderFailureCode {
  const { status } = evidence
  const decisive = find(DECISIVE, evidence)
  if (decisive !== undefined) return decisive
  if (status === 400 || status === 413) {
    // vLLM names the parameter that broke the limit.
    if (evidence.param === 'input_tokens') return 'CONTEXT_OVERFLOW'
    if (!evidence.hasCode && OVERFLOW_PROSE.test(evidence.text)) return 'CONTEXT_OVERFLOW'
  }
  if (status !== undefined) return byStatus(status)
  if (evidence.name === 'AI_LoadAPIKeyError') return 'PROVIDER_AUTH'
  if (UNSENDABLE.has(evidence.name)) return 'PROVIDER_INVALID'
  return find(GENERAL, evidence) ?? 'PROVIDER_UNAVAILABLE'
}

function find(table: Table, { codes }: Evidence): ProviderFailureCode | undefined {
  return table.find(([, known]) => codes.some((code) => known.has(code)))?.[0]
}

function byStatus(status: number): ProviderFailureCode {
  if (status === 401 || status === 403) return 'PROVIDER_AUTH'
  if (status === 402) return 'PROVIDER_QUOTA'
  if (status === 429) return 'PROVIDER_RATE_LIMIT'
  if (status >= 500 || status === 408 || status === 409 || status === 425) return 'PROVIDER_UNAVAILABLE'
  return 'PROVIDER_INVALID'
}

const WORDS: Record<ProviderFailureCode, string> = {
  PROVIDER_AUTH: 'The provider refused the credentials',
  PROVIDER_QUOTA: 'The quota or balance at the provider is used up',
  PROVIDER_RATE_LIMIT: 'The provider limits the rate of requests',
  PROVIDER_CONTENT: "The provider's content policy refused the request",
  PROVIDER_INVALID: 'The provider rejected the request as invalid',
  PROVIDER_UNAVAILABLE: 'The provider is not available',
  CONTEXT_OVERFLOW: "The request is larger than the model's context",
}

function describe(code: ProviderFailureCode, { status, label, system, name, odd }: Evidence): string {
  const details: string[] = []
  if (status !== undefined)
    details.push(status < 400 ? `HTTP ${status}, a redirect: set the final base URL` : `HTTP ${status}`)
  if (status === 404 && label === undefined) details.push('unknown model or path')
  if (label !== undefined) details.push(label)
  if (system !== undefined) details.push(system)
  if (details.length === 0 && /^AI_\w{1,60}$/.test(name)) details.push(name.slice('AI_'.length))
  if (details.length === 0 && odd !== undefined) details.push(`${odd} was thrown`)
  return `${WORDS[code]}${details.length > 0 ? ` (${details.join(', ')})` : ''}.`
}
