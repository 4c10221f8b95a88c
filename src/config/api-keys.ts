import { createHash, timingSafeEqual } from 'node:crypto'

/** An API key as this process remembers it: what was given is forgotten once its digest is taken. */
export interface ApiKey {
  /** SHA-256. */
  digest: Buffer
  tenant: string
}

/** What Authorization: Bearer can carry (RFC 6750), and long enough not to be guessed. */
const KEY = /^[A-Za-z0-9._~+/=-]{16,512}$/
const keyRule = 'a key has 16 to 512 characters of A-Z a-z 0-9 . _ ~ + / = -'
const TENANT = /^[A-Za-z0-9][A-Za-z0-9._:@|/+=-]{0,127}$/
const tenantRule =
  'a tenant begins with a letter or digit and has at most 128 characters of A-Z a-z 0-9 . _ : @ | / + = -'
const keysMax = 10_000
/** What a file with that many keys may take. */
export const keysFileBytesMax = 4_000_000

/** Can this be the name of a tenant? The same rule for API keys and for the claim of a JWT. */
export const isTenant = (value: unknown): value is string => typeof value === 'string' && TENANT.test(value)

/** The form in which a key is stored and compared. */
export const digestOf = (key: string): Buffer => createHash('sha256').update(key).digest()

/** The key with this digest. All are compared, whichever one it is, so that the time taken tells nothing. */
export function findKey(keys: readonly ApiKey[], digest: Buffer): ApiKey | undefined {
  let found: ApiKey | undefined
  for (const key of keys) if (timingSafeEqual(key.digest, digest)) found = key
  return found
}

/**
 * Reads `key:tenant` entries: of HOLDFAST_API_KEYS separated by commas, of a file one a line, with empty lines and `#` comments left
 * out. An entry with a problem gives no key. Problems name the entry by its number and the rule, never the key.
 */
export function parseKeys(text: string, form: 'list' | 'lines'): { keys: ApiKey[]; problems: string[] } {
  const keys: ApiKey[] = []
  const problems: string[] = []
  const seen = new Set<string>()
  for (const [index, raw] of text.split(form === 'list' ? ',' : '\n').entries()) {
    const entry = raw.trim()
    if (entry === '' || (form === 'lines' && entry.startsWith('#'))) continue
    const problem = (rule: string) => problems.push(`${form === 'list' ? 'entry' : 'line'} ${index + 1}: ${rule}`)
    const colon = entry.indexOf(':')
    const key = entry.slice(0, colon)
    const tenant = entry.slice(colon + 1)
    const digest = digestOf(key)
    if (colon < 0) problem('must have the form key:tenant')
    else if (!KEY.test(key)) problem(keyRule)
    else if (!isTenant(tenant)) problem(tenantRule)
    else if (seen.has(digest.toString('hex'))) problem('this key stands in an earlier entry too')
    else if (keys.length === keysMax) problem(`at most ${keysMax} keys`)
    else {
      seen.add(digest.toString('hex'))
      keys.push({ digest, tenant })
    }
  }
  return { keys, problems }
}
