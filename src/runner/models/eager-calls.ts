import type { LanguageModelV4, LanguageModelV4StreamPart } from '@ai-sdk/provider'

/**
 * The chat-completions model with its tool calls handed on as soon as they are surely complete. The package itself
 * gives all of them at the end of the stream, because arguments that parse may still grow; then no tool could run
 * beside its siblings, and a stream that breaks after a complete call would lose it (design section 6).
 *
 * Surely complete is a call when the server has named a finish reason, or when the next call has begun and the
 * arguments are a whole object that is not empty (some servers send `{}` first and the arguments later).
 * Streams with provider state on their calls (Google's signatures) are left alone: that state comes at the end.
 */
export function eagerToolCalls(model: LanguageModelV4): LanguageModelV4 {
  return {
    specificationVersion: 'v4',
    provider: model.provider,
    modelId: model.modelId,
    supportedUrls: model.supportedUrls,
    doGenerate: (options) => model.doGenerate(options),
    async doStream(options) {
      const result = await model.doStream({ ...options, includeRawChunks: true })
      return { ...result, stream: result.stream.pipeThrough(new TransformStream(handOn())) }
    },
  }
}

interface Call {
  name: string
  input: string
  handedOn: boolean
}

function handOn(): Transformer<LanguageModelV4StreamPart, LanguageModelV4StreamPart> {
  const calls = new Map<string, Call>()
  let leaveAlone = false
  // Input deltas of the finishing chunk that are still to come: the raw chunk arrives before what is made of it.
  let outstanding = 0
  let finishing = false

  type Controller = TransformStreamDefaultController<LanguageModelV4StreamPart>
  function complete(controller: Controller, isComplete: (call: Call) => boolean): void {
    if (leaveAlone) return
    for (const [id, call] of calls) {
      if (call.handedOn || !isComplete(call)) continue
      call.handedOn = true
      controller.enqueue({ type: 'tool-input-end', id })
      controller.enqueue({ type: 'tool-call', toolCallId: id, toolName: call.name, input: call.input })
    }
  }

  return {
    transform(part, controller) {
      switch (part.type) {
        case 'raw': {
          const chunk = readChunk(part.rawValue)
          if (chunk.signed) leaveAlone = true
          // Also a chunk without content is a sign of life for the idle limit.
          controller.enqueue({ type: 'ping' })
          if (chunk.finish) {
            finishing = true
            outstanding = chunk.inputs
            if (outstanding === 0) complete(controller, () => true)
          }
          return
        }
        case 'tool-input-start':
          complete(controller, (call) => isWholeObject(call.input))
          calls.set(part.id, { name: part.toolName, input: '', handedOn: false })
          break
        case 'tool-input-delta': {
          const call = calls.get(part.id)
          // Some servers repeat a call with empty arguments in their last chunk. Anything else is arguments that go on
          // after they were complete and dispatched: that delta fails the attempt (translate.ts).
          if (call?.handedOn && part.delta.trim() === '') return
          if (call !== undefined) call.input += part.delta
          controller.enqueue(part)
          if (finishing && part.delta !== '' && --outstanding === 0) complete(controller, () => true)
          return
        }
        case 'tool-input-end':
          if (calls.get(part.id)?.handedOn) return
          break
        case 'tool-call':
          if (calls.get(part.toolCallId)?.handedOn) return
          break
      }
      controller.enqueue(part)
    },
  }
}

function isWholeObject(input: string): boolean {
  if (!input.trimEnd().endsWith('}')) return false
  try {
    const value: unknown = JSON.parse(input)
    return typeof value === 'object' && value !== null && Object.keys(value).length > 0
  } catch {
    return false
  }
}

interface RawChunk {
  choices?: { finish_reason?: unknown; delta?: { tool_calls?: RawCall[] | null } | null }[]
}
interface RawCall {
  extra_content?: unknown
  function?: { arguments?: unknown }
}

/** The raw value has not been validated yet: nothing about its shape is certain. */
function readChunk(raw: unknown): { finish: boolean; signed: boolean; inputs: number } {
  const choice = Array.isArray((raw as RawChunk | null)?.choices) ? (raw as RawChunk).choices?.[0] : undefined
  const calls = Array.isArray(choice?.delta?.tool_calls) ? choice.delta.tool_calls : []
  return {
    finish: typeof choice?.finish_reason === 'string',
    signed: calls.some((call) => call?.extra_content != null),
    inputs: calls.filter((call) => typeof call?.function?.arguments === 'string' && call.function.arguments !== '')
      .length,
  }
}
