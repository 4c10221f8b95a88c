import { nearest } from './error.ts'

/** An MCP server that this process starts and talks to over its standard input and output. */
export interface McpCommand {
  command: string
  args: string[]
  /** Besides PATH, HOME and the like: nothing else of our own environment reaches it. */
  env: Record<string, string>
}

/** An MCP server that is reached over streamable HTTP. */
export interface McpEndpoint {
  url: string
  /** Sent with every request. */
  headers: Record<string, string>
}

export type McpServer = McpCommand | McpEndpoint

/** MCP servers as a config file may write them, by name. */
export type McpServersConfig = Record<
  string,
  { command: string; args?: string[]; env?: Record<string, string> } | { url: string; headers?: Record<string, string> }
>

type Rule = (value: unknown) => string | undefined
const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const isText = (value: unknown): value is string => typeof value === 'string' && !value.includes('\0')

const textRule: Rule = (value) => (isText(value) && value !== '' ? undefined : 'must be a text that is not empty')
const listRule: Rule = (value) => (Array.isArray(value) && value.every(isText) ? undefined : 'must be a list of texts')
const envRule: Rule = (value) =>
  isRecord(value) && Object.entries(value).every(([name, text]) => /^[^=\0]+$/.test(name) && isText(text))
    ? undefined
    : 'must be an object of texts by variable name'
const urlRule: Rule = (value) =>
  isText(value) && URL.canParse(value) && /^https?:$/.test(new URL(value).protocol)
    ? undefined
    : 'must be a URL such as https://host/mcp'

const headersRule: Rule = (value) => {
  const rule = 'must be an object of texts by header name, as HTTP allows them'
  if (!isRecord(value) || !Object.values(value).every(isText)) return rule
  try {
    new Headers(value as Record<string, string>)
    return undefined
  } catch {
    return rule // the error itself would quote the value
  }
}

const kinds = {
  command: { needed: { command: textRule }, optional: { args: listRule, env: envRule } },
  url: { needed: { url: urlRule }, optional: { headers: headersRule } },
} satisfies Record<string, { needed: Record<string, Rule>; optional: Record<string, Rule> }>

/** The name becomes the first part of each tool's name, `server__tool`, which has 64 characters at most. */
const NAME = /^[a-zA-Z0-9_-]{1,32}$/

/**
 * Checks `mcpServers` of a config file. Problems name field and rule and never a value: any of them may be or hold a secret.
 */
export function readMcpServers(given: unknown): { servers: Record<string, McpServer>; problems: string[] } {
  const servers: Record<string, McpServer> = {}
  if (given === undefined) return { servers, problems: [] }
  if (!isRecord(given)) return { servers, problems: ['mcpServers: must be an object of servers by name'] }
  const problems: string[] = []
  for (const [name, server] of Object.entries(given)) {
    const at = NAME.test(name) ? `mcpServers.${name}` : `mcpServers[${JSON.stringify(name.slice(0, 40))}]`
    if (!NAME.test(name)) problems.push(`${at}: a server's name has 1 to 32 letters, digits, "_" or "-"`)
    const found = isRecord(server) ? problemsOf(server) : ['must be an object with `command` or with `url`']
    problems.push(...found.map((text) => `${at}${text.startsWith('must') ? ': ' : '.'}${text}`))
    if (found.length === 0) servers[name] = complete(server as McpServersConfig[string])
  }
  return { servers, problems }
}

function problemsOf(server: Record<string, unknown>): string[] {
  if ('command' in server === 'url' in server) return ['must have either `command` or `url`']
  const { needed, optional } = 'command' in server ? kinds.command : kinds.url
  const rules: Record<string, Rule> = { ...needed, ...optional }
  return Object.entries(server).flatMap(([field, value]) => {
    const rule = Object.hasOwn(rules, field) ? rules[field] : undefined
    if (rule === undefined) {
      const meant = nearest(field, Object.keys(rules))
      return [`${field.slice(0, 40)}: unknown key${meant ? `, did you mean "${meant}"?` : ''}`]
    }
    const broken = value === undefined && Object.hasOwn(optional, field) ? undefined : rule(value)
    return broken ? [`${field}: ${broken}`] : []
  })
}

function complete(server: McpServersConfig[string]): McpServer {
  if ('url' in server) return Object.freeze({ url: server.url, headers: { ...server.headers } })
  return Object.freeze({ command: server.command, args: [...(server.args ?? [])], env: { ...server.env } })
}
