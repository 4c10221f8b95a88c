/** A value for a person to read: text as it is, everything else as indented JSON. Cut at `most` characters, as a page has an end. */
export function readable(value: unknown, most = 20_000): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? '')
  return text.length <= most ? text : `${text.slice(0, most)}\n… ${text.length - most} more characters`
}

/** A tool's output: parts of text are joined, as tools of MCP servers give them. */
export function readableOutput(value: unknown): string {
  const content = (value as { content?: unknown } | null)?.content
  if (Array.isArray(content) && content.length > 0 && content.every(isText))
    return readable(content.map(({ text }) => text).join('\n'))
  return readable(value)
}

const isText = (part: unknown): part is { text: string } =>
  (part as { type?: unknown } | null)?.type === 'text' && typeof (part as { text?: unknown }).text === 'string'

/** One line that says what a call is about. */
export function gist(input: unknown, most = 90): string {
  if (input === null || input === undefined) return ''
  const text = typeof input === 'string' ? input : JSON.stringify(input)
  return text === '{}' ? '' : text.length <= most ? text : `${text.slice(0, most)}…`
}
