import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createServer, type Server } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { transformSync } from 'esbuild'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { ask } from '../support/server-process.ts'

// Both tarballs as a user gets them: the client in an empty project beside the libraries that the examples name, and the server. The
// libraries are linked from here instead of installed, so nothing is fetched.

const root = fileURLToPath(new URL('../..', import.meta.url))
const modules = join(root, 'node_modules')
const require = createRequire(import.meta.url)
const tsc = join(dirname(require.resolve('typescript/package.json')), 'bin/tsc')
const tsx = pathToFileURL(require.resolve('tsx')).href
const codegen = join(modules, '@graphql-codegen/cli/esm/bin.js')
const peers = [
  '@apollo/client',
  '@graphql-codegen/cli',
  '@graphql-codegen/client-preset',
  '@graphql-typed-document-node/core',
  '@types/node',
  '@types/react',
  '@types/react-dom',
  '@types/ws',
  'graphql',
  'graphql-ws',
  'happy-dom',
  'react',
  'react-dom',
  'rxjs',
  'urql',
  'ws',
]

let dir: string
let project: string
let database: TestDatabase
let server: ChildProcess
let url: string

/** Its output. What it says when it fails is quoted, so that nobody takes its stack for the test's. */
const inProject = async (...args: string[]) => {
  try {
    return (await promisify(execFile)(process.execPath, args, { cwd: project, timeout: 60_000 })).stdout
  } catch (thrown) {
    const { stdout = '', stderr = '' } = thrown as { stdout?: string; stderr?: string }
    throw new Error(`node ${args.join(' ')} failed\n${`${stdout}${stderr}`.replaceAll(/^/gm, '| ')}`)
  }
}
const example = (file: string, at = url) => inProject('--import', tsx, file, at)

function unpack(tarball: string, into: string): void {
  mkdirSync(into, { recursive: true })
  execFileSync('tar', ['-xzf', tarball, '-C', into, '--strip-components=1'])
}

async function startServer(): Promise<string> {
  const packed = join(dir, 'server')
  execFileSync('npm', ['pack', '--silent', '--pack-destination', dir], { cwd: root, stdio: 'ignore' })
  unpack(join(dir, readdirSync(dir).find((name) => /^holdfast-\d.*\.tgz$/.test(name))!), packed)
  symlinkSync(modules, join(packed, 'node_modules'))
  const { PATH = '', HOME = '' } = process.env
  server = spawn(process.execPath, ['scripts/start.mjs'], {
    cwd: packed,
    env: { PATH, HOME, PORT: '0', DATABASE_URL: database.url },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let said = ''
  return new Promise((resolve, reject) => {
    server.once('exit', () => reject(new Error(`the server ended: ${said}`)))
    server.stdout!.on('data', (text: Buffer) => {
      said += text
      const at = /ready at (\S+)/.exec(said)?.[1]
      if (at) resolve(at)
    })
  })
}

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'holdfast-examples-'))
  project = join(dir, 'project')
  database = await createTestDatabase()
  url = await startServer()
  execFileSync(process.execPath, [join(root, 'scripts/pack-client.mjs'), dir], { stdio: 'ignore' })
  unpack(
    join(dir, readdirSync(dir).find((name) => name.startsWith('holdfast-client-'))!),
    join(project, 'node_modules/holdfast'),
  )
  writeFileSync(join(project, 'package.json'), JSON.stringify({ name: 'empty', private: true, type: 'module' }))
})
afterAll(async () => {
  if (server && server.exitCode === null) {
    server.removeAllListeners('exit')
    const ended = new Promise((resolve) => server.once('exit', resolve))
    server.kill('SIGTERM')
    await ended
  }
  await database?.drop()
  if (dir) rmSync(dir, { recursive: true, force: true, maxRetries: 5 })
})

describe('the tarball of the client', () => {
  const packed = () => join(project, 'node_modules/holdfast')

  it('runs with nothing beside it, and is small', async () => {
    const names = await inProject('-e', 'import("holdfast/client").then((all) => console.log(Object.keys(all).join()))')
    expect(names.trim().split(',')).toEqual(
      expect.arrayContaining(['followSession', 'AdmitPromptDocument', 'newMessageId']),
    )
    const files = ['LICENSE', 'README.md', 'client', 'examples', 'package.json', 'schema.graphql']
    expect(readdirSync(packed()).sort()).toEqual(files)
    const links = [...readFileSync(join(packed(), 'README.md'), 'utf8').matchAll(/\]\(([\w./-]+)\)/g)]
    expect(links.length).toBeGreaterThan(5)
    for (const [, link] of links) expect(existsSync(join(packed(), link!)), link).toBe(true)
    const code = transformSync(readFileSync(join(packed(), 'client/index.js'), 'utf8'), { minify: true }).code
    const bytes = gzipSync(code, { level: 9 }).length
    console.log(`the whole client, minified: ${bytes} bytes compressed`)
    expect(bytes).toBeLessThan(25_000)
  })

  it('has types that are whole, for bundlers and for Node, without skipLibCheck', async () => {
    for (const name of peers) {
      mkdirSync(dirname(join(project, 'node_modules', name)), { recursive: true })
      symlinkSync(join(modules, name), join(project, 'node_modules', name))
    }
    mkdirSync(join(project, 'types'))
    const use =
      "import * as client from 'holdfast/client'\nexport const id: string = client.newSessionId()\nexport type View = client.SessionView\n"
    writeFileSync(join(project, 'types/use.ts'), use)
    const strict = [
      '--strict',
      '--exactOptionalPropertyTypes',
      '--noUncheckedIndexedAccess',
      '--noEmit',
      '--types',
      'node',
    ]
    for (const [module, resolution] of [
      ['nodenext', 'nodenext'],
      ['preserve', 'bundler'],
    ] as const)
      await inProject(
        tsc,
        ...strict,
        '--target',
        'es2023',
        '--module',
        module,
        '--moduleResolution',
        resolution,
        '--skipLibCheck',
        'false',
        'types/use.ts',
      )
  })
})

