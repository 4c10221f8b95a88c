// What each provider really gets of a history: rows are lowered and sent, and the bodies that arrive are looked at.
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import type { History, HistoryMessage, Promoted } from '../src/runner/history.ts'
import { lowerHistory } from '../src/runner/history.ts'
import { attempt } from '../src/runner/models/attempt.ts'
import { createModelRegistry, type ModelRegistry } from '../src/runner/models/registry.ts'
import { anthropicReply, block, type SseProvider, startSseProvider } from './support/sse-provider.ts'

let provider: SseProvider
let models: ModelRegistry
beforeAll(async () => {
  provider = await startSseProvider()
  const baseUrl = `${provider.origin}/v1`
  const settings = { anthropic: { apiKey: 'k', baseUrl }, openai: { apiKey: 'k', baseUrl }, compatible: { baseUrl } }
  models = createModelRegistry({ ...settings, defaultModel: 'demo/echo' })
})
beforeEach(() => void provider.requests.splice(0))
afterAll(() => provider.close())

const claude = 'anthropic/claude-sonnet-4-5'
const gpt = 'openai/gpt-5'
const local = 'compatible/qwen3'
const all = [claude, gpt, local]

// biome-ignore lint/suspicious/noExplicitAny: bodies are looked at as they came
type Body = any
let made = 0
type Row = Record<string, unknown>
const message = (kind: string, fields: Row, parts: Row[] = [], toolCalls: Row[] = []): HistoryMessage => {
  const id = `m${++made}`
  const filled = { id, kind, attachments: [], hidden: false, status: null, model: null, errorCode: null, ...fields }
  return { ...filled, parts, toolCalls } as unknown as HistoryMessage
}
const user = (text: string, attachments: Row[] = []) => message('USER', { text, attachments })
const assistant = (model: string, status: string, ...entries: Row[]) => {
  const numbered = entries.map((entry, index) => ({ ...entry, index }))
  const isCall = (entry: Row) => 'callId' in entry
  return message(
    'ASSISTANT',
    { model, status },
    numbered.filter((e) => !isCall(e)),
    numbered.filter(isCall),
  )
}
const text = (value: string) => ({ kind: 'TEXT', text: value, state: null })
const reasoning = (value: string, state: unknown = null) => ({ kind: 'REASONING', text: value, state })
const call = (callId: string, fields: Row = {}) => ({
  callId,
  name: 'add',
  status: 'COMPLETED',
  input: { a: 1 },
  output: 'two',
  providerExecuted: false,
  errorCode: null,
  errorMessage: null,
  state: null,
  ...fields,
})

/** Sends the history to the model and gives the body that arrived. */
async function sent(model: string, messages: HistoryMessage[], promoted: Partial<Promoted>[] = []): Promise<Body> {
  const history = { instructions: 'Be brief.', messages, summary: null, compactions: 0 } as History
  const given = promoted.map((one) => ({
    id: 'p',
    kind: 'PROMPT',
    text: '',
    attachments: [],
    hidden: false,
    ...one,
  })) as Promoted[]
  const prompt = lowerHistory(history, given, model)
  const tools = [{ name: 'add', description: 'adds', inputSchema: { type: 'object' as const } }]
  const { signal } = new AbortController()
  const before = provider.requests.length
  // The answer does not matter and is none for the OpenAI formats; what arrived does.
  provider.script(anthropicReply([block.text('ok')]))
  try {
    for await (const _ of attempt({
      model: models.resolve(model)!,
      prompt,
      tools,
      toolChoice: 'auto',
      signal,
      idleMs: 5000,
    }));
  } catch {}
  expect(provider.requests).toHaveLength(before + 1)
  const { body } = provider.requests.at(-1)!
  accepted(model, body)
  return body
}

/** The rules by which the real provider would refuse the request. */
function accepted(model: string, body: Body) {
  if (model === claude) return acceptedByAnthropic(body)
  if (model === gpt) return acceptedByResponses(body)
  const open = new Set<string>()
  for (const one of body.messages) {
    if (one.role === 'tool') expect(open.delete(one.tool_call_id), 'a result without its call').toBe(true)
    else expect([...open], 'calls without a result').toEqual([])
    for (const { id, function: called } of one.tool_calls ?? []) {
      expect(open.has(id)).toBe(false)
      open.add(id)
      expect(called.name).toMatch(/^[\w-]{1,64}$/)
      expect(typeof JSON.parse(called.arguments)).toBe('object')
    }
    if (one.role !== 'assistant' || !one.tool_calls) expect(one.content?.length ?? 0).toBeGreaterThan(0)
  }
  expect([...open]).toEqual([])
}

