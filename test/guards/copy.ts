// A copy of the tree in which sources are changed and tests are run.

import { spawn } from 'node:child_process'
import { cpSync, existsSync, readFileSync, realpathSync, rmSync, symlinkSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('../..', import.meta.url))

export interface Run {
  passed: string[]
  failed: string[]
  /** What the first one that failed says, and the file it stands in. */
  message: string | null
  failedIn: string | null
  /** Neither a test's success nor its failure. */
  error: string | null
}

/** Copies the tree to `dir`. */
export function copyTree(dir: string): void {
  const left = /^(node_modules|\.git|dist|test-results|\.holdfast)(\/|$)/
  cpSync(root, dir, { recursive: true, filter: (path) => !left.test(relative(root, path).replaceAll('\\', '/')) })
  symlinkSync(realpathSync(join(root, 'node_modules')), join(dir, 'node_modules'), 'junction')
}

/** Runs these tests of the copy at `dir`; what has not ended after `msMax` is killed. */
export async function runTests(
  dir: string,
  {
    url,
    files,
    titles = '',
    bail,
    msMax,
    testMsMax = 20_000,
  }: { url: string; files: string[]; titles?: string; bail: boolean; msMax: number; testMsMax?: number },
): Promise<Run> {
  const output = join(dir, 'test-results/guards.json')
  rmSync(output, { force: true })
  const args = [
    join(dir, 'node_modules/vitest/vitest.mjs'),
    'run',
    ...files.map((file) => `test/${file}`),
    ...(titles === '' ? [] : ['-t', titles]),
    ...[`--testTimeout=${testMsMax}`, '--retry=0'],
    ...(bail ? ['--bail=1'] : []),
  ]
  const { CI: _, ...env } = process.env
  const child = spawn(process.execPath, args, {
    cwd: dir,
    env: { ...env, DATABASE_URL: url, TEST_REPORT: 'guards' },
    stdio: ['ignore', 'pipe', 'pipe'],
    // A group of its own: what hangs is one of its workers, which would go on without it.
    detached: process.platform !== 'win32',
  })
  const kill = () => {
    if (process.platform === 'win32') child.kill('SIGKILL')
    else if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid!, 'SIGKILL')
  }
  const leave = () => {
    kill()
    process.exit(1)
  }
  const signals = ['SIGINT', 'SIGTERM'] as const
  for (const signal of signals) process.once(signal, leave)
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data) => {
      said = `${said}${data}`.slice(-4000)
    })
  const timer = setTimeout(kill, msMax)
  await new Promise((resolve) => child.on('close', resolve))
  clearTimeout(timer)
  for (const signal of signals) process.off(signal, leave)
  if (!existsSync(output)) return { passed: [], failed: [], message: null, failedIn: null, error: `no report: ${said}` }
  const { testResults } = JSON.parse(readFileSync(output, 'utf8')) as {
    testResults: {
      name: string
      message: string
      assertionResults: { status: string; fullName: string; failureMessages?: string[] }[]
    }[]
  }
  const all = testResults.flatMap(({ assertionResults }) => assertionResults)
  const named = (status: string) => all.filter((one) => one.status === status).map(({ fullName }) => fullName)
  const [passed, failed] = [named('passed'), named('failed')]
  const error = testResults.find(({ message }) => message !== '')?.message ?? null
  const message = all.find(({ status }) => status === 'failed')?.failureMessages?.[0] ?? null
  const failedIn = testResults.find((file) => file.assertionResults.some(({ status }) => status === 'failed'))?.name
  return {
    passed,
    failed,
    message,
    failedIn: failedIn === undefined ? null : basename(failedIn),
    error: passed.length + failed.length === 0 ? (error ?? `no test ran: ${said}`) : null,
  }
}
