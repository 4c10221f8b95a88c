import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterEach, expect, it } from 'vitest'
import { defaultLimits } from '../src/config/user-config.ts'
import { type Variable, variables } from '../src/config/variables.ts'
import { ConfigError, loadConfig, prepareTool } from '../src/config.ts'

const dirs: string[] = []
afterEach(async () => {
  for (const dir of dirs.splice(0)) await rm(dir, { recursive: true })
})

/** A directory with these files; `#zod` in a source stands for this project's zod. */
async function directory(files: Record<string, string> = {}): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'holdfast-config-'))
  dirs.push(dir)
  const zod = import.meta.resolve('zod')
  for (const [name, source] of Object.entries(files)) await writeFile(join(dir, name), source.replaceAll('#zod', zod))
  return dir
}

async function refusal(env: NodeJS.ProcessEnv, files: Record<string, string> = {}): Promise<ConfigError> {
  const cwd = await directory(files)
  const error = await loadConfig({ env, cwd }).then(
    () => expect.fail('the configuration was accepted'),
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(ConfigError)
  return error as ConfigError
}

const withTool = (tool: string) => ({
  'holdfast.config.mjs': `import { z } from '#zod'\nexport default { tools: [${tool}] }`,
})
const asked = (fields: string) => `{ name: 'a', description: 'b', execute: () => 1, ${fields} }`

it('OPS-02: unset and empty variables have the defaults of the documentation', async () => {
  const cwd = await directory()
  const config = await loadConfig({ env: { HOLDFAST_LEASE_MS: '', HOLDFAST_CONFIG: '' }, cwd })
  expect(config).toMatchObject({
    host: '127.0.0.1',
    port: 4000,
    databaseUrl: undefined,
    dataDir: join(cwd, '.holdfast'),
    dbPool: 10,
    model: 'demo/echo',
    leaseMs: 30_000,
    renewMs: 10_000,
    scanMs: 5_000,
    livenessGraceMs: 2_000,
    pollMs: 1_000,
    maxDrains: 64,
    stepLimit: 50,
    idleMs: 120_000,
    toolTimeoutMs: 600_000,
    interruptGraceMs: 5_000,
    shutdownGraceMs: 10_000,
    stallMs: 60_000,
    recoveryAttempts: 3,
    recoveryMaxAgeMs: 86_400_000,
    logLevel: 'info',
    models: {},
    tools: [],
    limits: { pendingInputs: 1000, sessionsPerDay: 10_000, textBytes: 4_194_304, attachmentBytes: 20_971_520 },
    warnings: [],
  })
  expect(config.openai).toBeUndefined()
  expect(config.compatible).toBeUndefined()
  expect(Object.isFrozen(config)).toBe(true)
})

it('OPS-02: docs/configuration.md lists every variable and limit with the default that the code has', async () => {
  const text = await readFile(resolve(import.meta.dirname, '../docs/configuration.md'), 'utf8')
  const rows = [...text.matchAll(/^\| `([\w.]+)` \| (.+?) \|/gm)].map(([, name, value]) => [
    name,
    value!.replaceAll('`', ''),
  ])
  const documented = Object.fromEntries(rows.filter(([name]) => /^[A-Z]|^limits\./.test(name!)))
  const coded = [
    ...Object.values<Variable<unknown>>(variables).map(({ name, fallback }) => [name, String(fallback ?? '–')]),
    ...Object.entries(defaultLimits).map(([name, value]) => [`limits.${name}`, String(value)]),
  ]
  expect(documented).toEqual(Object.fromEntries(coded))
})

it('OPS-02: given values reach the configuration with their types', async () => {
  const env = {
    PORT: '0',
    HOST: '::1',
    HOLDFAST_LEASE_MS: '500',
    HOLDFAST_RENEW_MS: '100',
    HOLDFAST_DATA_DIR: 'data',
    HOLDFAST_MODEL: 'compatible/qwen3:8b',
    OPENAI_COMPATIBLE_BASE_URL: 'http://127.0.0.1:11434/v1',
    OPENAI_API_KEY: 'sk-one',
    ANTHROPIC_API_KEY: 'sk-two',
    ANTHROPIC_BASE_URL: 'http://127.0.0.1:9000',
    LOG_LEVEL: 'debug',
    DATABASE_URL: 'postgresql://u:p@127.0.0.1:5432/x',
  }
  const cwd = await directory()
  const config = await loadConfig({ env, cwd })
  expect(config).toMatchObject({ port: 0, host: '::1', leaseMs: 500, renewMs: 100, dataDir: join(cwd, 'data') })
  expect(config).toMatchObject({ logLevel: 'debug', databaseUrl: env.DATABASE_URL, model: env.HOLDFAST_MODEL })
  expect(config.compatible).toEqual({ baseUrl: env.OPENAI_COMPATIBLE_BASE_URL })
  expect(config.openai).toEqual({ apiKey: 'sk-one' })
  expect(config.anthropic).toEqual({ apiKey: 'sk-two', baseUrl: env.ANTHROPIC_BASE_URL })
})

it.each([
  ['PORT', '65536', 'PORT is "65536": must be a whole number from 0 to 65535'],
  ['PORT', '1e3', 'PORT is "1e3": must be a whole number'],
  [
    'HOLDFAST_LEASE_MS',
    '30s',
    'HOLDFAST_LEASE_MS is "30s": must be a whole number of milliseconds from 1 to 2147483647',
  ],
  ['HOLDFAST_SCAN_MS', '2147483648', 'HOLDFAST_SCAN_MS is "2147483648": must be a whole number of milliseconds'],
  ['HOLDFAST_STEP_LIMIT', '-1', 'HOLDFAST_STEP_LIMIT is "-1": must be a whole number from 1'],
  [
    'HOLDFAST_ALLOWED_HOSTS',
    'a.example,b.example:80',
    '"b.example:80" is not a host name: must be names separated by commas, without scheme, port',
  ],
  [
    'HOLDFAST_ALLOWED_HOSTS',
    'https://a.example',
    'HOLDFAST_ALLOWED_HOSTS is "https://a.example": "https://a.example" is not a host name',
  ],
  ['HOLDFAST_ALLOWED_HOSTS', '*.example', '"*.example" is not a host name'],
  ['HOLDFAST_ALLOWED_HOSTS', 'a.example,', '"" is not a host name'],
  ['LOG_LEVEL', 'verbose', 'LOG_LEVEL is "verbose": must be one of trace, debug'],
  ['HOLDFAST_MODEL', 'gpt', 'HOLDFAST_MODEL is "gpt": must have the form provider/model'],
  ['HOLDFAST_MODEL', 'openai/gpt', 'HOLDFAST_MODEL is "openai/gpt": openai/… needs OPENAI_API_KEY'],
  ['HOLDFAST_MODEL', 'anthropic/x', 'HOLDFAST_MODEL is "anthropic/x": anthropic/… needs ANTHROPIC_API_KEY'],
  ['HOLDFAST_MODEL', 'demo/ecco', 'HOLDFAST_MODEL is "demo/ecco": must be demo/echo'],
  ['HOLDFAST_LEASE_MS', '10000', 'HOLDFAST_RENEW_MS is 10000: must be less than HOLDFAST_LEASE_MS (10000)'],
  ['HOLDFAST_CONFIG', 'none.ts', 'HOLDFAST_CONFIG is "none.ts": there is no file '],
  ['HOLDFAST_CONFIG', 'none.yaml', 'HOLDFAST_CONFIG is "none.yaml": must name a .ts, .mjs, .js file'],
])('OPS-02: %s=%s is refused with the setting, the value and the rule', async (name, value, text) => {
  expect((await refusal({ [name]: value })).message).toContain(text)
})

it('OPS-02: several problems, of variables and of the file, are all listed at once', async () => {
  const error = await refusal(
    { PORT: 'x', HOLDFAST_DB_POOL: '0' },
    { 'holdfast.config.mjs': 'export default { limit: {}, tools: 1 }' },
  )
  expect(error.problems).toHaveLength(4)
  expect(error.message).toMatch(/^4 problems:\n- PORT is "x"/)
  expect(error.message).toContain('\n- HOLDFAST_DB_POOL is "0": ')
  expect(error.message).toContain('\n- holdfast.config.mjs: tools: is 1: ')
  expect(error.message).toContain('\n- holdfast.config.mjs: unknown key "limit", did you mean "limits"?')
})

it.each([
  [{ DATABASE_URL: 'mysql://u:hunter2@h/x' }, 'DATABASE_URL (value not shown): must be a URL such as postgresql://'],
  [{ ANTHROPIC_BASE_URL: 'hunter2' }, 'ANTHROPIC_BASE_URL (value not shown): must be a URL'],
  [{ OPENAI_BASE_URL: 'ftp://u:hunter2@h/' }, 'OPENAI_BASE_URL (value not shown): must be a URL'],
  [
    { OPENAI_COMPATIBLE_API_KEY: 'hunter2' },
    'OPENAI_COMPATIBLE_API_KEY (value not shown): needs OPENAI_COMPATIBLE_BASE_URL',
  ],
  [{ HOLDFAST_API_KEYS: 'hunter2:t' }, 'HOLDFAST_API_KEYS (value not shown): entry 1: a key has 16 to 512 characters'],
])('OPS-02, SEC-10: a problem with a secret does not show its value', async (env, text) => {
  const { message } = await refusal(env)
  expect(message).toContain(text)
  expect(message).not.toContain('hunter2')
})

it.each(['0.0.0.0', '::', '192.168.1.5', 'example.com', '127.0.0.1.evil.test'])(
  'SEC-01: HOST=%s without authentication is refused and the text says why',
  async (host) => {
    const { message } = await refusal({ HOST: host })
    expect(message).toContain(`HOST is "${host}": without authentication whoever reaches that address could read`)
    expect(message).toContain('must be a loopback address')
    expect(message).toContain('or set HOLDFAST_API_KEYS, HOLDFAST_API_KEYS_FILE or `auth` of the config file')
  },
)

it.each(['127.0.0.1', '127.1.2.3', '::1', 'localhost'])('SEC-01: HOST=%s is accepted', async (host) => {
  expect((await loadConfig({ env: { HOST: host }, cwd: await directory() })).host).toBe(host)
})

it('OPS-02: a misspelt HOLDFAST_ variable and a base URL without its key are named in warnings', async () => {
  const env = { HOLDFAST_LEASE: '1', ANTHROPIC_BASE_URL: 'http://u:hunter2@h/', HOLDFAST_SOMETHING_ELSE: '1' }
  const config = await loadConfig({ env, cwd: await directory() })
  expect(config.warnings).toEqual([
    'HOLDFAST_LEASE is not a setting of Holdfast and is not used; did you mean HOLDFAST_LEASE_MS?',
    'HOLDFAST_SOMETHING_ELSE is not a setting of Holdfast and is not used',
    'ANTHROPIC_BASE_URL is set without ANTHROPIC_API_KEY and is not used',
  ])
  expect(JSON.stringify(config)).not.toContain('hunter2')
})

it('OPS-02: hosts that are allowed are compared in lower case; with authentication they are said to do nothing', async () => {
  const env = { HOLDFAST_ALLOWED_HOSTS: 'Holdfast.Example., web_1' }
  const config = await loadConfig({ env, cwd: await directory() })
  expect(config.allowedHosts).toEqual(['holdfast.example', 'web_1'])
  expect(config.warnings).toEqual([])
  const keyed = await loadConfig({
    env: { ...env, HOLDFAST_API_KEYS: 'a-key-that-is-long-enough:t' },
    cwd: await directory(),
  })
  expect(keyed.warnings).toEqual([
    'HOLDFAST_ALLOWED_HOSTS is set with authentication and is not used: any name will do',
  ])
})

const counted = (name: string) =>
  `globalThis[${JSON.stringify(name)}] = (globalThis[${JSON.stringify(name)}] ?? 0) + 1\n`
const evaluations = (name: string) => (globalThis as unknown as Record<string, number>)[name]

it.each(['ts', 'mjs', 'js'])('OPS-13: holdfast.config.%s is found, and evaluated once', async (type) => {
  const source = `${counted(`good.${type}`)}export default { limits: { textBytes: 7 }, models: { 'demo/echo': { contextTokens: 9 } } }`
  const cwd = await directory({ [`holdfast.config.${type}`]: source, '.env': 'PORT=1', '.holdfastrc': 'port=1' })
  const config = await loadConfig({ env: {}, cwd })
  expect(config.limits).toEqual({ ...defaultLimits, textBytes: 7 })
  expect(config.models).toEqual({ 'demo/echo': { contextTokens: 9 } })
  expect(config.port).toBe(4000)
  expect(evaluations(`good.${type}`)).toBe(1)
})

it.each(['ts', 'mjs', 'js'])(
  'OPS-13: a .%s config file that throws is named with the cause, and evaluated once',
  async (type) => {
    const file = `mine.${type}`
    const error = await refusal(
      { HOLDFAST_CONFIG: file },
      { [file]: `${counted(`bad.${type}`)}throw new TypeError('no such thing')` },
    )
    expect(error.message).toContain(`${file} cannot be loaded: TypeError: no such thing (`)
    expect((error.cause as Error).message).toBe('no such thing')
    expect(evaluations(`bad.${type}`)).toBe(1)
  },
)

it('OPS-13: a TypeScript config file may import packages of both module kinds and files beside it', async () => {
  const source = `import { z } from '#zod'\nimport pg from '${import.meta.resolve('pg')}'\nimport { size } from './size.ts'
    export default { limits: { textBytes: size + (typeof pg.Client === 'function' ? 1 : 0) }, tools: [] as z.ZodType[] }`
  const cwd = await directory({ 'holdfast.config.ts': source, 'size.ts': 'export const size: number = 41' })
  expect((await loadConfig({ env: {}, cwd })).limits.textBytes).toBe(42)
})

it('OPS-13: the config file of the documentation loads', async () => {
  const text = await readFile(resolve(import.meta.dirname, '../docs/configuration.md'), 'utf8')
  const [, example] = /^```ts\n([\s\S]*?)^```/m.exec(text)!
  const source = example!
    .replace("'zod'", "'#zod'")
    .replace('./src/config.ts', resolve(import.meta.dirname, '../src/config.ts'))
  const config = await loadConfig({ env: {}, cwd: await directory({ 'holdfast.config.ts': source }) })
  expect(config.tools.map(({ name, timeoutMs }) => [name, timeoutMs])).toEqual([['get_weather', 10_000]])
  expect(config.tools[0]!.validate({ city: '' })).toMatchObject({ ok: false, field: 'city' })
})

it('OPS-13: a config file that does not parse, or two that would do, are named', async () => {
  expect((await refusal({}, { 'holdfast.config.ts': 'export default {' })).message).toContain(
    'holdfast.config.ts cannot be loaded',
  )
  expect((await refusal({}, { 'holdfast.config.ts': '', 'holdfast.config.mjs': '' })).message).toContain(
    'holdfast.config.ts and holdfast.config.mjs are both in',
  )
})

it.each([
  ['export const tools = []', 'the default export must be an object, here it is undefined'],
  ['export default () => ({})', 'the default export must be an object, here it is a function'],
  ['export default null', 'the default export must be an object, here it is null'],
])('OPS-13: a config file with %s is refused', async (source, text) => {
  for (const name of ['holdfast.config.mjs', 'holdfast.config.ts']) {
    expect((await refusal({}, { [name]: source })).message).toBe(`${name}: ${text}`)
  }
})

it.each([
  [
    `{ name: 'a', description: 'b', execute: () => 1 }`,
    'holdfast.config.mjs: tool "a": tools[0].inputSchema: is missing: must be a Zod schema or a JSON Schema',
  ],
  [
    `{ name: 'a b', description: 'b', execute: () => 1, inputSchema: z.object({}) }`,
    'tools[0].name: is "a b": must be 1 to 64 letters',
  ],
  [`7`, 'holdfast.config.mjs: tools[0]: is 7: '],
  [asked('inputSchema: z.string()'), 'tools[0].inputSchema: must describe an object'],
  [asked('inputSchema: z.object({ a: z.bigint() })'), 'tools[0].inputSchema: BigInt cannot be represented'],
  [
    asked(`inputSchema: { type: 'object', properties: { a: { type: 'strin' } } }`),
    'tools[0].inputSchema: schema is invalid',
  ],
  [
    asked(`inputSchema: { type: 'object', $ref: 'https://example.com/s' }`),
    `tools[0].inputSchema: can't resolve reference`,
  ],
  [
    asked(`inputSchema: z.object({}), needsApproval: 'yes'`),
    'tools[0].needsApproval: is "yes": must be true, false or a function',
  ],
  [
    asked('inputSchema: z.object({}), needsApproval: async () => false'),
    'tools[0].needsApproval: must be true, false or a function (not an async one)',
  ],
  [asked('inputSchema: z.object({}), approvalExpiresMs: 0'), 'tools[0].approvalExpiresMs: is 0: '],
  [asked(`inputSchema: z.object({}), asks: 'question'`), 'tools[0]: unknown key "asks"'],
  [asked('inputSchema: z.object({}), timeoutMs: 0'), 'tools[0].timeoutMs: is 0: '],
  [asked('inputSchema: z.object({}), timeout: 5'), 'tools[0]: unknown key "timeout", did you mean "timeoutMs"?'],
  [
    `{ name: 'wait', description: 'b', execute: () => 1, inputSchema: z.object({}) }`,
    'tools[0].name: is the name of a built-in tool',
  ],
  [
    `${asked('inputSchema: z.object({})')}, ${asked('inputSchema: z.object({})')}`,
    'tools[1].name: is the name of an earlier tool',
  ],
])('OPS-13: a tool that cannot be used is refused with file and field: %s', async (tool, text) => {
  expect((await refusal({}, withTool(tool))).message).toContain(text)
})

it.each([
  [`{ auth: { secret: 'hunter2' } }`, 'auth.secret: unknown key'],
  [`{ mcpServers: 'hunter2' }`, 'mcpServers: must be an object of servers by name'],
  [`{ mcpServers: { a: 'hunter2' } }`, 'mcpServers.a: must be an object with `command` or with `url`'],
  [`{ mcpServers: { a: { env: { K: 'hunter2' } } } }`, 'mcpServers.a: must have either `command` or `url`'],
  [`{ mcpServers: { a: { command: 'x', url: 'http://hunter2' } } }`, 'mcpServers.a: must have either'],
  [`{ mcpServers: { 'a b': { command: 'hunter2' } } }`, `mcpServers["a b"]: a server's name has 1 to 32 letters`],
  [`{ mcpServers: { a: { url: 'ftp://hunter2' } } }`, 'mcpServers.a.url: must be a URL such as https://host/mcp'],
  [
    `{ mcpServers: { a: { url: 'http://x', headers: { Authorization: 'hunter2\\n' + String.fromCharCode(10, 65) } } } }`,
    'mcpServers.a.headers: must be an object of texts by header name',
  ],
  [`{ mcpServers: { a: { command: 'x', env: { K: ['hunter2'] } } } }`, 'mcpServers.a.env: must be an object of texts'],
  [`{ mcpServers: { a: { command: 'x', args: 'hunter2' } } }`, 'mcpServers.a.args: must be a list of texts'],
  [`{ mcpServers: { a: { command: 'x', arg: ['hunter2'] } } }`, 'mcpServers.a.arg: unknown key, did you mean "args"?'],
  [`{ approvalExpiresMs: '1 day' }`, 'approvalExpiresMs: is "1 day": '],
  [`{ models: { 'x/y': {} } }`, 'models["x/y"]: no provider of that name'],
  [`{ models: { gpt: {} } }`, 'models.gpt: must have the form provider/model'],
  [`{ models: { 'x/y': { model: { apiKey: 'hunter2' } } } }`, 'models["x/y"].model: must be a language model'],
  [`{ limits: { textBytes: '4' } }`, 'limits.textBytes: is "4": '],
  [`{ limits: { textByte: 4 } }`, 'limits: unknown key "textByte", did you mean "textBytes"?'],
])('OPS-02, SEC-13: the config file %s is refused, without the secrets in it', async (content, text) => {
  const { message } = await refusal({}, { 'holdfast.config.mjs': `export default ${content}` })
  expect(message).toContain(text)
  expect(message).not.toContain('hunter2')
})

it('OPS-02: MCP servers and the expiry of approvals reach the configuration, with what may be left out filled in', async () => {
  const source = `export default { approvalExpiresMs: 60000, mcpServers: {
    files: { command: 'files', args: ['-x'], env: { TOKEN: 't' } }, plain: { command: 'p' },
    far: { url: 'https://h/mcp', headers: { Authorization: 'Bearer t' } }, near: { url: 'http://h' } } }`
  const config = await loadConfig({ env: {}, cwd: await directory({ 'holdfast.config.mjs': source }) })
  expect(config.approvalExpiresMs).toBe(60_000)
  expect(config.mcpServers).toEqual({
    files: { command: 'files', args: ['-x'], env: { TOKEN: 't' } },
    plain: { command: 'p', args: [], env: {} },
    far: { url: 'https://h/mcp', headers: { Authorization: 'Bearer t' } },
    near: { url: 'http://h', headers: {} },
  })
})

it('needsApproval may be a boolean or a function of the input; one that says nothing asks', async () => {
  const tools = [
    `needsApproval: true, approvalExpiresMs: 5`,
    `needsApproval({ amount }) { return amount > this.name.length }`,
    `needsApproval: ({ a }) => a.b.c`,
    `needsApproval: () => undefined`,
    `needsApproval: ({ amount }) => amount > 7`,
  ].map(
    (fields, index) =>
      `{ name: 't${index}', description: 'b', execute: () => 1, inputSchema: z.object({}), ${fields} }`,
  )
  const { tools: made } = await loadConfig({ env: {}, cwd: await directory(withTool(tools.join(', '))) })
  const asks = (index: number, input: unknown) => {
    const { needsApproval } = made[index]!
    return typeof needsApproval === 'function' ? needsApproval(input) : needsApproval
  }
  expect(asks(0, {})).toBe(true)
  expect(made[0]!.approvalExpiresMs).toBe(5)
  expect(asks(1, { amount: 1 })).toBe(false)
  expect(() => asks(2, {}), 'left to the caller').toThrow(TypeError)
  expect(asks(3, {})).toBe(true)
  expect([asks(4, { amount: 8 }), asks(4, { amount: 7 })]).toEqual([true, false])
})

it('the definition of a tool changes with its name, description and schema, and with nothing else', () => {
  const base = {
    name: 'a',
    description: 'b',
    execute: () => 1,
    inputSchema: { type: 'object', properties: { x: {}, y: {} } },
  }
  const definition = (over: object) => {
    const made = prepareTool({ ...base, ...over })
    return 'tool' in made ? made.tool.definition : expect.fail('refused')
  }
  expect(definition({ execute: () => 2, timeoutMs: 5, needsApproval: true })).toBe(definition({}))
  expect(definition({ inputSchema: { properties: { y: {}, x: {} }, type: 'object' } })).toBe(definition({}))
  const others = [
    { name: 'c' },
    { description: 'c' },
    { inputSchema: { type: 'object', properties: { x: {} } } },
    { inputSchema: { type: 'object', properties: { x: {}, y: { enum: [2, 1] } } } },
    { inputSchema: { type: 'object', properties: { x: {}, y: { enum: [1, 2] } } } },
  ].map(definition)
  expect(new Set([definition({}), ...others]).size).toBe(6)
  // Pinned: a remembered approval has to outlive an upgrade.
  expect(definition({})).toBe('RrvBo2Cv0P3ZCXehoNiEhQ')
})

it('TOOL-07: input is checked by a Zod schema and by JSON Schemas of several drafts, and the field is named', async () => {
  const draft = (
    url: string,
  ) => `{ ${url && `$schema: '${url}', `}type: 'object', required: ['to'], additionalProperties: false,
    properties: { to: { type: 'array', items: { $ref: '#/$defs/city' } } }, $defs: { city: { enum: ['Rome', 'Oslo'] } } }`
  const schemas = [
    `z.strictObject({ to: z.array(z.enum(['Rome', 'Oslo'])) })`,
    draft(''),
    draft('http://json-schema.org/draft-07/schema#'),
    draft('http://json-schema.org/draft-06/schema#'),
    draft('https://json-schema.org/draft/2019-09/schema'),
    draft('https://json-schema.org/draft/2020-12/schema'),
  ]
  const tools = schemas.map(
    (schema, i) => `{ name: 't${i}', description: 'b', execute: () => 1, inputSchema: ${schema} }`,
  )
  const { tools: loaded } = await loadConfig({ env: {}, cwd: await directory(withTool(tools.join(', '))) })
  expect(loaded).toHaveLength(6)
  for (const { validate, jsonSchema } of loaded) {
    expect(jsonSchema).toMatchObject({ type: 'object', required: ['to'] })
    expect(validate({ to: ['Rome'] })).toEqual({ ok: true, value: { to: ['Rome'] } })
    expect(validate({ to: ['Rome', 'Bonn'] })).toMatchObject({ ok: false, field: 'to.1' })
    expect(validate({})).toMatchObject({ ok: false, field: 'to' })
    expect(validate('x')).toMatchObject({ ok: false, field: 'input' })
    expect(validate({ to: [], from: 1 })).toMatchObject({ ok: false })
  }
})

it('TOOL-07: a rule of the schema that throws or is asynchronous refuses the call and throws nothing', async () => {
  const rules = ['() => { throw new Error("rule broke") }', 'async () => true']
  const tools = rules.map(
    (rule, i) => `{ name: 't${i}', description: 'b', execute: () => 1, inputSchema: z.object({}).refine(${rule}) }`,
  )
  const { tools: loaded } = await loadConfig({ env: {}, cwd: await directory(withTool(tools.join(', '))) })
  for (const { validate } of loaded) {
    expect(validate({})).toMatchObject({
      ok: false,
      field: 'input',
      message: expect.stringContaining('cannot be checked'),
    })
  }
})
