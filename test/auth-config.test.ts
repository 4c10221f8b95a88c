// What may be set for authentication, and what a start says to what may not: setting and rule, never a key.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { digestOf } from '../src/config/api-keys.ts'
import { type ConfigError, loadConfig } from '../src/config.ts'

let cwd: string
beforeEach(() => {
  cwd = mkdtempSync(join(tmpdir(), 'hf-auth-config-'))
})
afterEach(() => rmSync(cwd, { recursive: true, force: true }))

const key = 'hunter2-hunter2-hunter2-1'
const other = 'hunter2-hunter2-hunter2-2'
const write = (name: string, text: string) => writeFileSync(join(cwd, name), text)
const load = (env: Record<string, string> = {}, auth?: string) => {
  if (auth !== undefined) write('holdfast.config.mjs', `export default { auth: ${auth} }`)
  return loadConfig({ env, cwd })
}
async function refusal(env: Record<string, string>, auth?: string): Promise<readonly string[]> {
  const error = await load(env, auth).then(
    () => undefined,
    (thrown: ConfigError) => thrown,
  )
  expect(error?.name).toBe('ConfigError')
  // Whatever it says, it shows no key, no secret and no password.
  expect(error!.message).not.toContain('hunter2')
  return error!.problems
}

it('API keys, a file of keys and JWT can be set together; keys are kept as digests alone', async () => {
  write('keys', `# of the team\r\n\n  ${other}:org:one|x@y \r\n`)
  const { auth } = await load(
    { HOLDFAST_API_KEYS: ` ${key}:a , `, HOLDFAST_API_KEYS_FILE: 'keys' },
    `{ jwt: { jwksUrl: 'https://issuer.example/jwks.json', issuer: 'https://issuer.example/' } }`,
  )
  expect(auth?.keys).toEqual([{ digest: digestOf(key), tenant: 'a' }])
  expect(auth?.file).toEqual({ path: join(cwd, 'keys'), keys: [{ digest: digestOf(other), tenant: 'org:one|x@y' }] })
  expect(auth?.jwt).toMatchObject({ issuer: 'https://issuer.example/', tenantClaim: 'tenant' })
  expect(auth?.jwt?.algorithms).toContain('RS256')
  expect(auth?.jwt?.algorithms).not.toContain('HS256')
  expect(JSON.stringify(auth)).not.toContain('hunter2')
  expect(Object.isFrozen(auth)).toBe(true)
})

it('nothing set: no authentication', async () => {
  expect((await load({ HOLDFAST_API_KEYS: '', HOLDFAST_API_KEYS_FILE: '' })).auth).toBeUndefined()
})

it('SEC-01: with any of them another host than loopback may be listened on', async () => {
  write('keys', `${key}:a`)
  const secret = `{ jwt: { secret: '${'s'.repeat(32)}' } }`
  expect((await load({ HOST: '0.0.0.0', HOLDFAST_API_KEYS: `${key}:a` })).host).toBe('0.0.0.0')
  expect((await load({ HOST: '0.0.0.0', HOLDFAST_API_KEYS_FILE: 'keys' })).host).toBe('0.0.0.0')
  expect((await load({ HOST: '0.0.0.0' }, secret)).host).toBe('0.0.0.0')
})

const short = 'a key has 16 to 512 characters of A-Z a-z 0-9 . _ ~ + / = -'
const tenant = 'a tenant begins with a letter or digit and has at most 128 characters of A-Z a-z 0-9 . _ : @ | / + = -'

it.each([
  ['hunter2', 'entry 1: must have the form key:tenant'],
  [`${key}:a,hunter2:b`, `entry 2: ${short}`],
  [`${'hunter2'.repeat(80)}:b`, `entry 1: ${short}`],
  ['hunter2 hunter2 hunter2:a', `entry 1: ${short}`],
  ['hunter2-hunter2-hünter2:a', `entry 1: ${short}`],
  [`${key}:`, `entry 1: ${tenant}`],
  [`${key}: a`, `entry 1: ${tenant}`],
  [`${key}:${'a'.repeat(129)}`, `entry 1: ${tenant}`],
  [`${key}:a,${other}:b,${key}:b`, 'entry 3: this key stands in an earlier entry too'],
  [' , ', 'must hold at least one key:tenant'],
])(
  'OPS-02, SEC-10: HOLDFAST_API_KEYS with a problem is refused with entry and rule, without the key',
  async (list, rule) => {
    expect(await refusal({ HOLDFAST_API_KEYS: list })).toEqual([`HOLDFAST_API_KEYS (value not shown): ${rule}`])
  },
)