function acceptedByAnthropic(body: Body) {
  expect(body.messages[0].role).toBe('user')
  let open = new Set<string>()
  const seen = new Set<string>()
  for (const { role, content } of body.messages) {
    expect(content.length).toBeGreaterThan(0)
    const results = content.filter((part: Body) => part.type === 'tool_result')
    expect(content.slice(0, results.length), 'results come first').toEqual(results)
    expect(new Set(results.map((part: Body) => part.tool_use_id))).toEqual(open)
    open = new Set()
    for (const part of content) {
      if (part.type === 'text') expect(part.text.trim()).not.toBe('')
      if (part.type === 'thinking') expect(part.signature).toBeTruthy()
      if (part.type !== 'tool_use') continue
      expect(role).toBe('assistant')
      expect(part.id).toMatch(/^[\w-]+$/)
      expect(seen.has(part.id), 'ids are unique').toBe(false)
      seen.add(part.id)
      open.add(part.id)
      expect(part.name).toMatch(/^[\w-]{1,64}$/)
    }
  }
  expect(open).toEqual(new Set())
}

function acceptedByResponses(body: Body) {
  const calls = new Set<string>()
  const results = new Set<string>()
  for (const item of body.input) {
    if (item.type === 'function_call') {
      expect(calls.has(item.call_id)).toBe(false)
      calls.add(item.call_id)
      expect(item.call_id.length).toBeLessThanOrEqual(64)
      expect(item.name).toMatch(/^[\w-]{1,64}$/)
    }
    if (item.type === 'function_call_output') {
      expect(calls.has(item.call_id)).toBe(true)
      results.add(item.call_id)
    }
    if (item.type === 'item_reference') expect.fail('refers to what is not stored there')
    if (item.role) expect(item.content.length).toBeGreaterThan(0)
  }
  expect(results).toEqual(calls)
}

const plain = [
  user('Add.'),
  assistant('x/y', 'ENDED', text('Adding.'), call('call_1'), call('call_2', { output: [{ sum: 2 }] })),
  assistant('x/y', 'ENDED', text('Two.')),
  user('Thanks.'),
]

it('Anthropic gets system, messages, calls and results in its own format, results before what the user said next', async () => {
  const body = await sent(claude, [...plain.slice(0, 2), user('Stop that.')], [{ text: 'And now?' }])
  expect(body.system).toEqual([{ type: 'text', text: 'Be brief.' }])
  expect(body.messages).toEqual([
    { role: 'user', content: [{ type: 'text', text: 'Add.' }] },
    {
      role: 'assistant',
      content: [
        { type: 'text', text: 'Adding.' },
        { type: 'tool_use', id: 'call_1', name: 'add', input: { a: 1 } },
        { type: 'tool_use', id: 'call_2', name: 'add', input: { a: 1 } },
      ],
    },
    {
      role: 'user',
      content: [
        { type: 'tool_result', tool_use_id: 'call_1', content: 'two' },
        { type: 'tool_result', tool_use_id: 'call_2', content: '[{"sum":2}]' },
        { type: 'text', text: 'Stop that.' },
        { type: 'text', text: 'And now?' },
      ],
    },
  ])
})

it('OpenAI gets items of the responses API', async () => {
  const { input } = await sent(gpt, plain)
  expect(input).toEqual([
    { role: 'developer', content: 'Be brief.' },
    { role: 'user', content: [{ type: 'input_text', text: 'Add.' }] },
    { role: 'assistant', content: 'Adding.' },
    { type: 'function_call', call_id: 'call_1', name: 'add', arguments: '{"a":1}' },
    { type: 'function_call', call_id: 'call_2', name: 'add', arguments: '{"a":1}' },
    { type: 'function_call_output', call_id: 'call_1', output: 'two' },
    { type: 'function_call_output', call_id: 'call_2', output: '[{"sum":2}]' },
    { role: 'assistant', content: 'Two.' },
    { role: 'user', content: [{ type: 'input_text', text: 'Thanks.' }] },
  ])
})

it('OpenAI-compatible servers get chat completions', async () => {
  const { messages } = await sent(local, plain)
  const called = (id: string) => ({ id, type: 'function', function: { name: 'add', arguments: '{"a":1}' } })
  expect(messages).toEqual([
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Add.' },
    { role: 'assistant', content: 'Adding.', tool_calls: [called('call_1'), called('call_2')] },
    { role: 'tool', tool_call_id: 'call_1', content: 'two' },
    { role: 'tool', tool_call_id: 'call_2', content: '[{"sum":2}]' },
    { role: 'assistant', content: 'Two.' },
    { role: 'user', content: 'Thanks.' },
  ])
})

