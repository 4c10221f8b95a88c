// What of an MCP server's settings must not be seen: the values of its environment and headers, what stands in its URL beside the
// address, and its arguments. Servers and libraries quote such things in their errors (SEC-13).

import type { McpServer } from '../../config.ts'

// Shorter ones ("1", "true", "prod") are no secrets and would take ordinary words out of every text.
const SHORTEST = 6

function secretsOf(server: McpServer): string[] {
  if ('command' in server) return [...Object.values(server.env), ...server.args]
  const { username, password, search } = new URL(server.url)
  const inUrl = [username, password].flatMap((part) => [part, decoded(part)])
  // "Bearer abc" is quoted whole or without its scheme.
  const inHeaders = Object.values(server.headers).flatMap((value) => [value, value.slice(value.indexOf(' ') + 1)])
  const parameters = [...new URLSearchParams(search).values()].flatMap((value) => [value, encodeURIComponent(value)])
  return [...inHeaders, ...inUrl, ...parameters]
}

/** A function that replaces this server's secrets in a text, plain or inside JSON. */
export function maskFor(server: McpServer): (text: string) => string {
  const secrets = secretsOf(server).flatMap((secret) => [secret, JSON.stringify(secret).slice(1, -1)])
  const found = [...new Set(secrets)].filter((secret) => secret.length >= SHORTEST).sort((a, b) => b.length - a.length)
  return (text) => found.reduce((masked, secret) => masked.replaceAll(secret, '[secret]'), text)
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}
