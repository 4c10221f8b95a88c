import { readFileSync, statSync } from 'node:fs'
import { isIPv4 } from 'node:net'
import { type ApiKey, keysFileBytesMax, parseKeys } from './api-keys.ts'
import { nearest } from './error.ts'

/** How callers show who they are, checked. May hold a secret: never to be logged. */
export interface Auth {
  /** Of HOLDFAST_API_KEYS: they count as long as the process lives. */
  readonly keys: readonly ApiKey[]
  /** Of HOLDFAST_API_KEYS_FILE, as it was at start; it is read again. */
  readonly file?: { readonly path: string; readonly keys: readonly ApiKey[] }
  readonly jwt?: Jwt
}

/** Which JSON Web Tokens count. */
export interface Jwt {
  readonly key: { readonly secret: Uint8Array } | { readonly jwksUrl: URL }
  readonly algorithms: readonly string[]
  readonly issuer?: string
  readonly audience?: string | readonly string[]
  readonly tenantClaim: string
}

/** `auth` as a config file may write it. */
export interface AuthConfig {
  jwt?: {
    /** Of HS256, HS384, HS512; at least as many bytes as the hash has (32, 48, 64). */
    secret?: string
    /** Where the issuer publishes its public keys. */
    jwksUrl?: string
    /** What `iss` has to be. */
    issuer?: string
    /** What `aud` has to be or contain; one of several. */
    audience?: string | string[]
    /** The claim that names the tenant: `tenant` if left out. */
    tenantClaim?: string
    /** HS256 with a secret, all of RS, PS, ES and EdDSA with a JWKS, if left out. */
    algorithms?: string[]
  }
}

const hashBytes: Record<string, number> = { HS256: 32, HS384: 48, HS512: 64 }
const asymmetric = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519']

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const isName = (value: unknown): value is string => typeof value === 'string' && value !== ''
const isNames = (value: unknown): value is string[] => Array.isArray(value) && value.length > 0 && value.every(isName)

/** An address at which only this machine can be reached. */
export function isLoopback(host: string): boolean {
  const bare = host.replace(/^\[(.*)\]$/, '$1')
  return bare === 'localhost' || bare === '::1' || (isIPv4(bare) && bare.startsWith('127.'))
}

/** Checks `auth` of a config file. Problems name field and rule and never a value: it may be a secret. */
export function readAuth(given: unknown): { jwt?: Jwt; problems: string[] } {
  if (given === undefined) return { problems: [] }
  if (!isRecord(given)) return { problems: ['auth: must be an object such as { jwt: { secret: … } }'] }
  const problems = unknownKeys('auth', given, ['jwt'])
  if (given.jwt === undefined) {
    if (problems.length === 0)
      problems.push('auth: must have `jwt`; API keys are given by HOLDFAST_API_KEYS or HOLDFAST_API_KEYS_FILE')
    return { problems }
  }
  if (!isRecord(given.jwt)) return { problems: [...problems, 'auth.jwt: must be an object with `secret` or `jwksUrl`'] }
  const { secret, jwksUrl, issuer, audience, tenantClaim = 'tenant', algorithms } = given.jwt
  const rule = (field: string, text: string) => void problems.push(`auth.jwt.${field}: ${text}`)
  problems.push(
    ...unknownKeys('auth.jwt', given.jwt, ['secret', 'jwksUrl', 'issuer', 'audience', 'tenantClaim', 'algorithms']),
  )
  if ((secret === undefined) === (jwksUrl === undefined))
    problems.push('auth.jwt: must have either `secret` or `jwksUrl`')
  const symmetric = secret !== undefined
  const possible = symmetric ? Object.keys(hashBytes) : asymmetric
  const listed = algorithms === undefined ? (symmetric ? ['HS256'] : asymmetric) : algorithms
  const areAlgorithms = isNames(listed) && listed.every((name) => possible.includes(name))
  if (!areAlgorithms)
    rule('algorithms', `must be a list of some of ${possible.join(', ')} with \`${symmetric ? 'secret' : 'jwksUrl'}\``)
  const bytes = isName(secret) ? new TextEncoder().encode(secret) : undefined
  if (symmetric) {
    const least = areAlgorithms ? Math.max(...listed.map((name) => hashBytes[name]!)) : 32
    if (bytes === undefined || bytes.length < least)
      rule('secret', `must be a text of at least ${least} bytes, as long as the hash of its algorithm`)
  }
  const url = isName(jwksUrl) && URL.canParse(jwksUrl) ? new URL(jwksUrl) : undefined
  if (jwksUrl !== undefined && !isTrustworthy(url))
    rule('jwksUrl', 'must be an https URL, or an http one of a loopback address, without user and password')
  if (issuer !== undefined && !isName(issuer)) rule('issuer', 'must be a text that is not empty')
  if (audience !== undefined && !isName(audience) && !isNames(audience))
    rule('audience', 'must be a text that is not empty, or a list of such')
  if (!isName(tenantClaim)) rule('tenantClaim', 'must be the name of a claim')
  if (problems.length > 0) return { problems }
  return {
    problems,
    jwt: Object.freeze({
      key: bytes === undefined ? { jwksUrl: url! } : { secret: bytes },
      algorithms: listed as string[],
      tenantClaim: tenantClaim as string,
      ...(issuer !== undefined && { issuer: issuer as string }),
      ...(audience !== undefined && { audience: audience as string | string[] }),
    }),
  }
}

