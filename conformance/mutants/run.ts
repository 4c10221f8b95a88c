// npm run test:conformance:mutants [-- NAME…]: for each promise, breaks a copy of the source so that a server does not keep it, and
// expects the checks that the table names to fail. First the source as it is, on which all of them have to pass.
import { lacking } from '../check.ts'
import { checks } from '../checks/index.ts'
import type { Target } from '../http.ts'
import { performAll } from '../perform.ts'
import { createCopy, startMutant } from './server.ts'
import { type Mutant, mutants } from './table.ts'

const names = process.argv.slice(2)
const unknown = names.filter((name) => !mutants.some((mutant) => mutant.name === name))
if (unknown.length > 0) {
  console.error(`there is no mutant ${unknown.join(', ')}; there are ${mutants.map(({ name }) => name).join(', ')}`)
  process.exit(2)
}
const chosen = mutants.filter(({ name }) => names.length === 0 || names.includes(name))

const copy = createCopy()
let wrong = 0

/** Runs these checks against the mutant's server and says what came out as rows of a table. */
async function meet(mutant: Mutant | null, ids: readonly string[]): Promise<void> {
  const begun = Date.now()
  const server = await startMutant(copy.dir, mutant)
  try {
    const target: Target = { endpoint: new URL('graphql', server.url).href, token: null, model: 'demo/echo' }
    const some = checks.filter(({ id }) => ids.includes(id))
    const expected = mutant === null ? 'pass' : 'fail'
    for (const { id, outcome, detail } of await performAll(some, target, await lacking(target))) {
      if (outcome !== expected) wrong++
      const verdict = outcome === expected ? (mutant === null ? 'passes' : 'caught') : `NOT AS EXPECTED (${outcome})`
      const seen = (detail ?? '').replaceAll('|', '\\|').replace(/\s+/g, ' ').slice(0, 160)
      console.log(
        `| ${mutant?.name ?? 'the source as it is'} | ${mutant?.breaks ?? ''} | ${id} | ${verdict} | ${seen} |`,
      )
    }
    console.error(`${mutant?.name ?? 'the source as it is'}: ${Date.now() - begun} ms`)
  } finally {
    await server.stop()
  }
}

const begun = Date.now()
try {
  console.log('| mutant | what it breaks | check | | what the check said |\n|---|---|---|---|---|')
  await meet(null, [...new Set(chosen.flatMap(({ caughtBy }) => caughtBy))])
  for (const mutant of chosen) await meet(mutant, mutant.caughtBy)
} finally {
  copy.remove()
}
console.log(`\n${chosen.length} mutants, ${wrong} not as expected, ${Math.round((Date.now() - begun) / 1000)} s`)
process.exit(wrong === 0 ? 0 : 1)
