// What an MCP tool answered, as output of a tool of ours: text and media parts (output.ts), in order.

import type { CallToolResult } from '@modelcontextprotocol/client'
import type { JsonValue } from '../../events.ts'

type Content = CallToolResult['content'][number]

/**
 * A plain text where there is just one, structured content where there is nothing else. Throws if the tool says that it failed; the
 * message is what it said.
 */
export function mcpOutput({ content, structuredContent, isError }: CallToolResult): JsonValue {
  const parts = (content ?? []).map(part)
  const texts = parts.flatMap((one) => (one.type === 'text' ? [one.text as string] : []))
  if (isError === true) throw new Error(texts.join('\n') || 'the tool failed and does not say why')
  if (parts.length === 0) return structuredContent === undefined ? '' : (structuredContent as JsonValue)
  return parts.length === 1 && texts.length === 1 ? texts[0]! : parts
}

function part(content: Content): { [key: string]: JsonValue } {
  switch (content.type) {
    case 'text':
      return { type: 'text', text: content.text }
    case 'image':
    case 'audio':
      return { type: 'media', data: content.data, mediaType: content.mimeType }
    case 'resource_link':
      return { type: 'text', text: `${content.name}: ${content.uri}` }
    case 'resource': {
      const { resource } = content
      if ('text' in resource) return { type: 'text', text: resource.text }
      return { type: 'media', data: resource.blob, mediaType: resource.mimeType ?? 'application/octet-stream' }
    }
    default:
      return { type: 'text', text: JSON.stringify(content) }
  }
}
