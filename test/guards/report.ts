// docs/guards.md as the last whole run gives it.

import { cpus } from 'node:os'
import type { Result } from './mutant.ts'

const cell = (text: string) => text.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ')
const short = (file: string) => (file.endsWith('.sql') ? 'migration' : file.replace(/^src\//, ''))

/** `results` are all red, in the order of the table. */
export function report(results: readonly (Result & { seconds: number })[]): string {
  const rows = results.map(({ guard: { id, file, keeps, secondLineOf, tests }, told }) => {
    const note = secondLineOf === undefined ? '' : ` Second line of \`${secondLineOf}\`: taken out together.`
    const named = tests.map(([test]) => `\`${test.replace('.test.ts', '')}\``).join(', ')
    return `| \`${id}\` | ${short(file)} | ${cell(keeps)}${note} | ${named}: ${cell(told).slice(0, 120)} |`
  })
  const seconds = results.reduce((sum, one) => sum + one.seconds, 0)
  const database = process.env.DATABASE_URL ? 'an external PostgreSQL' : 'the embedded PostgreSQL'
  const second = results.filter(({ guard }) => guard.secondLineOf !== undefined).length
  return `# Guards

A guard is a predicate that keeps a stale, late or repeated decision from having an effect: a fence, a lease, a phase, an expected number, a look at
the row before it is written. Each was taken out of the sources by itself, the place was seen to be reached, and the tests mapped to it went red.
The migration's predicates are those of \`holdfast_append\`, \`holdfast_write_chunks\`, \`holdfast_renew\` and of the log's unique indexes.

**Result of ${new Date().toISOString().slice(0, 10)}:** ${results.length} of ${results.length} mutants were reached and red (${second} of them second lines, taken out with the guard before them),
${seconds} s for all of them, one after the other, on ${cpus().length} shared cores with Node ${process.versions.node} and ${database}. Repeat: \`npm run test:guards -- --write\`; a single one: \`npm run test:guards -- claim-owner\`.

The table is \`test/guards/table.ts\`. Every test run checks that it still fits the sources; the mutants themselves run on demand.

| guard | in | keeps out, or from | red |
|---|---|---|---|
${rows.join('\n')}
`
}