it('OPS-02, SEC-10: a file of keys with problems is refused with path, line and rule, without the keys', async () => {
  const path = join(cwd, 'keys')
  const env = { HOLDFAST_API_KEYS_FILE: 'keys' }
  const at = `HOLDFAST_API_KEYS_FILE is "${path}": `
  expect(await refusal(env)).toEqual([`${at}cannot be read (ENOENT)`])
  expect(await refusal({ HOLDFAST_API_KEYS_FILE: '.' })).toEqual([
    `HOLDFAST_API_KEYS_FILE is "${cwd}": cannot be read (EISDIR)`,
  ])
  write('keys', `# comment\n${key}:a\nhunter2:b\n\n${key}:b\n`)
  expect(await refusal(env)).toEqual([`${at}line 3: ${short}`, `${at}line 5: this key stands in an earlier entry too`])
  write('keys', '# nobody\n')
  expect(await refusal(env)).toEqual([`${at}must hold at least one line key:tenant`])
  write('keys', `${key}:a`)
  expect(await refusal({ ...env, HOLDFAST_API_KEYS: `${key}:a` })).toEqual([
    `${at}a key of it stands in HOLDFAST_API_KEYS too, where taking it out of the file would not end it`,
  ])
  write('keys', `${key}:a\n${'#'.repeat(4_000_000)}`)
  expect(await refusal(env)).toEqual([`${at}must have at most 4000000 bytes`])
})

const s = (bytes: number) => `'hunter2${'x'.repeat(bytes - 7)}'`
it.each([
  [`'hunter2'`, ['auth: must be an object such as { jwt: { secret: … } }']],
  ['{}', ['auth: must have `jwt`; API keys are given by HOLDFAST_API_KEYS or HOLDFAST_API_KEYS_FILE']],
  [`{ jwtt: { secret: ${s(32)} } }`, ['auth.jwtt: unknown key, did you mean "jwt"?']],
  [`{ jwt: 'hunter2' }`, ['auth.jwt: must be an object with `secret` or `jwksUrl`']],
  ['{ jwt: {} }', ['auth.jwt: must have either `secret` or `jwksUrl`']],
  [
    `{ jwt: { secret: ${s(32)}, jwksUrl: 'https://issuer.example/jwks' } }`,
    ['auth.jwt: must have either `secret` or `jwksUrl`'],
  ],
  [
    `{ jwt: { secret: ${s(31)} } }`,
    ['auth.jwt.secret: must be a text of at least 32 bytes, as long as the hash of its algorithm'],
  ],
  [
    `{ jwt: { secret: ${s(63)}, algorithms: ['HS256', 'HS512'] } }`,
    ['auth.jwt.secret: must be a text of at least 64 bytes, as long as the hash of its algorithm'],
  ],
  [
    '{ jwt: { secret: 12 } }',
    ['auth.jwt.secret: must be a text of at least 32 bytes, as long as the hash of its algorithm'],
  ],
  [
    `{ jwt: { secret: ${s(32)}, algorithms: ['none'] } }`,
    ['auth.jwt.algorithms: must be a list of some of HS256, HS384, HS512 with `secret`'],
  ],
  [
    `{ jwt: { jwksUrl: 'https://issuer.example/jwks', algorithms: ['HS256'] } }`,
    [expect.stringMatching(/: auth\.jwt\.algorithms: must be a list of some of RS256, .* with `jwksUrl`$/)],
  ],
  [`{ jwt: { secret: ${s(32)}, algorithms: [] } }`, [expect.stringContaining('auth.jwt.algorithms: must be a list')]],
  ...['http://issuer.example/jwks', 'https://u:hunter2@issuer.example/', 'file:///hunter2', 'hunter2'].map(
    (url): [string, unknown[]] => [
      `{ jwt: { jwksUrl: '${url}' } }`,
      ['auth.jwt.jwksUrl: must be an https URL, or an http one of a loopback address, without user and password'],
    ],
  ),
  [
    `{ jwt: { secret: ${s(32)}, issuer: '', audience: [''], tenantClaim: 7, tenants: 'x' } }`,
    [
      'auth.jwt.tenants: unknown key',
      'auth.jwt.issuer: must be a text that is not empty',
      'auth.jwt.audience: must be a text that is not empty, or a list of such',
      'auth.jwt.tenantClaim: must be the name of a claim',
    ],
  ],
])('OPS-02, SEC-10: auth: %s is refused with field and rule, without the secret', async (auth, rules) => {
  const expected = rules.map((rule) => (typeof rule === 'string' ? `holdfast.config.mjs: ${rule}` : rule))
  expect(await refusal({}, auth)).toEqual(expected)
})

it.each(['http://127.0.0.1:9/jwks', 'http://localhost/jwks', 'http://[::1]:9/jwks', 'https://issuer.example/jwks'])(
  'auth.jwt.jwksUrl: %s is accepted',
  async (url) => {
    expect((await load({}, `{ jwt: { jwksUrl: '${url}' } }`)).auth?.jwt?.key).toEqual({ jwksUrl: new URL(url) })
  },
)
