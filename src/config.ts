import { resolve } from 'node:path'
import { type Auth, isLoopback, readKeys } from './config/auth.ts'
import { ConfigError } from './config/error.ts'
import { loadFile } from './config/file.ts'
import type { McpServer } from './config/mcp-servers.ts'
import type { Tool } from './config/tool.ts'
import { unsentSignals, wantsTraces } from './config/traces.ts'
import { defaultLimits, type FileConfig, type Limits, type ModelConfig, readUserConfig } from './config/user-config.ts'
import { type Environment, type LogLevel, readEnvironment, strangers } from './config/variables.ts'

export type { ApiKey } from './config/api-keys.ts'
export type { Auth, AuthConfig, Jwt } from './config/auth.ts'
export { ConfigError } from './config/error.ts'
export type { McpCommand, McpEndpoint, McpServer } from './config/mcp-servers.ts'
export {
  defineTool,
  type JsonSchema,
  prepareTool,
  type Tool,
  type ToolContext,
  type ToolDefinition,
} from './config/tool.ts'
export {
  defineConfig,
  type Limits,
  type ModelConfig,
  reservedToolNames,
  type UserConfig,
} from './config/user-config.ts'
export type { LogLevel } from './config/variables.ts'

type FromEnvironment = Omit<
  Environment,
  | 'configFile'
  | 'openaiApiKey'
  | 'openaiBaseUrl'
  | 'anthropicApiKey'
  | 'anthropicBaseUrl'
  | 'compatibleBaseUrl'
  | 'compatibleApiKey'
  | 'apiKeys'
  | 'apiKeysFile'
>

/** Everything that a user sets, checked, with defaults filled in (design section 12). Times are in milliseconds. */
export interface Config extends Readonly<FromEnvironment> {
  /** Absolute. */
  readonly dataDir: string
  readonly logLevel: LogLevel
  /** Brings `openai/…`. */
  readonly openai?: { readonly apiKey: string; readonly baseUrl?: string }
  /** Brings `anthropic/…`. */
  readonly anthropic?: { readonly apiKey: string; readonly baseUrl?: string }
  /** Brings `compatible/…`. */
  readonly compatible?: { readonly baseUrl: string; readonly apiKey?: string }
  readonly models: Record<string, ModelConfig>
  readonly tools: Tool[]
  /** By name. May hold secrets: never to be logged. */
  readonly mcpServers: Readonly<Record<string, McpServer>>
  /** How long an approval may stay open where the tool does not say; undefined: for ever. */
  readonly approvalExpiresMs?: number
  readonly limits: Readonly<Limits>
  /** How callers show who they are; undefined: anybody who reaches the address is the tenant `default`. */
  readonly auth?: Auth
  /** Spans are sent, as OTEL_* say. */
  readonly traces: boolean
  /** What the user should know, though it hinders nothing: to be logged at start. Never holds a secret. */
  readonly warnings: readonly string[]
}

/**
 * Reads the environment and the config file. The file is evaluated once; the result is frozen.
 *
 * @throws ConfigError that lists every problem found
 */
export async function loadConfig(from: { env?: NodeJS.ProcessEnv; cwd?: string } = {}): Promise<Config> {
  const { env = process.env, cwd = process.cwd() } = from
  const { values, problems } = readEnvironment(env)
  let file: FileConfig = { models: {}, tools: [], mcpServers: {}, limits: defaultLimits }
  try {
    const loaded = await loadFile(cwd, values.configFile)
    if (loaded) file = readUserConfig(loaded)
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    if (problems.length === 0) throw error // with its cause
    problems.push(...error.problems)
  }
  const keys = readKeys(values.apiKeys, values.apiKeysFile && resolve(cwd, values.apiKeysFile))
  problems.push(...keys.problems)
  const auth: Auth | undefined = file.jwt ? { keys: [], ...keys.auth, jwt: file.jwt } : keys.auth
  problems.push(...contradictions(values, file, auth))
  if (problems.length > 0) throw new ConfigError(problems)

  const {
    configFile,
    openaiApiKey,
    openaiBaseUrl,
    anthropicApiKey,
    anthropicBaseUrl,
    compatibleBaseUrl,
    compatibleApiKey,
    apiKeys,
    apiKeysFile,
    ...rest
  } = values
  const config: Config = {
    ...rest,
    dataDir: resolve(cwd, values.dataDir),
    ...(openaiApiKey && {
      openai: Object.freeze({ apiKey: openaiApiKey, ...(openaiBaseUrl && { baseUrl: openaiBaseUrl }) }),
    }),
    ...(anthropicApiKey && {
      anthropic: Object.freeze({ apiKey: anthropicApiKey, ...(anthropicBaseUrl && { baseUrl: anthropicBaseUrl }) }),
    }),
    ...(compatibleBaseUrl && {
      compatible: Object.freeze({ baseUrl: compatibleBaseUrl, ...(compatibleApiKey && { apiKey: compatibleApiKey }) }),
    }),
    models: Object.freeze(file.models),
    tools: Object.freeze(file.tools) as Tool[],
    mcpServers: Object.freeze(file.mcpServers),
    ...(file.approvalExpiresMs !== undefined && { approvalExpiresMs: file.approvalExpiresMs }),
    limits: Object.freeze(file.limits),
    ...(auth && { auth: Object.freeze(auth) }),
    traces: wantsTraces(env),
    warnings: Object.freeze([...strangers(env), ...idle(values, auth), ...unsentSignals(env)]),
  }
  return Object.freeze(config)
}