it.each(all)(
  'STEP-16: %s gets a result for each call, whatever became of it, and no malformed input',
  async (model) => {
    const bad = { output: null, status: 'FAILED' }
    const messages = [
      user('Go.'),
      assistant(
        model,
        'FAILED',
        text('Partial'),
        call('c1', { ...bad, errorCode: 'TOOL_ERROR', errorMessage: 'broke' }),
        call('c2', { ...bad, errorCode: 'OUTCOME_UNKNOWN', errorMessage: 'nobody knows' }),
        call('c3', { ...bad, errorCode: 'NOT_STARTED', errorMessage: 'never ran' }),
        call('c4', { ...bad, errorCode: 'DECLINED', errorMessage: 'the user said: not now' }),
        call('c5', { ...bad, errorCode: 'TOOL_INPUT', errorMessage: 'not JSON', input: null }),
        call('c6', { output: null, status: 'RUNNING' }),
      ),
      user('Go on.'),
    ]
    const wire = JSON.stringify(await sent(model, messages))
    for (const told of [
      'TOOL_ERROR: broke',
      'OUTCOME_UNKNOWN: nobody',
      'NOT_STARTED: never',
      'DECLINED: the user',
      'TOOL_INPUT: not',
      'no known outcome',
    ])
      expect(wire).toContain(told)
    expect(wire).toContain('Partial')
  },
)

it.each(all)(
  'STEP-17: %s gets no empty parts, and state only if it is its own and of a step without error',
  async (model) => {
    const state = {
      anthropic: { signature: 'sealed' },
      openai: { itemId: 'rs_1', reasoningEncryptedContent: 'sealed' },
    }
    const thought = (status: string, of = model) => assistant(of, status, reasoning('hm', state), text('Said.'))
    const other = all.find((one) => one !== model)!
    const kept = (body: Body) => JSON.stringify(body).match(/sealed|"hm"/g)?.length ?? 0

    expect(kept(await sent(model, [user('a'), thought('ENDED'), user('b')]))).toBeGreaterThan(0)
    for (const gone of [thought('FAILED'), thought('INTERRUPTED'), thought('ENDED', other)]) {
      const body = await sent(model, [user('a'), gone, user('b')])
      expect(kept(body)).toBe(0)
      expect(JSON.stringify(body)).toContain('Said.')
    }

    const empty = [
      user('a'),
      assistant(model, 'ENDED', text(''), text('\n\n')),
      assistant(model, 'FAILED', reasoning('')),
      user(' \n'),
    ]
    const body = await sent(model, empty, [{ text: 'b' }])
    expect(
      (body.messages ?? body.input).filter(({ role }: Body) => role !== 'system' && role !== 'developer'),
    ).toHaveLength(model === claude ? 1 : 2)
  },
)

it('STEP-22: a call that the provider executed stands inside the assistant message with its result; for another model it is a call like any other', async () => {
  const searched = call('srvtoolu_1', {
    name: 'web_search',
    providerExecuted: true,
    input: { query: 'q' },
    output: [{ type: 'web_search_result', url: 'https://e.test', title: 't', pageAge: null, encryptedContent: 'e' }],
  })
  const history = (model: string) => [
    user('Search.'),
    assistant(model, 'ENDED', searched, text('Found.')),
    user('More.'),
  ]
  const lowered = lowerHistory(
    { instructions: null, messages: history(claude), summary: null, compactions: 0 } as History,
    [],
    claude,
  )
  expect(lowered.map(({ role }) => role)).toEqual(['user', 'assistant', 'user'])
  expect(lowered[1]!.content).toMatchObject([
    { type: 'tool-call', toolCallId: 'srvtoolu_1', providerExecuted: true },
    { type: 'tool-result', toolCallId: 'srvtoolu_1' },
    { type: 'text', text: 'Found.' },
  ])
  const own = await sent(claude, history(claude))
  expect(own.messages.map(({ role }: Body) => role)).toEqual(['user', 'assistant', 'user'])
  for (const model of [gpt, local])
    expect(JSON.stringify(await sent(model, history(claude)))).toContain('https://e.test')
})

it.each(all)('%s is spared ids and names of calls that it would refuse', async (model) => {
  const messages = [
    user('a'),
    assistant('x/y', 'ENDED', call('functions.add:0'), call('x'.repeat(80)), call('call_0', { name: 'no such tool!' })),
    assistant('x/y', 'ENDED', call('call_0', { name: '' }), text('done')),
    user('b'),
  ]
  const first = JSON.stringify(await sent(model, messages))
  expect(first).toContain('no_such_tool_')
  expect(JSON.stringify(await sent(model, messages)), 'the same each time').toBe(first)
})

