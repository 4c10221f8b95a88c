// Whoever started a server may end before it: it goes on unless somebody told it to end.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { afterAll, afterEach, expect, it } from 'vitest'
import { isAlive } from '../src/embedded/process-table.ts'
import { isWholeScript } from '../src/npm-script.ts'
import { createTestDatabase } from './support/database.ts'
import { openDirectory, sweep, until } from './support/embedded-processes.ts'
import { endServers, startServer } from './support/server-process.ts'

const source = fileURLToPath(new URL('../src/server.ts', import.meta.url))
const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href
const run = `node --import ${tsx} ${source}`
const begun: number[] = []
afterEach(endServers)
afterAll(async () => {
  for (const pid of begun) if (isAlive(pid)) process.kill(pid, 'SIGKILL')
  await sweep([])
})

it('PROMISE-089: which script is all of a server, so that its end is the end of it', () => {
  const program = '/srv/project/scripts/start.mjs'
  for (const script of [
    'node scripts/start.mjs',
    'NODE_ENV=production exec node --enable-source-maps scripts/start.mjs',
    'holdfast',
    'node_modules/.bin/holdfast',
  ])
    expect([script, isWholeScript(script, program)]).toEqual([script, true])
  for (const script of [
    'node scripts/start.mjs &',
    'node scripts/start.mjs & next dev',
    'npm start & next dev',
    './dev.sh',
    'node dev.mjs',
    'concurrently "node scripts/start.mjs" "next dev"',
    'holdfast | cat',
    '(holdfast)',
    '',
  ])
    expect([script, isWholeScript(script, program)]).toEqual([script, false])
  expect(isWholeScript(undefined, program)).toBe(false)
})

const alone = { HOLDFAST_SHUTDOWN_GRACE_MS: '1000' }

it('PROMISE-089: started in the background of an npm script that ends, it goes on; in the foreground of one whose npm is told to end, it ends in order', async () => {
  const database = await createTestDatabase()
  const dir = openDirectory()
  const [log, pidFile] = [join(dir, 'log'), join(dir, 'pid')]
  mkdirSync(join(dir, 'project'))
  writeFileSync(
    join(dir, 'project/package.json'),
    // It ends when the server has seen its first parent.
    JSON.stringify({
      name: 'x',
      scripts: {
        up: `${run} > ${log} 2>&1 & echo $! > ${pidFile}; until grep -q 'ready at' ${log}; do sleep 0.1; done`,
        start: run,
      },
    }),
  )
  const env = { DATABASE_URL: database.url, ...alone }
  const said = () => readFileSync(log, 'utf8')
  const script = startServer(env, `cd ${dir}/project && npm run up`)
  expect((await script.ended).code).toBe(0)
  const pid = Number(readFileSync(pidFile, 'utf8'))
  begun.push(pid)
  await until(() => /ready at/.test(said()) || !isAlive(pid), 'the server')
  const url = /ready at (\S+)/.exec(said())![1]!
  // Four times as long as it takes to notice another parent.
  await new Promise((resolve) => setTimeout(resolve, 2000))
  expect(isAlive(pid)).toBe(true)
  expect((await fetch(new URL('readyz', url))).status).toBe(200)
  // Nobody's terminal: this is no end either.
  process.kill(pid, 'SIGHUP')
  await until(() => /SIGHUP/.test(said()) || !isAlive(pid), 'the signal to be told')
  expect((await fetch(new URL('readyz', url))).status).toBe(200)
  process.kill(pid, 'SIGTERM')
  await until(() => !isAlive(pid), 'the server to end')

  const front = startServer(env, `cd ${dir}/project && exec npm start`)
  await front.ready
  // To npm alone, which does not pass it on.
  process.kill(front.pid, 'SIGTERM')
  await front.ended
  expect(front.stderr()).toMatch(/"signal":"SIGTERM".*stopping|stopping/)
  await database.drop()
}, 120_000)
