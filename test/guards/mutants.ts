// Makes mutants of predicates, as many as asked for and the same ones for the same seed and sources, and runs the tests that are closest
// to each (covering.ts):
//   npm run test:mutants [-- --seed n] [--count n] [--area name] [--only n,n…] [--list] [--minutes n]
// A mutant that no test notices either is equivalent, or shows a test that is missing. Unlike the table of guards, nobody has said here
// what has to be noticed: somebody has to read what survives. Results are kept in test-results/mutants.json. DATABASE_URL names the server
// to use, else an embedded one is started for the whole run.

import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { startEmbedded } from '../../src/embedded/server.ts'
import { random } from '../support/random.ts'
import { copyTree, root, runTests } from './copy.ts'
import { areas, functionTests, rowTests } from './covering.ts'
import { type Mutation, mutationsOfSource, mutationsOfSql, mutationsOfTables } from './mutations.ts'

export interface Mutant extends Mutation {
  area: string
  file: string
  line: number
  tests: readonly string[]
  /** The line as it is, and as the mutant has it. */
  before: string
  after: string
}

const filesOf = (under: string, ending: string) =>
  (readdirSync(join(root, under), { recursive: true }) as string[])
    .filter((file) => file.endsWith(ending))
    .map((file) => `${under}/${file.replaceAll('\\', '/')}`)
    .sort()

/** The conditions of the functions of all migrations, each function where it was last defined, and those of the tables. */
function ofMigrations(): Mutant[] {
  const newest = new Map<string, { file: string; text: string; from: number; to: number }>()
  const ofTables: Mutant[] = []
  for (const file of filesOf('prisma/migrations', '.sql')) {
    const text = readFileSync(join(root, file), 'utf8')
    const defined =
      /^CREATE (?:OR REPLACE )?FUNCTION (?<name>\w+)\(|^ALTER FUNCTION (?<old>\w+)\([^)]*\) RENAME TO (?<renamed>\w+)/gm
    for (const { groups, index } of text.matchAll(defined)) {
      const { name, old, renamed } = groups!
      if (name !== undefined) {
        const body = text.indexOf('$$', index)
        newest.set(name, { file, text, from: body, to: text.indexOf('$$', body + 2) })
      } else {
        newest.set(renamed!, newest.get(old!)!)
        newest.delete(old!)
      }
    }
    ofTables.push(...described('prisma', file, text, rowTests, mutationsOfTables(text)))
  }
  const ofFunctions = [...newest].flatMap(([name, { file, text, from, to }]) => {
    const found = mutationsOfSql(text, from, to)
    // One that nobody has said a test of would never be drawn.
    if (found.length > 0 && functionTests[name] === undefined)
      throw new Error(`${name} of ${file} has conditions: say in covering.ts which tests are the closest to it`)
    return described('prisma', file, text, functionTests[name] ?? [], found)
  })
  return [...ofFunctions, ...ofTables]
}

function ofSources({ name, sources }: (typeof areas)[number]): Mutant[] {
  return filesOf('src', '.ts').flatMap((file) => {
    const tests = sources.find(([source]) => source.test(file))?.[1]
    if (tests === undefined) return []
    const text = readFileSync(join(root, file), 'utf8')
    return described(name, file, text, tests, mutationsOfSource(file, text))
  })
}

function described(area: string, file: string, text: string, tests: readonly string[], found: Mutation[]): Mutant[] {
  return found.map((one) => {
    const from = text.lastIndexOf('\n', one.start - 1) + 1
    const to = text.indexOf('\n', one.end)
    const line = text.slice(0, one.start).split('\n').length
    const after = text.slice(from, one.start) + one.replace + text.slice(one.end, to)
    return { ...one, area, file, line, tests, before: text.slice(from, to).trim(), after: after.trim() }
  })
}

/** So many of each area as its part of all mutants, at least a tenth. */
function sample(seed: number, count: number): Mutant[] {
  const groups = [ofMigrations(), ...areas.map(ofSources)]
  const all = groups.reduce((sum, group) => sum + group.length, 0)
  console.log(
    `seed ${seed}: ${count} of ${all} mutants (${groups.map((group) => `${group[0]?.area} ${group.length}`).join(', ')})`,
  )
  const { below } = random(seed)
  const parts = groups.map((group) => Math.max(0.1, group.length / all))
  const whole = parts.reduce((sum, part) => sum + part, 0)
  return groups.flatMap((group, n) => {
    const left = [...group]
    const many = Math.min(left.length, Math.round((parts[n]! / whole) * count))
    return Array.from({ length: many }, () => left.splice(below(left.length), 1)[0]!)
  })
}

