import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { buildSchema, findBreakingChanges } from 'graphql'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checks } from '../conformance/checks/index.ts'
import { contract } from '../conformance/contract.ts'
import { applied } from '../conformance/mutants/apply.ts'
import { mutants } from '../conformance/mutants/table.ts'
import { createTestDatabase, type TestDatabase } from './support/database.ts'
import { endServers, startServer } from './support/server-process.ts'

// The conformance kit against a real server, run as a user runs it; and that its table of mutants still fits the source.

const root = fileURLToPath(new URL('..', import.meta.url))
const read = (file: string) => readFileSync(join(root, file), 'utf8')
const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href

interface Report {
  passed: number
  failed: number
  skipped: number
  results: { id: string; outcome: 'pass' | 'fail' | 'skip'; detail: string | null }[]
}

/** The kit as a process of its own, as `npm run conformance` starts it. */
function kit(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    const command = ['--import', tsx, 'conformance/run.ts', ...args]
    execFile(process.execPath, command, { cwd: root, maxBuffer: 10_000_000 }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr }),
    )
  })
}

const token = 'a-key-for-the-conformance-kit'
let database: TestDatabase
/** Of a server that anybody may use, and of one that asks for a token; both on one database. */
let url: string
let guarded: string

beforeAll(async () => {
  database = await createTestDatabase()
  const env = { DATABASE_URL: database.url, HOLDFAST_CONFIG: 'conformance/holdfast.config.mjs' }
  url = await startServer(env).ready
  guarded = await startServer({ ...env, HOLDFAST_API_KEYS: `${token}:conformance` }).ready
}, 120_000)
afterAll(async () => {
  await endServers()
  await database?.drop()
})

describe('npm run conformance', () => {
  it('API-01, API-02, API-03, STREAM-01, STREAM-18, STREAM-19, STREAM-20, SEC-02: passes on this server and this database; with a token and a tool for approvals nothing is skipped', async () => {
    const { code, stdout, stderr } = await kit(guarded, '--token', token, '--json')
    const { results, ...counts } = JSON.parse(stdout) as Report
    expect(results.filter(({ outcome }) => outcome !== 'pass')).toEqual([])
    expect(results.map(({ id }) => id)).toEqual(checks.map(({ id }) => id))
    expect(counts).toEqual({ passed: checks.length, failed: 0, skipped: 0 })
    expect([code, stderr]).toEqual([0, ''])
  }, 180_000)

  it('without a token the checks of authentication are skipped, with the reason; a server that asks for one is not checked', async () => {
    const { code, stdout } = await kit(url, '--only', 'C-SEC,C-STREAM-01')
    expect(stdout.split('\n').map((line) => line.slice(0, 18))).toEqual([
      'C-STREAM-01  pass ',
      'C-SEC-01  pass  a ',
      ...['C-SEC-02', 'C-SEC-03', 'C-SEC-04'].map((id) => expect.stringContaining(`${id}  skip  `)),
      'C-SEC-05  pass  no',
      '3 passed, 0 failed',
      '',
    ])
    expect(stdout.match(/: no --token was given$/gm)).toHaveLength(3)
    expect(code).toBe(0)
    const refused = await kit(guarded)
    expect(refused.stderr).toMatch(/cannot be checked: .*UNAUTHENTICATED/s)
    expect(refused.code).toBe(2)
  })

  it('says what it expected and saw, and exits with 1, when a promise does not hold: here the schema of another server', async () => {
    const other = createServer((request, response) => {
      let body = ''
      request.setEncoding('utf8').on('data', (text) => {
        body += text
      })
      request.on('end', async () => {
        const passed = await fetch(new URL('graphql', url), {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body,
        })
        // The same server, but one type of its schema has lost a field's promise not to be null.
        const text = (await passed.text()).replace('"name":"wakePending"', '"name":"armed"')
        response.writeHead(passed.status, { 'content-type': 'application/json' }).end(text)
      })
    })
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve))
    try {
      const { port } = other.address() as AddressInfo
      const { code, stdout } = await kit(`http://127.0.0.1:${port}/`, '--only', 'C-SCHEMA-01')
      expect(stdout).toMatch(/^C-SCHEMA-01 {2}fail .* expected \[\], saw \[".*wakePending/)
      expect(stdout).toContain('0 passed, 1 failed, 0 skipped')
      expect(code).toBe(1)
    } finally {
      other.closeAllConnections()
      other.close()
    }
  })

  it('a skip is visible with its reason, and nothing checked is no success', async () => {
    const { code, stdout } = await kit(url, '--model', 'nobody/nothing', '--only', 'C-STREAM-06')
    expect(stdout).toMatch(
      /^C-STREAM-06 {2}skip .*: the server has no model nobody\/nothing\n0 passed, 0 failed, 1 skipped/,
    )
    expect(code).toBe(2)
  })

  it.each([
    [[], /one URL is needed/],
    [['nonsense'], /nonsense is not an address/],
    [['http://127.0.0.1:1/'], /cannot be checked: .*ECONNREFUSED|cannot be checked: .*bad port/],
    [['http://127.0.0.1:9/', '--only', 'C-NOTHING'], /there is no check C-NOTHING/],
    [['http://127.0.0.1:9/', '--loud'], /--loud/],
  ])('refuses %j in words, with exit code 2', async (args, words) => {
    const { code, stderr } = await kit(...args)
    expect(stderr).toMatch(words)
    expect(code).toBe(2)
  })
})

describe('what the kit is made of', () => {
  it('ids are unique, and docs/conformance.md has each check with its promise', () => {
    const ids = checks.map(({ id }) => id)
    expect(new Set(ids).size).toBe(ids.length)
    const document = read('docs/conformance.md')
    const listed = [...document.matchAll(/^\| `(C-[A-Z]+-\d\d)` \| (.+) \|$/gm)].map(([, id, title]) => [id, title])
    expect(listed).toEqual(checks.map(({ id, title }) => [id, title]))
  })

  it('API-01: its copy of the contract is one that the schema of this server fulfils, and it imports nothing of the server', () => {
    expect(findBreakingChanges(contract, buildSchema(read('schema.graphql')))).toEqual([])
    const sources = [
      'run',
      'check',
      'perform',
      'world',
      'watching',
      'http',
      'sse',
      'websocket',
      'contract',
      'outcome',
      'arrivals',
    ]
    for (const name of sources) expect(read(`conformance/${name}.ts`)).not.toMatch(/from '[./]*src\//)
  })

  it('every mutant fits the source as it stands, names checks that exist, and is described in docs/conformance.md', () => {
    expect(mutants.length).toBeGreaterThanOrEqual(10)
    const document = read('docs/conformance.md')
    for (const mutant of mutants) {
      for (const [file, source] of applied(mutant, read))
        expect(source, `${mutant.name} in ${file}`).not.toBe(read(file))
      for (const id of mutant.caughtBy) {
        expect(checks.map((check) => check.id)).toContain(id)
        expect(document).toContain(
          `| \`${mutant.name}\` | ${mutant.breaks} | ${mutant.caughtBy.map((each) => `\`${each}\``).join(', ')} |`,
        )
      }
    }
    expect(new Set(mutants.map(({ name }) => name)).size).toBe(mutants.length)
    expect(() => applied({ ...mutants[0]!, edits: [{ file: 'package.json', text: 'nowhere', by: '' }] }, read)).toThrow(
      /^stale mutant .*: its text stands 0 times in package.json, not once/,
    )
  })
})
