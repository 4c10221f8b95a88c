import type { LanguageModelV4, LanguageModelV4CallOptions, LanguageModelV4StreamPart } from '@ai-sdk/provider'

type Usage = Extract<LanguageModelV4StreamPart, { type: 'finish' }>['usage']

export const usage: Usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
}

export const finished = (unified: 'stop' | 'tool-calls' = 'stop'): LanguageModelV4StreamPart => ({
  type: 'finish',
  finishReason: { unified, raw: unified },
  usage,
})

/** A model of the user's own, for what no chat-completions server can send. Each request takes the next reply. */
export function scriptedModel(...replies: (LanguageModelV4StreamPart[] | Error)[]): {
  model: LanguageModelV4
  calls: LanguageModelV4CallOptions[]
} {
  const calls: LanguageModelV4CallOptions[] = []
  const model: LanguageModelV4 = {
    specificationVersion: 'v4',
    provider: 'own',
    modelId: 'own',
    supportedUrls: {},
    doGenerate: () => Promise.reject(new Error('not asked for')),
    async doStream(options) {
      calls.push(options)
      const parts = replies.shift()
      if (parts === undefined) throw new Error('no reply was scripted for this request')
      if (parts instanceof Error) throw parts
      return {
        stream: new ReadableStream({
          start(controller) {
            controller.enqueue({ type: 'stream-start', warnings: [] })
            for (const part of parts) controller.enqueue(part)
            controller.close()
          },
        }),
      }
    },
  }
  return { model, calls }
}
