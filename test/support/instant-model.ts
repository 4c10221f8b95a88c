import type { LanguageModelV4, LanguageModelV4StreamPart } from '@ai-sdk/provider'

/** A model in this process that ends at once without a word, for what is about everything else. Tells what was said last. */
export function instantModel(told: (said: string) => void): LanguageModelV4 {
  const usage = {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 0, text: 0, reasoning: 0 },
  }
  return {
    specificationVersion: 'v4',
    provider: 'local',
    modelId: 'instant',
    supportedUrls: {},
    doGenerate: () => Promise.reject(new Error('not asked for')),
    async doStream({ prompt }) {
      const last = prompt.at(-1)
      const part = last?.role === 'user' ? last.content[0] : undefined
      told(part?.type === 'text' ? part.text : 'no prompt')
      const stream = new ReadableStream<LanguageModelV4StreamPart>({
        start(controller) {
          controller.enqueue({ type: 'stream-start', warnings: [] })
          controller.enqueue({ type: 'finish', finishReason: { unified: 'stop', raw: undefined }, usage })
          controller.close()
        },
      })
      return { stream }
    },
  }
}
