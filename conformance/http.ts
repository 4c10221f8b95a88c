import { waitMs } from './arrivals.ts'
import { Failed } from './outcome.ts'

/** What a server answered, read by whoever asked for it: the kit knows no generated types. */
// biome-ignore lint/suspicious/noExplicitAny: each check reads what its own document asked for
export type Anything = any

/** The server that is checked. */
export interface Target {
  /** The address of its GraphQL path. */
  endpoint: string
  /** Sent as `Authorization: Bearer …` over HTTP and as `authorization` in the connection's parameters over WebSocket. */
  token: string | null
  /** The model of the sessions that checks create. */
  model: string
}

export interface GraphqlError {
  message: string
  path?: (string | number)[]
  extensions?: { code?: string; requestId?: string }
}

export interface Answer {
  data?: Anything
  errors?: GraphqlError[]
}

export interface Reply {
  status: number
  headers: Headers
  text: string
  /** Undefined if the body is not JSON. */
  body: (Answer & Answer[]) | undefined
}

export const authorization = ({ token }: Target): Record<string, string> =>
  token === null ? {} : { authorization: `Bearer ${token}` }

/** One POST of any body, answered within the usual wait. */
export async function post(target: Target, body: unknown, headers: Record<string, string> = {}): Promise<Reply> {
  const response = await fetch(target.endpoint, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json', ...authorization(target), ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
    signal: AbortSignal.timeout(waitMs),
  })
  const text = await response.text()
  return { status: response.status, headers: response.headers, text, body: parsed(text) }
}

/** One operation; errors are part of the answer. */
export async function answer(target: Target, query: string, variables?: Record<string, unknown>): Promise<Answer> {
  const { status, text, body } = await post(target, { query, variables })
  if (body === undefined) throw new Failed('an answer to a GraphQL operation', 'JSON', `HTTP ${status} ${text}`)
  return body
}

/** One operation that has to go well; answers its data. */
export async function ask(target: Target, query: string, variables?: Record<string, unknown>): Promise<Anything> {
  const { data, errors } = await answer(target, query, variables)
  if (errors) throw new Failed(`the operation ${query.slice(0, 80)}`, 'no errors', errors)
  return data
}

function parsed(text: string): Reply['body'] {
  try {
    return JSON.parse(text) as Reply['body']
  } catch {
    return undefined
  }
}