/** Rules between settings: none may do nothing in silence. */
function contradictions(values: Environment, file: FileConfig, auth: Auth | undefined): string[] {
  const problems: string[] = []
  if (auth === undefined && !isLoopback(values.host)) {
    problems.push(
      `HOST is "${values.host}": without authentication whoever reaches that address could read and steer every session; ` +
        'must be a loopback address (127.0.0.1, ::1, localhost), or set HOLDFAST_API_KEYS, HOLDFAST_API_KEYS_FILE or `auth` of the config file',
    )
  }
  if (values.renewMs >= values.leaseMs) {
    problems.push(
      `HOLDFAST_RENEW_MS is ${values.renewMs}: must be less than HOLDFAST_LEASE_MS (${values.leaseMs}), else every lease runs out`,
    )
  }
  if (values.compatibleApiKey !== undefined && values.compatibleBaseUrl === undefined) {
    problems.push(
      'OPENAI_COMPATIBLE_API_KEY (value not shown): needs OPENAI_COMPATIBLE_BASE_URL, else it is for nothing',
    )
  }
  for (const [id, { model }] of Object.entries(file.models)) {
    if (model === undefined && !/^(demo|openai|anthropic|compatible)\//.test(id)) {
      problems.push(
        `models["${id}"]: no provider of that name is supported by this version: give the model itself as \`model\``,
      )
    }
  }
  const unavailable = whyUnavailable(values, file)
  if (unavailable) problems.push(`HOLDFAST_MODEL is "${values.model}": ${unavailable}`)
  return problems
}

/** Why the default model cannot be used, or undefined if it can. */
function whyUnavailable(
  { model, openaiApiKey, anthropicApiKey, compatibleBaseUrl }: Environment,
  { models }: FileConfig,
): string | undefined {
  if (Object.hasOwn(models, model) && models[model]?.model !== undefined) return undefined
  const provider = model.slice(0, model.indexOf('/'))
  if (provider === 'openai') return openaiApiKey ? undefined : 'openai/… needs OPENAI_API_KEY'
  if (provider === 'compatible') return compatibleBaseUrl ? undefined : 'compatible/… needs OPENAI_COMPATIBLE_BASE_URL'
  if (provider === 'anthropic') return anthropicApiKey ? undefined : 'anthropic/… needs ANTHROPIC_API_KEY'
  if (model === 'demo/echo') return undefined
  return 'must be demo/echo, openai/…, anthropic/…, compatible/… or a model of the config file that brings its own `model`'
}

/** Settings that do nothing beside the others. No reason to refuse: other programs read the same base URLs. */
function idle(
  { openaiApiKey, openaiBaseUrl, anthropicApiKey, anthropicBaseUrl, allowedHosts }: Environment,
  auth: Auth | undefined,
): string[] {
  const alone = (name: string) => `${name}_BASE_URL is set without ${name}_API_KEY and is not used`
  return [
    ...(openaiBaseUrl && !openaiApiKey ? [alone('OPENAI')] : []),
    ...(anthropicBaseUrl && !anthropicApiKey ? [alone('ANTHROPIC')] : []),
    ...(allowedHosts && auth
      ? ['HOLDFAST_ALLOWED_HOSTS is set with authentication and is not used: any name will do']
      : []),
  ]
}
