// Takes every guard of the table out, one after the other, and runs the tests that are mapped to it:
//   npm run test:guards [-- id …] [--rest] [--write] [--jobs n]
// Each mutant lives in a copy of the tree in a temporary directory. It has to be reached and its tests have to go red; without any mutant
// they have to pass. Ends with 1 if one survives, is not reached, or the table does not fit the sources. DATABASE_URL names the server to
// use, else an embedded one is started for the whole run. Results are kept in test-results/guards.json (seen.ts): --rest takes those that
// were not seen red as they stand in the table, --write puts all that were into test/guards/seen.json and docs/guards.md.

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { startEmbedded } from '../../src/embedded/server.ts'
import { copyTree, root, runTests } from './copy.ts'
import { editsOf, type Guard, mutate, type Result, staleness, tellMarksOfDatabases } from './mutant.ts'
import { report } from './report.ts'
import { commitOf, keep, keepWithTable, markOf, type Seen, seenOf } from './seen.ts'
import { guards } from './table.ts'

/** A mutant can make a test wait for what never comes; a machine that others share is several times slower. */
const runMsMax = 300_000

/** A copy of the tree to mutate. */
function copy(parent: string, n: number) {
  const dir = join(parent, `copy-${n}`)
  copyTree(dir)
  const marks = join(parent, `marks-${n}`)
  tellMarksOfDatabases(dir, marks)
  return { dir, marks }
}
type Copy = ReturnType<typeof copy>

const test = ({ dir }: Copy, url: string, files: string[], titles: string, bail: boolean) =>
  runTests(dir, { url, files, titles, bail, msMax: bail ? runMsMax : 10 * runMsMax })

/** The mapped tests of the sources as they are. Answers what is wrong with them, by file: guards that are mapped to it cannot be judged. */
async function baseline(at: Copy, url: string, chosen: readonly Guard[]): Promise<Map<string, string[]>> {
  const wanted = new Map<string, Set<string>>()
  for (const { tests } of chosen)
    for (const [file, titles] of tests) wanted.set(file, (wanted.get(file) ?? new Set()).add(titles))
  const problems = new Map<string, string[]>()
  for (const [file, titles] of wanted) {
    const run = await test(at, url, [file], [...titles].map((one) => `(?:${one})`).join('|'), false)
    const wrong = run.error === null ? run.failed.map((title) => `fails without any mutant: ${title}`) : [run.error]
    for (const one of titles)
      if (!run.passed.some((title) => new RegExp(one).test(title))) wrong.push(`no test passes that matches ${one}`)
    if (wrong.length > 0) problems.set(file, wrong)
  }
  return problems
}

async function judge(at: Copy, url: string, guard: Guard): Promise<Result> {
  rmSync(at.marks, { force: true })
  const edits = editsOf(guard, guards)
  const undo = mutate(edits, at.dir, at.marks)
  const titles = [...new Set(guard.tests.map(([, title]) => `(?:${title})`))].join('|')
  const files = [...new Set(guard.tests.map(([file]) => file))]
  const run = await test(at, url, files, titles, true).finally(undo)
  if (run.error !== null) return { guard, verdict: 'broken', told: run.error }
  const reached = new Set(existsSync(at.marks) ? readFileSync(at.marks, 'utf8').split('\n') : [])
  const missed = edits.filter((_, n) => !reached.has(String(n)))
  if (missed.length > 0) return { guard, verdict: 'not reached', told: `${run.failed.length} tests failed` }
  if (run.failed.length === 0) return { guard, verdict: 'survived', told: `${run.passed.length} tests passed` }
  return { guard, verdict: 'red', told: run.failed[0]! }
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      rest: { type: 'boolean' },
      write: { type: 'boolean' },
      jobs: { type: 'string', default: '1' },
      'skip-baseline': { type: 'boolean' },
    },
  })
  const stale = staleness(guards, root)
  if (stale.length > 0) {
    console.error(`The table does not fit the sources:\n${stale.join('\n')}`)
    return 1
  }
  const chosen =
    positionals.length === 0 ? guards : guards.filter(({ id }) => positionals.some((one) => id.includes(one)))
  const before = seenOf(guards)
  const taken = values.rest ? chosen.filter(({ id }) => before.get(id)?.verdict !== 'red') : chosen
  const begunAt = Date.now()
  const parent = mkdtempSync(join(tmpdir(), 'holdfast-guards-'))
  const embedded = process.env.DATABASE_URL ? null : await startEmbedded({ dataDir: join(parent, 'data') })
  const url = process.env.DATABASE_URL ?? embedded!.url
  const commit = commitOf()
  const told = (guard: Guard, seen: Pick<Seen, 'verdict' | 'told' | 'seconds'>) => {
    const { verdict, told, seconds } = seen
    const database = embedded === null ? 'external' : 'embedded'
    keep(guard.id, { ...seen, at: new Date().toISOString(), commit, database, mark: markOf(guard, guards) })
    const line = told.replaceAll(/\s+/g, ' ').slice(0, verdict === 'broken' ? 1000 : 110)
    console.log(`${verdict.padEnd(11)} ${guard.id.padEnd(34)} ${seconds} s  ${line}`)
  }
  try {
    const copies = Array.from({ length: Number(values.jobs) }, (_, n) => copy(parent, n))
    const problems = values['skip-baseline'] ? new Map<string, string[]>() : await baseline(copies[0]!, url, taken)
    if (!values['skip-baseline'])
      console.log(
        problems.size === 0
          ? `without any mutant all mapped tests pass (${Math.round((Date.now() - begunAt) / 1000)} s)`
          : `Without any mutant:\n${[...problems].map(([file, wrong]) => `${file}: ${wrong.join('\n  ')}`).join('\n')}`,
      )
    const left = [...taken]
    await Promise.all(
      copies.map(async (at) => {
        for (let guard = left.shift(); guard !== undefined; guard = left.shift()) {
          const began = Date.now()
          const wrong = guard.tests.flatMap(([file]) => problems.get(file) ?? [])
          const { verdict, told: said } =
            wrong.length > 0
              ? { verdict: 'broken' as const, told: wrong[0]! }
              : await judge(at, url, guard).catch(
                  (thrown): Omit<Result, 'guard'> => ({ verdict: 'broken', told: String(thrown) }),
                )
          told(guard, { verdict, told: said, seconds: Math.round((Date.now() - began) / 1000) })
        }
      }),
    )
    const after = seenOf(guards)
    const bad = taken.filter(({ id }) => after.get(id)?.verdict !== 'red')
    const seconds = Math.round((Date.now() - begunAt) / 1000)
    console.log(
      `${taken.length} guards taken out: ${taken.length - bad.length} red, ${bad.length} not, in ${seconds} s`,
    )
    for (const { id } of bad) console.log(`  ${after.get(id)?.verdict}: ${id}`)
    if (values.write) {
      keepWithTable(after)
      writeFileSync(join(root, 'docs/guards.md'), report(guards, after))
    }
    return bad.length === 0 ? 0 : 1
  } finally {
    await embedded?.stop()
    rmSync(parent, { recursive: true, force: true, maxRetries: 3 })
  }
}

process.exitCode = await main()
