import type { LanguageModelV4 } from '@ai-sdk/provider'
import { z } from 'zod'
import { type AuthConfig, type Jwt, readAuth } from './auth.ts'
import { ConfigError, nearest, shown } from './error.ts'
import type { Loaded } from './file.ts'
import { type McpServer, type McpServersConfig, readMcpServers } from './mcp-servers.ts'
import { expiryMs, prepareTool, type Tool, type ToolDefinition, toolFields } from './tool.ts'
import { MODEL_ID } from './variables.ts'

/** A model by its full id. */
export interface ModelConfig {
  /** Size of the context window in tokens. */
  contextTokens?: number
  /** A model of your own, from any AI SDK provider. Without it the id's provider has to be one that Holdfast brings. */
  model?: LanguageModelV4
}

/** What may be stored and queued. Beyond: LimitExceededError or InvalidInputError. */
export interface Limits {
  /** Pending inputs per session. */
  pendingInputs: number
  /** New sessions a day per tenant. */
  sessionsPerDay: number
  /** Bytes (UTF-8) of a prompt's text. */
  textBytes: number
  /** Bytes of all attachments of a prompt. */
  attachmentBytes: number
}

/** What a config file exports. */
export interface UserConfig {
  models?: Record<string, ModelConfig>
  tools?: ToolDefinition[]
  /** By name. Their tools are called `name__tool`. */
  mcpServers?: McpServersConfig
  /** How long an approval may stay open in milliseconds, where the tool does not say; for ever if left out. */
  approvalExpiresMs?: number
  limits?: Partial<Limits>
  /** Who may call; API keys are given by environment variables. */
  auth?: AuthConfig
}

/** The file's content after the checks, with defaults. */
export interface FileConfig {
  models: Record<string, ModelConfig>
  tools: Tool[]
  mcpServers: Record<string, McpServer>
  approvalExpiresMs?: number
  limits: Limits
  jwt?: Jwt
}

export const defaultLimits: Limits = {
  pendingInputs: 1000,
  sessionsPerDay: 10_000,
  textBytes: 4 * 1024 * 1024,
  attachmentBytes: 20 * 1024 * 1024,
}

/** Built-in tools: a config file must not take their names. */
export const reservedToolNames: readonly string[] = ['current_time', 'wait', 'ask_user']

/** Gives an editor the types of the config file. Changes nothing at run time. */
export function defineConfig(config: UserConfig): UserConfig {
  return config
}

const limit = z.int().min(1).optional()
const isModel = (value: unknown) =>
  typeof value === 'object' &&
  value !== null &&
  'doStream' in value &&
  'specificationVersion' in value &&
  value.specificationVersion === 'v4'

const shape = z.strictObject({
  models: z
    .record(
      z.string().regex(MODEL_ID, 'must have the form provider/model'),
      z.strictObject({
        contextTokens: z.int().min(1).optional(),
        model: z.custom(isModel, 'must be a language model of an AI SDK 7 provider (specification v4)').optional(),
      }),
    )
    .default({}),
  // Looked at one by one below.
  tools: z.array(z.unknown()).default([]),
  limits: z
    .strictObject({ pendingInputs: limit, sessionsPerDay: limit, textBytes: limit, attachmentBytes: limit })
    .default({}),
  approvalExpiresMs: expiryMs.optional(),
  // Looked at below, where no value can get into an error.
  mcpServers: z.unknown().optional(),
  auth: z.unknown().optional(),
})

const known = [...Object.keys(shape.shape), ...Object.keys(defaultLimits), 'contextTokens', 'model', ...toolFields]

/**
 * Checks what the config file exports.
 *
 * @throws ConfigError that lists every problem with file, field, value and rule
 */
export function readUserConfig({ name, content }: Loaded): FileConfig {
  if (typeof content !== 'object' || content === null) {
    throw new ConfigError([`${name}: the default export must be an object, here it is ${shown(content)}`])
  }
  const parsed = shape.safeParse(content)
  const problems = parsed.success ? [] : parsed.error.issues.flatMap((issue) => describe(name, content, [], issue))
  const given: unknown = (content as { tools?: unknown }).tools
  const tools: Tool[] = []
  for (const [index, entry] of (Array.isArray(given) ? given : []).entries()) {
    const label = (entry as { name?: unknown } | null)?.name
    const where = `${name}${typeof label === 'string' ? `: tool ${shown(label)}` : ''}`
    const prepared = prepareTool(entry)
    if ('issues' in prepared) {
      problems.push(...prepared.issues.flatMap((issue) => describe(where, entry, ['tools', index], issue)))
    } else {
      const taken = tools.some((tool) => tool.name === prepared.tool.name)
      if (taken) problems.push(`${where}: tools[${index}].name: is the name of an earlier tool, names must differ`)
      if (reservedToolNames.includes(prepared.tool.name)) {
        problems.push(`${where}: tools[${index}].name: is the name of a built-in tool, take another`)
      }
      tools.push(prepared.tool)
    }
  }
  const mcp = readMcpServers((content as { mcpServers?: unknown }).mcpServers)
  const auth = readAuth((content as { auth?: unknown }).auth)
  problems.push(...[...mcp.problems, ...auth.problems].map((problem) => `${name}: ${problem}`))
  if (!parsed.success || problems.length > 0) throw new ConfigError(problems)
  const { models, limits, approvalExpiresMs } = parsed.data as {
    models: FileConfig['models']
    limits: Partial<Limits>
    approvalExpiresMs?: number
  }
  return {
    models,
    tools,
    mcpServers: mcp.servers,
    ...(approvalExpiresMs !== undefined && { approvalExpiresMs }),
    limits: { ...defaultLimits, ...withoutUndefined(limits) },
    ...(auth.jwt && { jwt: auth.jwt }),
  }
}

/** One text per problem of an issue. The value is shown for plain ones only: an object may hold a secret. */
function describe(where: string, root: unknown, base: PropertyKey[], issue: z.core.$ZodIssue): string[] {
  const field = pathText([...base, ...issue.path])
  const at = field && `${field}: `
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => {
      const meant = nearest(key, known)
      return `${where}: ${at}unknown key ${shown(key)}${meant ? `, did you mean "${meant}"?` : ''}`
    })
  }
  const value = issue.path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | undefined)?.[key], root)
  const message = issue.code === 'invalid_key' ? (issue.issues[0]?.message ?? issue.message) : issue.message
  if (issue.code === 'invalid_key') return [`${where}: ${field}: ${message}`]
  if (value === undefined) return [`${where}: ${at}is missing: ${message}`]
  return [`${where}: ${at}${plain(value) ? `is ${shown(value)}: ` : ''}${message}`]
}

const plain = (value: unknown) => value === null || ['string', 'number', 'boolean'].includes(typeof value)

function pathText(path: PropertyKey[]): string {
  return path.reduce<string>((text, key) => {
    if (typeof key === 'number') return `${text}[${key}]`
    if (!/^[\w$]+$/.test(String(key))) return `${text}[${JSON.stringify(String(key))}]`
    return text === '' ? String(key) : `${text}.${String(key)}`
  }, '')
}

function withoutUndefined<T extends object>(object: T): Partial<T> {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as Partial<T>
}
