import { isIP } from 'node:net'
import { z } from 'zod'
import { nearest, shown } from './error.ts'

/** One environment variable: what it is called, what holds when it is not set, and the rule for its value. */
export interface Variable<T, D extends T | undefined = T | undefined> {
  name: string
  fallback: D
  /** Its value never appears in an error. */
  secret: boolean
  schema: z.ZodType<T, string>
}

// Above this a Node timer fires at once instead of late.
const LONGEST_TIMER = 2 ** 31 - 1
const TEN_YEARS_MS = 315_576_000_000

function variable<T, D extends T | undefined>(name: string, fallback: D, schema: z.ZodType<T, string>): Variable<T, D> {
  return { name, fallback, secret: false, schema }
}

function secret<T>(name: string, schema: z.ZodType<T, string>): Variable<T, undefined> {
  return { name, fallback: undefined, secret: true, schema }
}

/** A whole number in plain decimal digits: `Number` alone would also take "1e3", "0x10" and " 7 ". */
function whole(least: number, most: number, unit = '') {
  const rule = `must be a whole number${unit && ` of ${unit}`} from ${least} to ${most}`
  return z
    .string()
    .regex(/^\d{1,15}$/, rule)
    .transform(Number)
    .refine((value) => value >= least && value <= most, rule)
}

const milliseconds = (name: string, fallback: number, most = LONGEST_TIMER) =>
  variable(name, fallback, whole(1, most, 'milliseconds'))

const text = z.string()
const url = (protocols: string[], example: string) =>
  z.string().refine((value) => {
    const parsed = URL.canParse(value) ? new URL(value) : undefined
    return parsed !== undefined && protocols.includes(parsed.protocol)
  }, `must be a URL such as ${example}`)
// user:password@ may stand in it, so a base URL is shown no more than a key.
const baseUrl = (name: string) => secret(name, url(['http:', 'https:'], 'http://127.0.0.1:11434/v1'))

const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
export type LogLevel = (typeof logLevels)[number]
export const MODEL_ID = /^[a-zA-Z0-9][a-zA-Z0-9_-]*\/\S+$/

const hostName = /^(?=.{1,253}$)[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*$/
/** As they are compared: in lower case, without the dot that may end them. */
const hostNames = z.string().transform((given, problems) => {
  const names = given.split(',').map((name) => name.trim().toLowerCase().replace(/\.$/, ''))
  const bad = names.find((name) => !hostName.test(name))
  if (bad !== undefined)
    problems.addIssue(
      `${shown(bad)} is not a host name: must be names separated by commas, without scheme, port, path or *, such as holdfast.example.com`,
    )
  return names as readonly string[]
})

const bitsOf = { 4: 32, 6: 128 } as Record<number, number>
const addressBlocks = z.string().transform((given, problems) => {
  const blocks = given.split(',').map((block) => block.trim())
  const bad = blocks.find((block) => {
    const [address = '', bits] = block.split('/')
    return !(
      isIP(address) &&
      (bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= bitsOf[isIP(address)]!))
    )
  })
  if (bad !== undefined)
    problems.addIssue(
      `${shown(bad)} is no address: must be addresses or blocks of them separated by commas, such as 10.0.0.7,10.1.0.0/16`,
    )
  return blocks as readonly string[]
})

