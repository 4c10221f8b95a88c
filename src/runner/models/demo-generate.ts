import type { LanguageModelV4Content, LanguageModelV4GenerateResult, LanguageModelV4StreamPart } from '@ai-sdk/provider'

/** The answer of a stream as one result, for callers of the model interface that do not stream. */
export async function collect(
  stream: ReadableStream<LanguageModelV4StreamPart>,
): Promise<LanguageModelV4GenerateResult> {
  const content: LanguageModelV4Content[] = []
  for await (const part of stream) {
    const last = content.at(-1)
    if (part.type === 'text-start') content.push({ type: 'text', text: '' })
    else if (part.type === 'reasoning-start') content.push({ type: 'reasoning', text: '' })
    else if (part.type === 'tool-call') content.push(part)
    else if (part.type === 'text-delta' && last?.type === 'text') last.text += part.delta
    else if (part.type === 'reasoning-delta' && last?.type === 'reasoning') last.text += part.delta
    else if (part.type === 'finish')
      return { content, finishReason: part.finishReason, usage: part.usage, warnings: [] }
  }
  throw new Error('the stream ended without a finish')
}
