// Takes every guard of the table out, one after the other, and runs the tests that are mapped to it:
//   npm run test:guards [-- id …] [--rest] [--write] [--jobs n]
// Each mutant lives in a copy of the tree in a temporary directory. It has to be reached and its tests have to go red; without any mutant
// they have to pass. Ends with 1 if one survives, is not reached, or the table does not fit the sources. DATABASE_URL names the server to
// use, else an embedded one is started for the whole run. Results are kept in test-results/guards.json: --rest takes those that are not red
// there, --write puts them into docs/guards.md once all are.

import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { startEmbedded } from '../../src/embedded/server.ts'
import { copyTree, root, runTests } from './copy.ts'
import { editsOf, type Guard, mutate, type Result, staleness, tellMarksOfDatabases } from './mutant.ts'
import { report } from './report.ts'
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

/** The mapped tests of the sources as they are. Answers what is wrong with them. */
async function baseline(at: Copy, url: string, chosen: readonly Guard[]): Promise<string[]> {
  const wanted = new Map<string, Set<string>>()
  for (const { tests } of chosen)
    for (const [file, titles] of tests) wanted.set(file, (wanted.get(file) ?? new Set()).add(titles))
  const problems: string[] = []
  for (const [file, titles] of wanted) {
    const run = await test(at, url, [file], [...titles].map((one) => `(?:${one})`).join('|'), false)
    if (run.error !== null) return [`${file}: ${run.error}`]
    problems.push(...run.failed.map((title) => `${file}: fails without any mutant: ${title}`))
    for (const one of titles)
      if (!run.passed.some((title) => new RegExp(one).test(title)))
        problems.push(`${file}: no test passes that matches ${one}`)
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

const kept = join(root, 'test-results/guards.json')
type Kept = Omit<Result, 'guard'> & { seconds: number }
const readKept = () =>
  new Map(existsSync(kept) ? Object.entries(JSON.parse(readFileSync(kept, 'utf8')) as Record<string, Kept>) : [])

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
  const results = readKept()
  const left = values.rest ? chosen.filter(({ id }) => results.get(id)?.verdict !== 'red') : [...chosen]
  const begunAt = Date.now()
  const parent = mkdtempSync(join(tmpdir(), 'holdfast-guards-'))
  const embedded = process.env.DATABASE_URL ? null : await startEmbedded({ dataDir: join(parent, 'data') })
  const url = process.env.DATABASE_URL ?? embedded!.url
  try {
    const copies = Array.from({ length: Number(values.jobs) }, (_, n) => copy(parent, n))
    if (!values['skip-baseline']) {
      const problems = await baseline(copies[0]!, url, left)
      if (problems.length > 0) {
        console.error(`Without any mutant:\n${problems.join('\n')}`)
        return 1
      }
      console.log(`without any mutant all mapped tests pass (${Math.round((Date.now() - begunAt) / 1000)} s)`)
    }
    const taken = [...left]
    await Promise.all(
      copies.map(async (at) => {
        for (let guard = left.shift(); guard !== undefined; guard = left.shift()) {
          const began = Date.now()
          const { verdict, told } = await judge(at, url, guard).catch(
            (thrown): Omit<Result, 'guard'> => ({ verdict: 'broken', told: String(thrown) }),
          )
          const seconds = Math.round((Date.now() - began) / 1000)
          results.set(guard.id, { verdict, told, seconds })
          mkdirSync(dirname(kept), { recursive: true })
          writeFileSync(kept, JSON.stringify(Object.fromEntries(results), null, 2))
          const line = told.replaceAll(/\s+/g, ' ').slice(0, verdict === 'broken' ? 1000 : 110)
          console.log(`${verdict.padEnd(11)} ${guard.id.padEnd(34)} ${seconds} s  ${line}`)
        }
      }),
    )
    const bad = taken.filter(({ id }) => results.get(id)?.verdict !== 'red')
    const seconds = Math.round((Date.now() - begunAt) / 1000)
    console.log(
      `${taken.length} guards taken out: ${taken.length - bad.length} red, ${bad.length} not, in ${seconds} s`,
    )
    for (const { id } of bad) console.log(`  ${results.get(id)?.verdict}: ${id}`)
    const missing = guards.filter(({ id }) => results.get(id)?.verdict !== 'red')
    if (values.write && missing.length > 0) console.log(`not written: ${missing.length} guards are not red`)
    if (values.write && missing.length === 0) {
      const rows = guards.map((guard) => ({ guard, ...results.get(guard.id)! }))
      writeFileSync(join(root, 'docs/guards.md'), report(rows))
    }
    return bad.length === 0 ? 0 : 1
  } finally {
    await embedded?.stop()
    rmSync(parent, { recursive: true, force: true, maxRetries: 3 })
  }
}

process.exitCode = await main()
