// Prints the test files that use the suite's database, directly or through a file they import: node scripts/database-tests.mjs
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

const tests = readdirSync('test', { recursive: true }).filter((name) => name.endsWith('.test.ts'))
for (const name of tests.sort()) if (uses(join('test', name))) console.log(join('test', name))
