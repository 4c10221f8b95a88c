import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import type { LanguageModelV4 } from '@ai-sdk/provider'
import { type Clock, realClock } from '../clock.ts'
import { DEMO_CONTEXT_TOKENS, DEMO_MODEL_ID, demoModel } from './demo.ts'
import { eagerToolCalls } from './eager-calls.ts'
import { type Endpoint, endpoint, fetchOnce, listModels } from './endpoint.ts'

export interface ModelSettings {
  /** Brings `openai/…` (design section 12). */
  openai?: { apiKey: string; baseUrl?: string }
  /** Brings `anthropic/…`. The base URL may lack its `/v1`, as the variable of that name does for other programs. */
  anthropic?: { apiKey: string; baseUrl?: string }
  /** Brings `compatible/…`: any server that speaks chat completions. */
  compatible?: { baseUrl: string; apiKey?: string }
  /** By full id. `model` brings a model of the user's own under that id. */
  models?: Record<string, { contextTokens?: number; model?: LanguageModelV4 }>
  defaultModel: string
}

export interface ResolvedModel {
  id: string
  /** Size of the context window in tokens, null if nobody has told us. */
  contextTokens: number | null
  model: LanguageModelV4
}

export interface ModelRegistry {
  /** What can be offered for choice: demo, default, configured, and what the endpoints list. Never throws. */
  list(): Promise<{ id: string; contextTokens: number | null }[]>
  /** The model for an id, or undefined if no provider of that name is configured. Makes no request. */
  resolve(id: string): ResolvedModel | undefined
  /** Whether `resolve` would find it: a configured provider takes any model name, so its server has the last word. */
  knows(id: string): boolean
}

interface Provider {
  prefix: string
  endpoint: Endpoint
  create(name: string): LanguageModelV4
}

const LISTED_FOR_MS = 60_000
// A server that is down costs every caller the timeout; one that has just come up should show soon.
const MISSING_FOR_MS = 5_000

/** The models that these settings bring. Nothing is contacted before `list` or an attempt. */
export function createModelRegistry(settings: ModelSettings, clock: Clock = realClock): ModelRegistry {
  const configured = new Map(Object.entries(settings.models ?? {}))
  const providers: Provider[] = []
  if (settings.compatible) providers.push(compatible(settings.compatible))
  if (settings.openai) providers.push(openai(settings.openai))
  if (settings.anthropic) providers.push(anthropic(settings.anthropic))
  const demo = demoModel({ clock })

  function create(id: string): LanguageModelV4 | undefined {
    const own = configured.get(id)?.model
    if (own) return own
    if (id === DEMO_MODEL_ID) return demo
    const provider = providers.find(({ prefix }) => id.startsWith(prefix) && id.length > prefix.length)
    return provider?.create(id.slice(provider.prefix.length))
  }

  function contextTokens(id: string): number | null {
    return configured.get(id)?.contextTokens ?? (id === DEMO_MODEL_ID ? DEMO_CONTEXT_TOKENS : null)
  }

  function resolve(id: string): ResolvedModel | undefined {
    const model = create(id)
    return model && { id, contextTokens: contextTokens(id), model }
  }

  const listings = providers.map((provider) => cached(() => offered(provider), clock))
  return {
    resolve,
    knows: (id) => create(id) !== undefined,
    async list() {
      const listed = await Promise.all(listings.map((listing) => listing()))
      const ids = new Set([DEMO_MODEL_ID, settings.defaultModel, ...configured.keys(), ...listed.flat()])
      return [...ids].filter((id) => create(id) !== undefined).map((id) => ({ id, contextTokens: contextTokens(id) }))
    },
  }
}

function compatible({ baseUrl, apiKey }: NonNullable<ModelSettings['compatible']>): Provider {
  const at = endpoint(baseUrl, apiKey)
  const provider = createOpenAICompatible({
    name: 'compatible',
    baseURL: at.baseUrl,
    headers: at.headers,
    includeUsage: true,
    fetch: fetchOnce,
  })
  return { prefix: 'compatible/', endpoint: at, create: (name) => eagerToolCalls(provider.chatModel(name)) }
}

function openai({ apiKey, baseUrl = 'https://api.openai.com/v1' }: NonNullable<ModelSettings['openai']>): Provider {
  const at = endpoint(baseUrl, apiKey)
  // Both are given even where the package has defaults: it would read them from the environment.
  const provider = createOpenAI({ apiKey, baseURL: at.baseUrl, fetch: fetchOnce })
  return { prefix: 'openai/', endpoint: at, create: (name) => unstored(provider.responses(name)) }
}

function anthropic({
  apiKey,
  baseUrl = 'https://api.anthropic.com',
}: NonNullable<ModelSettings['anthropic']>): Provider {
  const given = endpoint(baseUrl)
  const versioned = given.baseUrl.endsWith('/v1') ? given.baseUrl : `${given.baseUrl}/v1`
  const provider = createAnthropic({ apiKey, baseURL: versioned, headers: given.headers, fetch: fetchOnce })
  const headers = { ...given.headers, 'x-api-key': apiKey, 'anthropic-version': '2023-06-01' }
  return {
    prefix: 'anthropic/',
    endpoint: { baseUrl: versioned, headers, listQuery: '?limit=1000' },
    create: (name) => provider.languageModel(name),
  }
}

/** The session's log is the only history: nothing refers to answers kept at the provider, which expire there. */
function unstored(model: LanguageModelV4): LanguageModelV4 {
  return {
    specificationVersion: 'v4',
    provider: model.provider,
    modelId: model.modelId,
    supportedUrls: model.supportedUrls,
    doGenerate: (options) => model.doGenerate(withoutStore(options)),
    doStream: (options) => model.doStream(withoutStore(options)),
  }
}

type CallOptions = Parameters<LanguageModelV4['doStream']>[0]
function withoutStore(options: CallOptions): CallOptions {
  const { providerOptions } = options
  return { ...options, providerOptions: { ...providerOptions, openai: { store: false, ...providerOptions?.openai } } }
}

async function offered({ prefix, endpoint }: Provider): Promise<string[]> {
  return (await listModels(endpoint)).map((name) => prefix + name)
}

/** Remembers an answer for 60 s and a failure, which counts as nothing listed, for 5 s; callers at once share one. */
function cached(load: () => Promise<string[]>, clock: Clock): () => Promise<string[]> {
  let answer: Promise<string[]> | undefined
  let until = 0
  return () => {
    if (answer !== undefined && clock.now() < until) return answer
    until = Number.POSITIVE_INFINITY
    answer = load().then(
      (ids) => {
        until = clock.now() + LISTED_FOR_MS
        return ids
      },
      () => {
        until = clock.now() + MISSING_FOR_MS
        return []
      },
    )
    return answer
  }
}