/** The keys of HOLDFAST_API_KEYS and of the file (an absolute path). Problems name the variable and the entry, never a key. */
export function readKeys(list: string | undefined, path: string | undefined): { auth?: Auth; problems: string[] } {
  if (list === undefined && path === undefined) return { problems: [] }
  const problems: string[] = []
  const fromList = parseKeys(list ?? '', 'list')
  problems.push(...fromList.problems.map((text) => `HOLDFAST_API_KEYS (value not shown): ${text}`))
  if (list !== undefined && fromList.keys.length === 0 && problems.length === 0)
    problems.push('HOLDFAST_API_KEYS (value not shown): must hold at least one key:tenant')
  if (path === undefined) return { auth: { keys: fromList.keys }, problems }
  const fault = (text: string) => void problems.push(`HOLDFAST_API_KEYS_FILE is ${JSON.stringify(path)}: ${text}`)
  const fromFile = parseKeys(readKeysFile(path, fault), 'lines')
  for (const text of fromFile.problems) fault(text)
  if (fromFile.keys.length === 0 && problems.length === 0) fault('must hold at least one line key:tenant')
  const listed = new Set(fromList.keys.map(({ digest }) => digest.toString('hex')))
  if (fromFile.keys.some(({ digest }) => listed.has(digest.toString('hex'))))
    fault('a key of it stands in HOLDFAST_API_KEYS too, where taking it out of the file would not end it')
  return { auth: { keys: fromList.keys, file: { path, keys: fromFile.keys } }, problems }
}

function readKeysFile(path: string, fault: (text: string) => void): string {
  try {
    if (statSync(path).size > keysFileBytesMax) fault(`must have at most ${keysFileBytesMax} bytes`)
    else return readFileSync(path, 'utf8')
  } catch (error) {
    fault(`cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`)
  }
  return ''
}

const isTrustworthy = (url: URL | undefined) =>
  url !== undefined &&
  url.username === '' &&
  url.password === '' &&
  (url.protocol === 'https:' || (url.protocol === 'http:' && isLoopback(url.hostname)))

function unknownKeys(at: string, given: Record<string, unknown>, known: string[]): string[] {
  return Object.keys(given)
    .filter((key) => !known.includes(key))
    .map((key) => {
      const meant = nearest(key, known)
      return `${at}.${key.slice(0, 40)}: unknown key${meant ? `, did you mean "${meant}"?` : ''}`
    })
}
