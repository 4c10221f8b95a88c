// docs/guards.md as the last whole run gives it.

import type { Guard, Result } from './mutant.ts'

const cell = (text: string) => text.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ')
const short = (file: string) => (file.endsWith('.sql') ? 'migration' : file.replace(/^src\//, ''))

/** `results` are all red. */
export function report(guards: readonly Guard[], results: readonly Result[], seconds: number): string {
  const toldBy = new Map(results.map(({ guard, told }) => [guard.id, told]))
  const rows = guards.map(({ id, file, keeps, secondLineOf, tests }) => {
    const note = secondLineOf === undefined ? '' : ` Second line of \`${secondLineOf}\`: taken out together.`
    const named = tests.map(([test]) => `\`${test.replace('.test.ts', '')}\``).join(', ')
    return `| \`${id}\` | ${short(file)} | ${cell(keeps)}${note} | ${named}: ${cell(toldBy.get(id)!).slice(0, 120)} |`
  })
  const seconds2 = guards.filter(({ secondLineOf }) => secondLineOf !== undefined).length
  return `# Guards

A guard is a predicate that keeps a stale, late or repeated decision from having an effect: a fence, a lease, a phase, an expected number, a look at
the row before it is written. Each was taken out of the sources by itself, the place was seen to be reached, and the tests mapped to it went red.
The migration's predicates are those of \`holdfast_append\`, \`holdfast_write_chunks\`, \`holdfast_renew\` and of the log's unique indexes.

**Result of ${new Date().toISOString().slice(0, 10)}:** ${guards.length} of ${guards.length} mutants were reached and red (${seconds2} of them second lines, taken out with the guard before them), in
${seconds} s, Node ${process.versions.node}. Repeat: \`npm run test:guards -- --write\`; a single one: \`npm run test:guards -- claim-owner\`.

The table is \`test/guards/table.ts\`. Every test run checks that it still fits the sources; the mutants themselves run on demand.

| guard | in | keeps | red |
|---|---|---|---|
${rows.join('\n')}
`
}