const png = 'iVBORw0KGgo='
const attachments = [
  { name: 'a.png', mediaType: 'image/png', url: `data:image/png;base64,${png}` },
  { name: 'b.jpg', mediaType: 'image/jpeg', url: 'https://e.test/b.jpg' },
  { name: 'c.pdf', mediaType: 'application/pdf', url: 'data:application/pdf;base64,JVBERi0=' },
  { name: 'd.pdf', mediaType: 'application/pdf', url: 'https://e.test/d.pdf' },
  { name: 'e.txt', mediaType: 'text/plain', url: 'data:text/plain,gr%C3%BC%C3%9Fe' },
  {
    name: 'f.json',
    mediaType: 'application/json',
    url: `data:application/json;base64,${Buffer.from('{"f":1}').toString('base64')}`,
  },
  { name: 'g.zip', mediaType: 'application/zip', url: 'data:application/zip;base64,UEsDBA==' },
  { name: 'h.txt', mediaType: 'text/plain', url: 'https://e.test/h.txt' },
  { name: 'i.svg', mediaType: 'image/svg+xml', url: 'data:image/svg+xml,%3Csvg/%3E' },
]
const noted = [
  { text: 'Attachment "e.txt" (text/plain):\n\ngrüße' },
  { text: 'Attachment "f.json" (application/json):\n\n{"f":1}' },
  { text: '[Attachment "g.zip" (application/zip) is left out: this model cannot read such a file]' },
  { text: '[Attachment "h.txt" (text/plain): https://e.test/h.txt]' },
  { text: 'Attachment "i.svg" (image/svg+xml):\n\n<svg/>' },
]

it('attachments go as files where the provider takes them, as text where they are text, and are named otherwise', async () => {
  const content = async (model: string) => {
    const body = await sent(model, [], [{ text: 'Look.', attachments: attachments as Promoted['attachments'] }])
    return (body.messages ?? body.input).at(-1).content
  }
  const source = (type: string, media_type: string, data: string) => ({
    type,
    source: { type: 'base64', media_type, data },
  })
  expect(await content(claude)).toMatchObject([
    { type: 'text', text: 'Look.' },
    source('image', 'image/png', png),
    { type: 'image', source: { type: 'url', url: 'https://e.test/b.jpg' } },
    source('document', 'application/pdf', 'JVBERi0='),
    { type: 'document', source: { type: 'url', url: 'https://e.test/d.pdf' } },
    ...noted,
  ])
  expect(await content(gpt)).toMatchObject([
    { type: 'input_text', text: 'Look.' },
    { type: 'input_image', image_url: `data:image/png;base64,${png}` },
    { type: 'input_image', image_url: 'https://e.test/b.jpg' },
    { type: 'input_file', filename: 'c.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' },
    { type: 'input_file', file_url: 'https://e.test/d.pdf' },
    ...noted,
  ])
  expect(await content(local)).toMatchObject([
    { type: 'text', text: 'Look.' },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${png}` } },
    { type: 'image_url', image_url: { url: 'https://e.test/b.jpg' } },
    { type: 'file', file: { filename: 'c.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' } },
    { text: '[Attachment "d.pdf" (application/pdf): https://e.test/d.pdf]' },
    ...noted,
  ])
})

it('media in a tool output goes where the provider takes it, and is named otherwise', async () => {
  const parts = [
    { type: 'text', text: 'shot:' },
    { type: 'media', data: png, mediaType: 'image/png' },
    { type: 'text', text: ' ' },
    { type: 'media', data: png, mediaType: 'audio/wav' },
  ]
  const messages = [user('a'), assistant('x/y', 'ENDED', call('c1', { output: parts })), user('b')]
  const note = '[audio/wav, about 9 bytes, not shown to this model]'
  const claudes = (await sent(claude, messages)).messages[2].content[0]
  expect(claudes.content).toEqual([
    { type: 'text', text: 'shot:' },
    { type: 'image', source: { type: 'base64', media_type: 'image/png', data: png } },
    { type: 'text', text: note },
  ])
  const gpts = (await sent(gpt, messages)).input.find((item: Body) => item.type === 'function_call_output')
  expect(gpts.output).toMatchObject([
    { text: 'shot:' },
    { type: 'input_image', image_url: `data:image/png;base64,${png}` },
    { text: note },
  ])
  const locals = (await sent(local, messages)).messages.find((one: Body) => one.role === 'tool')
  expect(locals.content).toBe(`shot:\n[image/png, about 9 bytes, not shown to this model]\n${note}`)
})
