// docs/guards.md, of what was seen of each guard.

import type { Guard } from './mutant.ts'
import type { Seen, SeenById } from './seen.ts'

const cell = (text: string) => text.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ')
const short = (file: string) => (file.endsWith('.sql') ? 'migration' : file.replace(/^src\//, ''))
const day = ({ at }: Seen) => at.slice(0, 10)

function row(guard: Guard, seen: Seen | undefined): string {
  const { id, file, keeps, secondLineOf, tests } = guard
  const note = secondLineOf === undefined ? '' : ` Second line of \`${secondLineOf}\`: taken out together.`
  const named = tests.map(([test]) => `\`${test.replace('.test.ts', '')}\``).join(', ')
  const told =
    seen?.verdict === 'red' ? cell(seen.told).slice(0, 120) : `**${seen?.verdict ?? 'not seen as it stands now'}**`
  const when = seen === undefined ? '' : `${day(seen)}, ${seen.commit}`
  return `| \`${id}\` | ${short(file)} | ${cell(keeps)}${note} | ${named}: ${told} | ${when} |`
}

/** `seen` holds what was seen of each guard as it stands in the table; who is not in it was not. */
export function report(guards: readonly Guard[], seen: SeenById): string {
  const red = guards.flatMap(({ id }) => (seen.get(id)?.verdict === 'red' ? [seen.get(id)!] : []))
  const days = red.map(day).sort()
  const seconds = red.reduce((sum, one) => sum + one.seconds, 0)
  const databases = [...new Set(red.map(({ database }) => database))].map((one) =>
    one === 'external' ? 'an external PostgreSQL' : 'the embedded PostgreSQL',
  )
  const second = guards.filter(({ id, secondLineOf }) => secondLineOf !== undefined && seen.get(id)?.verdict === 'red')
  const left = guards.filter(({ id }) => seen.get(id)?.verdict !== 'red').map(({ id }) => `\`${id}\``)
  return `# Guards

A guard is a predicate that keeps a stale, late or repeated decision from having an effect, or one caller from taking what others need: a fence, a lease,
a phase, an expected number, a look at the row before it is written, a bound. Each was taken out of the sources by itself, the place was seen to be
reached, and the tests mapped to it, which pass with it, went red.

**Result:** ${red.length} of ${guards.length} guards, as they stand in the table, were taken out, reached and missed by a test (${second.length} of them second lines, taken out with the guard before them),
between ${days[0] ?? 'never'} and ${days.at(-1) ?? 'never'}; ${seconds} s for all of them, one after the other, on shared cores with ${databases.join(' and ') || 'no database'}. ${
    left.length === 0 ? 'None is left.' : `Left: ${left.join(', ')}.`
  }

The table is \`test/guards/table.ts\` and its neighbours, one an area. Every test run checks that it still fits the sources; the mutants themselves run on demand:
\`npm run test:guards\` takes all of them out, \`npm run test:guards -- claim-owner\` those whose id holds that word, \`--rest\` those that were not seen red as they
stand now. \`--write\` puts what was seen into \`test/guards/seen.json\` and this page; the last column says of which commit (\`+\`: with changes that were not committed yet).

| guard | in | keeps out, or from | red | seen |
|---|---|---|---|---|
${guards.map((guard) => row(guard, seen.get(guard.id))).join('\n')}
`
}
