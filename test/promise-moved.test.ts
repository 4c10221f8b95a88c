// The directory of a server that runs is moved or removed. Real processes, real moves.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, expect, it } from 'vitest'
import { isAlive } from '../src/embedded/process-table.ts'
import { startEmbedded } from '../src/embedded/server.ts'
import { copyTree } from './guards/copy.ts'
import { createTestDatabase } from './support/database.ts'
import { openDirectory, serverPid, sweep, until } from './support/embedded-processes.ts'
import { ask, endServers, type ServerProcess, startServer } from './support/server-process.ts'

const homes: string[] = []
const left: number[] = []
afterEach(endServers)
afterAll(async () => {
  for (const pid of left) if (isAlive(pid)) process.kill(pid, 'SIGQUIT')
  await until(() => left.every((pid) => !isAlive(pid)), 'the database servers to end')
  await sweep(homes)
})

const prompt = `mutation ($m: ID!) {
  createSession(input: { sessionId: "ses_moved0001" }) { __typename }
  admitPrompt(input: { sessionId: "ses_moved0001", messageId: $m, text: "/slow 100 one two three" }) { ... on PromptAdmission { outcome } }
}`
const read = `{
  quarantine { edges { node { reason } } }
  session(id: "ses_moved0001") { status recoveries { id } messages(first: 20) { edges { node { __typename id } } } }
}`
const ready = async (url: string) => {
  const response = await fetch(new URL('readyz', url)).catch(() => null)
  return response === null ? 'refused' : `${response.status} ${(await response.text()).trim()}`
}

/** A server with a prompt under way, and the process of its database. */
async function underWay() {
  const base = openDirectory()
  const [from, to] = [join(base, 'project'), join(base, 'project2')]
  mkdirSync(from, { mode: 0o755 })
  homes.push(join(from, '.holdfast'), join(to, '.holdfast'))
  const server = startServer({ HOLDFAST_DATA_DIR: join(from, '.holdfast') })
  const url = await server.ready
  const postgres = serverPid(join(from, '.holdfast'))!
  left.push(postgres)
  expect(await ask(url, prompt, { m: 'msg_moved0001' })).toMatchObject({ admitPrompt: { outcome: 'ADMITTED' } })
  return { from, to, server, url, postgres }
}

/** A server that does not notice goes on for ever. */
const endOf = (server: ServerProcess) =>
  Promise.race([
    server.ended,
    new Promise<never>((_, reject) => setTimeout(() => reject(new Error('it goes on')), 45_000).unref()),
  ])

const restsWith = (url: string, messages: number) =>
  until2(async () => {
    const { session, quarantine } = await ask(url, read)
    expect(quarantine.edges).toEqual([])
    return session.status === 'IDLE' && session.messages.edges.length >= messages
  })

async function until2(holds: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 60_000
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error('waited 60 s')
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

it('PROMISE-151: moved: the server says so, ends in order with its database, and one in the new place goes on with all that was acknowledged', async () => {
  const { from, to, server, url, postgres } = await underWay()
  renameSync(from, to)
  const { code } = await endOf(server)
  expect(code).toBe(1)
  expect(isAlive(postgres)).toBe(false)
  expect(server.stderr()).toContain(`was moved to ${join(to, '.holdfast')} while it was in use`)
  expect(await ready(url)).toBe('refused')
  expect(existsSync(from)).toBe(false)
  const next = startServer({ HOLDFAST_DATA_DIR: join(to, '.holdfast') })
  const at = await next.ready
  await restsWith(at, 2)
  expect(await ask(at, prompt.replace('createSession', 'c: createSession'), { m: 'msg_moved0001' })).toMatchObject({
    admitPrompt: { outcome: 'ALREADY_PROMOTED' },
  })
  next.signal('SIGTERM')
  expect((await next.ended).code).toBe(0)
}, 120_000)

it('PROMISE-152: moved after its process was killed, while its database server lives: that one is found in the new place, no second one can begin there, and it ends with its last user', async () => {
  const { from, to, server, postgres } = await underWay()
  server.signal('SIGKILL')
  await server.ended
  renameSync(from, to)
  const lines: string[] = []
  const dataDir = join(to, '.holdfast')
  const database = await startEmbedded({ dataDir, log: (line) => lines.push(line) })
  expect(database.joined).toBe(true)
  expect(serverPid(dataDir)).toBe(postgres)
  // PostgreSQL itself lets no second one in.
  const second = () =>
    execFileSync('/bin/sh', ['-c', secondServer(postgres, join(dataDir, 'postgres'))], { encoding: 'utf8' })
  expect(second()).toMatch(/lock file "postmaster.pid" already exists/)
  const next = startServer({ HOLDFAST_DATA_DIR: dataDir })
  await restsWith(await next.ready, 2)
  next.signal('SIGTERM')
  await next.ended
  expect(isAlive(postgres)).toBe(true)
  await database.stop()
  expect(isAlive(postgres)).toBe(false)
}, 120_000)

/** Runs the programs of that process once more, on this directory and as its owner. */
const secondServer = (pid: number, cluster: string) =>
  `P=$(readlink /proc/${pid}/exe); U=$(stat -c %U ${cluster}); ` +
  `if [ $(id -u) = 0 ]; then su -s /bin/sh $U -c "cd / && $P -D ${cluster} -p 1" 2>&1; else $P -D ${cluster} -p 1 2>&1; fi || true`

it('PROMISE-153: removed: the server says so and ends, no process of it is left, and nothing is made in its place', async () => {
  const { from, server, postgres } = await underWay()
  rmSync(from, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })
  const { code } = await endOf(server)
  expect(code).toBe(1)
  expect(server.stderr()).toMatch(/was moved or removed while it was in use/)
  expect(isAlive(postgres)).toBe(false)
  expect(existsSync(from)).toBe(false)
}, 120_000)

it('PROMISE-154: with a database elsewhere a server whose own files are moved goes on: it stays ready and takes large texts', async () => {
  const base = openDirectory()
  const [from, to] = [join(base, 'project'), join(base, 'project2')]
  copyTree(from)
  const database = await createTestDatabase()
  const server = startServer({ DATABASE_URL: database.url }, `cd ${from} && exec node --import tsx src/server.ts`)
  const url = await server.ready
  renameSync(from, to)
  expect(await ready(url)).toBe('200 ready')
  expect(await ask(url, prompt, { m: 'msg_moved0001' })).toMatchObject({ admitPrompt: { outcome: 'ADMITTED' } })
  const large = prompt
    .replace('createSession', 'c: createSession')
    .replace('"/slow', '$t')
    .replace(/\$t[^"]*"/, '$t')
    .replace('$m: ID!', '$m: ID!, $t: String!')
  expect(await ask(url, large, { m: 'msg_moved0002', t: 'x'.repeat(400_000) })).toMatchObject({
    admitPrompt: { outcome: 'ADMITTED' },
  })
  await restsWith(url, 4)
  server.signal('SIGTERM')
  await server.ended
  await database.drop()
}, 120_000)
