import { APICallError, type LanguageModelV4, type LanguageModelV4StreamPart } from '@ai-sdk/provider'
import { finished } from './scripted-model.ts'

/** One request that waits for the test to say what becomes of it. */
export interface GatedRequest {
  answer(...parts: LanguageModelV4StreamPart[]): void
  fail(error: Error): void
}

/** A model whose requests stay open until the test answers them; which session asks stands in its instructions. */
export function gatedModel() {
  const open = new Map<string, GatedRequest>()
  const counts = new Map<string, number>()
  const model: LanguageModelV4 = {
    specificationVersion: 'v4',
    provider: 'gated',
    modelId: 'gated',
    supportedUrls: {},
    doGenerate: () => Promise.reject(new Error('not asked for')),
    async doStream({ prompt, abortSignal }) {
      const first = prompt[0]
      const session = first?.role === 'system' ? first.content : 'nobody'
      counts.set(session, (counts.get(session) ?? 0) + 1)
      return {
        stream: new ReadableStream<LanguageModelV4StreamPart>({
          start(controller) {
            controller.enqueue({ type: 'stream-start', warnings: [] })
            const request: GatedRequest = {
              answer(...parts) {
                open.delete(session)
                for (const part of parts) controller.enqueue(part)
                controller.close()
              },
              fail(error) {
                open.delete(session)
                controller.error(error)
              },
            }
            open.set(session, request)
            abortSignal?.addEventListener('abort', () => {
              if (open.get(session) !== request) return
              open.delete(session)
              controller.error(abortSignal.reason)
            })
          },
        }),
      }
    },
  }
  return {
    model,
    /** The request of this session that is open now. */
    open: (session: string) => open.get(session),
    count: (session: string) => counts.get(session) ?? 0,
  }
}

export const text = (words: string): LanguageModelV4StreamPart[] => [
  { type: 'text-start', id: 't' },
  { type: 'text-delta', id: 't', delta: words },
  { type: 'text-end', id: 't' },
]

export const call = (toolCallId: string, toolName: string, input: object): LanguageModelV4StreamPart[] => [
  { type: 'tool-input-start', id: toolCallId, toolName },
  { type: 'tool-input-end', id: toolCallId },
  { type: 'tool-call', toolCallId, toolName, input: JSON.stringify(input) },
  finished('tool-calls'),
]

/** A failure as a provider's package throws it. */
export const refused = (statusCode: number) =>
  new APICallError({
    message: `HTTP ${statusCode}`,
    url: 'http://127.0.0.1/',
    requestBodyValues: {},
    statusCode,
    isRetryable: statusCode >= 500,
  })