type Verdict = 'red' | 'survived' | 'late' | 'broken'

/** A test on a busy machine is not red because it is slow. */
const testMsMax = 180_000

/**
 * Runs the tests of the closest file, then those of the others together, until one is red. `late`: one did not end in time; somebody has
 * to see what it waited for.
 */
async function judge(dir: string, url: string, { file, start, end, replace, tests }: Mutant, msMax: number) {
  const path = join(dir, file)
  const text = readFileSync(path, 'utf8')
  writeFileSync(path, text.slice(0, start) + replace + text.slice(end))
  let passed = 0
  try {
    for (const test of tests)
      if (!existsSync(join(dir, `test/${test}.test.ts`))) throw new Error(`there is no test/${test}.test.ts`)
    for (const some of [tests.slice(0, 1), tests.slice(1)].filter(({ length }) => length > 0)) {
      const files = some.map((test) => `${test}.test.ts`)
      const run = await runTests(dir, { url, files, bail: true, msMax: some.length * msMax, testMsMax })
      const told = `${run.failedIn ?? some.join(', ')}: ${run.failed[0] ?? run.error}`.replace('.test.ts:', ':')
      if (run.failed.length > 0) return { verdict: 'red' as Verdict, told, message: run.message?.slice(0, 300) }
      if (run.error !== null)
        return { verdict: (run.error.startsWith('no report') ? 'late' : 'broken') as Verdict, told }
      passed += run.passed.length
    }
    return { verdict: 'survived' as Verdict, told: `${passed} tests of ${tests.join(', ')} passed` }
  } finally {
    writeFileSync(path, text)
  }
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: '9' },
      count: { type: 'string', default: '60' },
      area: { type: 'string' },
      only: { type: 'string' },
      list: { type: 'boolean' },
      minutes: { type: 'string', default: '4' },
    },
  })
  const only = values.only?.split(',').map(Number)
  const chosen = [...sample(Number(values.seed), Number(values.count)).entries()].filter(
    ([n, { area }]) => (only?.includes(n + 1) ?? true) && (values.area === undefined || values.area === area),
  )
  if (values.list) {
    for (const [n, { file, line, kind, before, after }] of chosen)
      console.log(`${n + 1}  ${file}:${line}  ${kind.replaceAll(/\s+/g, ' ')}\n    - ${before}\n    + ${after}`)
    return 0
  }
  const kept = join(root, 'test-results/mutants.json')
  const parent = mkdtempSync(join(tmpdir(), 'holdfast-mutants-'))
  const dir = join(parent, 'copy')
  const embedded = process.env.DATABASE_URL ? null : await startEmbedded({ dataDir: join(parent, 'data') })
  const counts: Partial<Record<Verdict, number>> = {}
  try {
    copyTree(dir)
    for (const [n, mutant] of chosen) {
      const begunAt = Date.now()
      const result = await judge(
        dir,
        process.env.DATABASE_URL ?? embedded!.url,
        mutant,
        Number(values.minutes) * 60_000,
      )
      const seconds = Math.round((Date.now() - begunAt) / 1000)
      const { area, file, line, kind, before, after } = mutant
      const { verdict, told } = result
      counts[verdict] = (counts[verdict] ?? 0) + 1
      // Read anew: another run may keep its own there.
      const results = existsSync(kept) ? (JSON.parse(readFileSync(kept, 'utf8')) as Record<string, object>) : {}
      results[`${values.seed}/${n + 1}`] = { ...result, seconds, area, file, line, kind, before, after }
      mkdirSync(dirname(kept), { recursive: true })
      writeFileSync(kept, JSON.stringify(results, null, 2))
      console.log(
        `${verdict.padEnd(9)} ${n + 1}  ${file}:${line}  ${seconds} s  ${told.replaceAll(/\s+/g, ' ').slice(0, 110)}`,
      )
      if (verdict !== 'red') console.log(`    - ${before}\n    + ${after}`)
    }
    console.log(
      Object.entries(counts)
        .map(([verdict, many]) => `${many} ${verdict}`)
        .join(', '),
    )
    return counts.red === chosen.length ? 0 : 1
  } finally {
    await embedded?.stop()
    rmSync(parent, { recursive: true, force: true, maxRetries: 3 })
  }
}

process.exitCode = await main()
