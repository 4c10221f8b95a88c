// Prints the test files that use the suite's database, directly or through a file they import: node scripts/database-tests.mjs [SEED]
// With a seed it prints every second one of an order that follows from the seed.
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'

const database = 'test/support/database.ts'
const known = new Map()

function uses(file) {
  if (file === database) return true
  if (known.has(file)) return known.get(file)
  known.set(file, false) // a ring of imports comes back to here
  const imports = [...readFileSync(file, 'utf8').matchAll(/^(?:import|export|\}).* from '(\.[^']+\.ts)'/gm)]
  const found = imports.map(([, path]) => normalize(join(dirname(file), path)))
  const answer = found.some((path) => path.startsWith('test/') && uses(path))
  known.set(file, answer)
  return answer
}

const tests = readdirSync('test', { recursive: true })
  .filter((name) => name.endsWith('.test.ts') && uses(join('test', name)))
  .sort()
const seed = process.argv[2]
const place = (name) => createHash('sha256').update(`${seed} ${name}`).digest('hex')
const drawn =
  seed === undefined
    ? tests
    : tests.sort((a, b) => (place(a) < place(b) ? -1 : 1)).slice(0, Math.ceil(tests.length / 2))
for (const name of drawn) console.log(join('test', name))