/** Every environment variable that Holdfast reads, by its name in `Config` (design section 12). */
export const variables = {
  host: variable('HOST', '127.0.0.1', z.string().regex(/^\S+$/, 'must be an address or a host name')),
  allowedHosts: variable('HOLDFAST_ALLOWED_HOSTS', undefined, hostNames),
  port: variable('PORT', 4000, whole(0, 65_535)),
  databaseUrl: secret('DATABASE_URL', url(['postgres:', 'postgresql:'], 'postgresql://user:password@host:5432/name')),
  dataDir: variable('HOLDFAST_DATA_DIR', '.holdfast', text),
  dbPool: variable('HOLDFAST_DB_POOL', 10, whole(1, 1000)),
  configFile: variable('HOLDFAST_CONFIG', undefined, text),
  model: variable('HOLDFAST_MODEL', 'demo/echo', z.string().regex(MODEL_ID, 'must have the form provider/model')),
  openaiApiKey: secret('OPENAI_API_KEY', text),
  openaiBaseUrl: baseUrl('OPENAI_BASE_URL'),
  anthropicApiKey: secret('ANTHROPIC_API_KEY', text),
  anthropicBaseUrl: baseUrl('ANTHROPIC_BASE_URL'),
  compatibleBaseUrl: baseUrl('OPENAI_COMPATIBLE_BASE_URL'),
  compatibleApiKey: secret('OPENAI_COMPATIBLE_API_KEY', text),
  leaseMs: milliseconds('HOLDFAST_LEASE_MS', 30_000),
  renewMs: milliseconds('HOLDFAST_RENEW_MS', 10_000),
  scanMs: milliseconds('HOLDFAST_SCAN_MS', 5_000),
  livenessGraceMs: milliseconds('HOLDFAST_LIVENESS_GRACE_MS', 2_000),
  pollMs: milliseconds('HOLDFAST_POLL_MS', 1_000),
  maxDrains: variable('HOLDFAST_MAX_DRAINS', 64, whole(1, 10_000)),
  stepLimit: variable('HOLDFAST_STEP_LIMIT', 50, whole(1, 100_000)),
  idleMs: milliseconds('HOLDFAST_IDLE_MS', 120_000),
  requestMs: milliseconds('HOLDFAST_REQUEST_MS', 3_600_000),
  toolTimeoutMs: milliseconds('HOLDFAST_TOOL_TIMEOUT_MS', 600_000),
  interruptGraceMs: milliseconds('HOLDFAST_INTERRUPT_GRACE_MS', 5_000),
  shutdownGraceMs: milliseconds('HOLDFAST_SHUTDOWN_GRACE_MS', 10_000),
  queryMs: milliseconds('HOLDFAST_QUERY_MS', 10_000),
  bytesMax: variable('HOLDFAST_BYTES_MAX', undefined, whole(16_000_000, 1_000_000_000_000, 'bytes')),
  stallMs: milliseconds('HOLDFAST_STALL_MS', 60_000),
  recoveryAttempts: variable('HOLDFAST_RECOVERY_ATTEMPTS', 3, whole(0, 1000)),
  recoveryMaxAgeMs: milliseconds('HOLDFAST_RECOVERY_MAX_AGE_MS', 86_400_000, TEN_YEARS_MS),
  maxUnauthenticated: variable('HOLDFAST_MAX_UNAUTHENTICATED', 1000, whole(1, 100_000)),
  maxOperations: variable('HOLDFAST_MAX_OPERATIONS', 64, whole(1, 10_000)),
  tenantOperations: variable('HOLDFAST_TENANT_OPERATIONS', 48, whole(1, 10_000)),
  tenantWaiting: variable('HOLDFAST_TENANT_WAITING', 2000, whole(0, 100_000)),
  tenantStreams: variable('HOLDFAST_TENANT_STREAMS', 5000, whole(1, 1_000_000)),
  tenantConnections: variable('HOLDFAST_TENANT_CONNECTIONS', 5000, whole(1, 1_000_000)),
  addressConnections: variable('HOLDFAST_ADDRESS_CONNECTIONS', 5000, whole(1, 1_000_000)),
  trustedProxies: variable('HOLDFAST_TRUSTED_PROXIES', undefined, addressBlocks),
  socketOperations: variable('HOLDFAST_SOCKET_OPERATIONS', 1000, whole(1, 100_000)),
  tenantQueriesPerSecond: variable('HOLDFAST_TENANT_QUERIES_PER_SECOND', 1000, whole(0, 1_000_000)),
  tenantMutationsPerSecond: variable('HOLDFAST_TENANT_MUTATIONS_PER_SECOND', 500, whole(0, 1_000_000)),
  tenantAdmissionsPerSecond: variable('HOLDFAST_TENANT_ADMISSIONS_PER_SECOND', 50, whole(0, 1_000_000)),
  apiKeys: secret('HOLDFAST_API_KEYS', text),
  apiKeysFile: variable('HOLDFAST_API_KEYS_FILE', undefined, text),
  logLevel: variable('LOG_LEVEL', 'info', z.enum(logLevels, `must be one of ${logLevels.join(', ')}`)),
}

type Variables = typeof variables
/** What the environment says, with defaults in the place of what it does not say. */
export type Environment = {
  [K in keyof Variables]: Variables[K] extends Variable<infer T, infer D>
    ? T | (undefined extends D ? undefined : never)
    : never
}

/**
 * Reads the variables. A variable that is empty counts as not set, as shells and container tools leave them so.
 * For one with a problem the default stands in, so that the rules between settings can still be looked at.
 */
export function readEnvironment(env: NodeJS.ProcessEnv): { values: Environment; problems: string[] } {
  const problems: string[] = []
  const values: Record<string, unknown> = {}
  for (const [key, { name, fallback, secret, schema }] of Object.entries<Variable<unknown>>(variables)) {
    values[key] = fallback
    const given = env[name]
    if (given === undefined || given === '') continue
    const parsed = schema.safeParse(given)
    if (parsed.success) values[key] = parsed.data
    else
      problems.push(
        `${name} ${secret ? '(value not shown)' : `is ${shown(given)}`}: ${parsed.error.issues[0]!.message}`,
      )
  }
  return { values: values as Environment, problems }
}

/** Notes on variables that look like Holdfast's and are not: a misspelt one would otherwise do nothing in silence. */
export function strangers(env: NodeJS.ProcessEnv): string[] {
  const known = new Set(Object.values<Variable<unknown>>(variables).map(({ name }) => name))
  return Object.keys(env)
    .filter((name) => name.startsWith('HOLDFAST_') && !known.has(name))
    .map((name) => {
      const meant = nearest(name, known)
      return `${name} is not a setting of Holdfast and is not used${meant ? `; did you mean ${meant}?` : ''}`
    })
}