describe('the examples, in an empty project', () => {
  beforeAll(async () => {
    cpSync(join(root, 'examples'), project, { recursive: true })
    cpSync(join(root, 'test/examples/react-in-node.ts'), join(project, 'react-in-node.ts'))
    rmSync(join(project, 'types'), { recursive: true, force: true })
    await inProject(codegen, '--config', 'codegen/codegen.ts')
  })

  it('are all typed strictly, documents from codegen included', async () => {
    await inProject(tsc, '-p', 'tsconfig.json')
  })

  it('graphql-ws: everything over one WebSocket', async () => {
    const said = await example('graphql-ws/main.ts')
    expect(said).toContain('UserMessage: /slow 20 Hello over a WebSocket')
    expect(said).toMatch(/AssistantMessage: [\s\S]*Hello over a WebSocket/)
    expect(said).toContain('ended: CLOSED')
  })

  it('SSE only: the text comes in pieces, the view is live in between', async () => {
    const said = await example('sse/main.ts')
    expect(said).toContain('Hello over server-sent events')
    expect(said).toContain('ended: CLOSED')
    expect(said).toContain('CONNECTING LIVE ENDED')
  })

  it('plain fetch: the log is polled and reduced', async () => {
    const said = await example('plain-fetch/main.ts')
    expect(said).toContain('ADMITTED')
    expect(said).toMatch(/AssistantMessage: [\s\S]*Hello over plain fetch/)
  })

  it('urql: mutations and lists by urql, the conversation through its exchanges', async () => {
    const said = await example('urql/main.ts')
    expect(said).toMatch(/AssistantMessage: [\s\S]*Hello through urql/)
    expect(said).toContain('listed: true')
  })

  it('Apollo and React: a session is made, a prompt sent, its answer shown, and the list follows', async () => {
    const said = await example('react-in-node.ts')
    expect(said).toContain('From React: IDLE')
    expect(said).toContain('Hello from React')
  })

  it('Apollo RetryLink: answers that are lost cost nothing, a prompt that is sent twice is admitted once', async () => {
    const lossy = await losing(url, 2)
    const said = await example('apollo-retry/main.ts', lossy.url)
    lossy.server.closeAllConnections()
    lossy.server.close()
    expect(lossy.lost()).toBe(2)
    const [, sessionId] = /ALREADY_\w+ in session (\S+) after 4 attempts/.exec(said) ?? []
    expect(sessionId, said).toBeDefined()
    const query = 'query ($id: ID!) { session(id: $id) { inputs { id } } }'
    expect((await ask(url, query, { id: sessionId })).session.inputs).toHaveLength(1)
  })

  it('codegen in a repository of its own', async () => {
    expect(await example('codegen/main.ts')).toContain('Of my own: IDLE')
  })
})

describe('the tarball of the whole', () => {
  it('runs the server, with its console', async () => {
    expect((await ask(url, '{ models { id } }')).models).toContainEqual({ id: 'demo/echo' })
    const page = await fetch(url)
    expect([page.status, await page.text()]).toEqual([200, expect.stringContaining('<script type="module"')])
  })
})

/** A way to the server on which the first answer to each of so many mutations is lost after the server has given it. */
async function losing(to: string, count: number): Promise<{ url: string; server: Server; lost(): number }> {
  const seen = new Set<string>()
  const proxy = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const body = Buffer.concat(chunks).toString()
    const headers = { 'content-type': 'application/json', accept: String(request.headers.accept) }
    const answer = await fetch(new URL(request.url!, to), { method: 'POST', headers, body })
    const text = await answer.text()
    if (seen.size < count && !seen.has(body)) {
      seen.add(body)
      return void request.socket.destroy()
    }
    response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? '' }).end(text)
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const { port } = proxy.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}/`, server: proxy, lost: () => seen.size }
}
