import { randomUUID } from 'node:crypto'
import type { LanguageModelV4, LanguageModelV4CallOptions, LanguageModelV4StreamPart } from '@ai-sdk/provider'
import { type Clock, realClock } from '../clock.ts'
import { type DemoCommands, parseDemoCommands } from './demo-commands.ts'
import { demoFailure, demoFailureCounter } from './demo-failures.ts'
import { collect } from './demo-generate.ts'
import { countWords, type DemoPrompt, readDemoPrompt } from './demo-prompt.ts'

export const DEMO_MODEL_ID = 'demo/echo'
export const DEMO_CONTEXT_TOKENS = 8000
const INTRODUCTION = 'This is demo/echo, the built-in demo model. It only repeats what you write.'

/**
 * The built-in model (design section 12): no key, no network. It streams an answer that says it is a demo and repeats
 * the prompt, and obeys the commands of `demo-commands.ts`, so that tools, reasoning and every way to fail can be tried.
 * Tools are called only if some are configured and the tool choice allows it, by the name given, known or not. Once
 * results follow the last user message it answers with them. Usage is in words.
 */
export function demoModel({
  clock = realClock,
  wordMs = 20,
}: {
  clock?: Clock
  wordMs?: number
} = {}): LanguageModelV4 {
  const failsNow = demoFailureCounter()

  async function doStream(
    options: LanguageModelV4CallOptions,
  ): Promise<{ stream: ReadableStream<LanguageModelV4StreamPart> }> {
    const prompt = readDemoPrompt(options.prompt)
    const commands = prompt.results.length > 0 ? afterTools(prompt) : parseDemoCommands(prompt.text)
    const { fail, overflow } = commands
    // A compaction changes the prompt before the user's text, so an overflow is counted by that text alone.
    if (overflow && failsNow('overflow', prompt.text, overflow.times)) throw demoFailure('overflow')
    const failing = fail !== undefined && failsNow(fail.kind, options.prompt, fail.times)
    if (failing && fail.kind !== 'mid') throw demoFailure(fail.kind)

    const stop = new AbortController()
    const signal = options.abortSignal ? AbortSignal.any([options.abortSignal, stop.signal]) : stop.signal
    const wait = (ms: number) => pause(ms, clock, signal)
    const parts = play(options, prompt, commands, commands.slowMs ?? wordMs, failing, wait)
    const stream = new ReadableStream<LanguageModelV4StreamPart>({
      async pull(controller) {
        signal.throwIfAborted()
        const { done, value } = await parts.next()
        if (done) controller.close()
        else controller.enqueue(value)
      },
      cancel: () => stop.abort(),
    })
    return { stream }
  }

  return {
    specificationVersion: 'v4',
    provider: 'demo',
    modelId: 'echo',
    supportedUrls: {},
    doStream,
    doGenerate: async (options) => collect((await doStream(options)).stream),
  }
}

function afterTools(prompt: DemoPrompt): DemoCommands {
  return { reason: [], tools: [], rest: '', slowMs: parseDemoCommands(prompt.text).slowMs }
}

async function* play(
  options: LanguageModelV4CallOptions,
  prompt: DemoPrompt,
  commands: DemoCommands,
  wordMs: number,
  failing: boolean,
  wait: (ms: number) => Promise<void>,
): AsyncGenerator<LanguageModelV4StreamPart> {
  yield { type: 'stream-start', warnings: [] }
  if (commands.stallMs !== undefined) await wait(commands.stallMs)

  for (const [index, text] of commands.reason.entries()) {
    const id = `reasoning-${index}`
    yield { type: 'reasoning-start', id }
    for (const delta of words(text)) {
      await wait(wordMs)
      yield { type: 'reasoning-delta', id, delta }
    }
    yield { type: 'reasoning-end', id }
  }

  const mayCall = (options.tools?.length ?? 0) > 0 && options.toolChoice?.type !== 'none'
  const answer = compose(prompt, commands, mayCall)
  yield { type: 'text-start', id: 'text' }
  for (const [index, delta] of words(answer).entries()) {
    // In the middle of the answer, so that partial text has to be kept.
    if (failing && index === 5) throw demoFailure('mid')
    await wait(wordMs)
    yield { type: 'text-delta', id: 'text', delta }
  }
  if (failing) throw demoFailure('mid')
  yield { type: 'text-end', id: 'text' }

  const calls = mayCall ? commands.tools : []
  for (const { name, input } of calls) {
    const id = `demo_${randomUUID()}`
    yield { type: 'tool-input-start', id, toolName: name }
    for (const delta of input.match(/.{1,16}/gsu) ?? []) yield { type: 'tool-input-delta', id, delta }
    yield { type: 'tool-input-end', id }
    yield { type: 'tool-call', toolCallId: id, toolName: name, input }
  }

  const reasoning = commands.reason.reduce((sum, text) => sum + countWords(text), 0)
  const text = countWords(answer) + calls.reduce((sum, { input }) => sum + countWords(input) + 1, 0)
  yield {
    type: 'finish',
    finishReason: { unified: calls.length > 0 ? 'tool-calls' : 'stop', raw: undefined },
    usage: {
      inputTokens: { total: prompt.words, noCache: prompt.words, cacheRead: 0, cacheWrite: 0 },
      outputTokens: { total: text + reasoning, text, reasoning },
    },
  }
}

function compose(prompt: DemoPrompt, commands: DemoCommands, mayCall: boolean): string {
  if (prompt.results.length > 0) {
    const quoted = prompt.results.map(({ name, output }) => `${name} answered:\n${output}`)
    return `${INTRODUCTION}\n\n${quoted.join('\n\n')}`
  }
  if (commands.words !== undefined) {
    const vocabulary = INTRODUCTION.split(' ')
    return Array.from({ length: commands.words }, (_, index) => vocabulary[index % vocabulary.length]).join(' ')
  }
  const lines = [INTRODUCTION]
  if (commands.rest !== '') lines.push(`You wrote: ${commands.rest}`)
  if (prompt.attachments > 0) lines.push(`Attachments: ${prompt.attachments}.`)
  if (commands.tools.length > 0) {
    const names = commands.tools.map(({ name }) => name).join(', ')
    lines.push(mayCall ? `Calling ${names}.` : `No tool may be called now, so this one is not: ${names}.`)
  }
  return lines.join('\n\n')
}

function words(text: string): string[] {
  return text.match(/\s*\S+/g) ?? []
}

/** Waits `ms`, or for ever if Infinity; rejects with the signal's reason as soon as it is aborted. */
function pause(ms: number, clock: Clock, signal: AbortSignal): Promise<void> {
  if (ms <= 0 && !signal.aborted) return Promise.resolve()
  return new Promise((resolve, reject) => {
    signal.throwIfAborted()
    const onAbort = () => {
      disarm()
      reject(signal.reason)
    }
    signal.addEventListener('abort', onAbort, { once: true })
    const done = () => {
      signal.removeEventListener('abort', onAbort)
      resolve()
    }
    const disarm = ms === Number.POSITIVE_INFINITY ? () => {} : clock.setTimeout(done, ms)
  })
}
