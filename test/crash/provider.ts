// The provider of a world: it outlives every incarnation, counts what it is asked, and answers by a script. Its stream goes on only when
// the incarnation has dealt with what came before, so that the order of what follows is the same in every run.
import type { LanguageModelV4, LanguageModelV4Prompt, LanguageModelV4StreamPart } from '@ai-sdk/provider'
import type { Core } from '../../src/runner/core.ts'
import { demoFailure } from '../../src/runner/models/demo-failures.ts'
import { readDemoPrompt } from '../../src/runner/models/demo-prompt.ts'
import { finished, usage } from '../support/scripted-model.ts'
import { type Gate, unanswered } from './gate.ts'

export interface Asked {
  kind: 'step' | 'compaction'
  /** How many requests of this kind the provider has had, with this one. */
  nth: number
  /** The newest words of the user, the system's "continue" among them. */
  words: string
  /** Tools have answered since. */
  hasResults: boolean
}

export type Item =
  /** `|` stands between the deltas of a text. */
  | { text: string }
  | { call: string; input?: object }
  | { fail: 'overload' | 'mid' | 'overflow' }
  /** Says that it waits, and waits until the flag is raised or the request is aborted. */
  | { hold: string }
  /** Live text is written to the database, the claim is renewed: what timers do in a server. */
  | { now: 'flush' | 'renew' }
  /** What the provider counts as input tokens. */
  | { tokens: number }

export interface Flags {
  raise(flag: string): void
  isRaised(flag: string): boolean
  /** Resolves once it is raised; rejects with the signal's reason. */
  until(flag: string, signal?: AbortSignal): Promise<void>
}

export interface ProviderOptions {
  gate: Gate
  core: () => Core
  flags: Flags
  counts: { step: number; compaction: number }
  /** Ends the ids of its calls: unique in the database. */
  suffix: string
  answer: (asked: Asked) => Item[]
}

function readAsked(prompt: LanguageModelV4Prompt): Omit<Asked, 'nth'> {
  const first = prompt[0]
  const isCompaction = first?.role === 'system' && first.content.startsWith('Below is the transcript')
  const { text, results } = readDemoPrompt(prompt)
  return { kind: isCompaction ? 'compaction' : 'step', words: text, hasResults: results.length > 0 }
}

/** The parts of one item. */
function partsOf(item: Item, id: string): LanguageModelV4StreamPart[] {
  if ('text' in item) {
    const deltas = item.text.split('|')
    return [
      { type: 'text-start', id },
      ...deltas.map((delta) => ({ type: 'text-delta' as const, id, delta })),
      { type: 'text-end', id },
    ]
  }
  if (!('call' in item)) return []
  const input = JSON.stringify(item.input ?? {})
  return [
    { type: 'tool-input-start', id, toolName: item.call },
    { type: 'tool-input-delta', id, delta: input },
    { type: 'tool-input-end', id },
    { type: 'tool-call', toolCallId: id, toolName: item.call, input },
  ]
}

/** Each delta is written as a chunk before the next one comes, whatever the machine is busy with. */
async function* play(items: Item[], options: ProviderOptions, nth: number, signal: AbortSignal | undefined) {
  const { core, flags, suffix } = options
  let input = usage.inputTokens.total ?? 1
  let calls = 0
  yield { type: 'stream-start', warnings: [] } as LanguageModelV4StreamPart
  for (const [n, item] of items.entries()) {
    if ('fail' in item) throw demoFailure(item.fail)
    if ('tokens' in item) input = item.tokens
    if ('hold' in item) {
      flags.raise(`holding ${item.hold}`)
      await flags.until(item.hold, signal)
    }
    if ('now' in item) await (item.now === 'flush' ? core().live.flush() : core().leases.renewNow())
    if ('call' in item) calls++
    const id = 'call' in item ? `${item.call}.${nth}.${suffix}` : `part${n}`
    for (const part of partsOf(item, id)) {
      yield part
      if (part.type === 'text-delta' || part.type === 'tool-input-delta') await core().live.flush()
    }
  }
  const end = finished(calls > 0 ? 'tool-calls' : 'stop') as Extract<LanguageModelV4StreamPart, { type: 'finish' }>
  yield { ...end, usage: { ...usage, inputTokens: { ...usage.inputTokens, total: input, noCache: input } } }
}

/** The model as one incarnation has it. */
export function worldModel(options: ProviderOptions): LanguageModelV4 {
  const { gate, counts, answer } = options
  return {
    specificationVersion: 'v4',
    provider: 'world',
    modelId: 'world',
    supportedUrls: {},
    doGenerate: () => Promise.reject(new Error('not asked for')),
    async doStream({ prompt, abortSignal }) {
      const asked = readAsked(prompt)
      return gate.through(`request for a ${asked.kind}`, async () => {
        const nth = ++counts[asked.kind]
        const items = answer({ ...asked, nth })
        if (items[0] !== undefined && 'fail' in items[0]) throw demoFailure(items[0].fail)
        const parts = play(items, options, nth, abortSignal)
        return {
          stream: new ReadableStream<LanguageModelV4StreamPart>(
            {
              async pull(controller) {
                if (gate.isDead) return unanswered()
                try {
                  const { done, value } = await parts.next()
                  if (gate.isDead) return await unanswered()
                  if (done) controller.close()
                  else controller.enqueue(value)
                } catch (thrown) {
                  if (gate.isDead) return await unanswered()
                  controller.error(thrown)
                }
              },
            },
            { highWaterMark: 0 },
          ),
        }
      })
    },
  }
}
