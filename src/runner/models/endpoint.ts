/** An HTTP API with chat models: where it is and what proves who we are. */
export interface Endpoint {
  baseUrl: string
  headers: Record<string, string>
  /** Appended to the path of the listing, as `?limit=1000`. */
  listQuery?: string
}

const LIST_TIMEOUT_MS = 2000
const LIST_BYTES = 8 * 1024 * 1024
const LIST_MODELS = 1000

/**
 * The endpoint for a base URL. `user:password@` in it becomes a Basic header (fetch refuses such URLs and would quote
 * them in its error); an API key takes precedence.
 */
export function endpoint(baseUrl: string, apiKey?: string): Endpoint {
  const url = new URL(baseUrl)
  const headers: Record<string, string> = {}
  if (apiKey) headers.Authorization = `Bearer ${apiKey}`
  else if (url.username !== '' || url.password !== '') {
    const pair = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`
    headers.Authorization = `Basic ${Buffer.from(pair).toString('base64')}`
  }
  url.username = ''
  url.password = ''
  return { baseUrl: url.toString().replace(/\/+$/, ''), headers }
}

/** fetch that makes one request: a redirect is an answer (an error), not a second request. */
export const fetchOnce: typeof fetch = (input, init) => fetch(input, { ...init, redirect: 'manual' })

/**
 * The model names that `GET {base}/models` lists, at most 1000, within 2 s.
 *
 * @throws when the endpoint does not answer, or not with such a list
 */
export async function listModels({ baseUrl, headers, listQuery = '' }: Endpoint): Promise<string[]> {
  const signal = AbortSignal.timeout(LIST_TIMEOUT_MS)
  const response = await fetchOnce(`${baseUrl}/models${listQuery}`, {
    headers: { ...headers, Accept: 'application/json' },
    signal,
  })
  if (!response.ok || response.body === null) {
    await response.body?.cancel()
    throw new Error(`GET /models answered HTTP ${response.status}`)
  }
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of response.body) {
    size += chunk.byteLength
    if (size > LIST_BYTES) throw new Error('GET /models answered with more than 8 MiB')
    chunks.push(chunk)
  }
  const body: unknown = JSON.parse(Buffer.concat(chunks).toString('utf8'))
  const data = (body as { data?: unknown } | null)?.data
  if (!Array.isArray(data)) throw new Error('GET /models answered without a list')
  return data
    .map((entry: { id?: unknown } | null) => entry?.id)
    .filter((id): id is string => typeof id === 'string' && /^[^\s\p{Cc}\p{Cs}]{1,200}$/u.test(id))
    .slice(0, LIST_MODELS)
}
