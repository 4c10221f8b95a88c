// A mutant: one guard taken out of the source, with a mark that tells whether the place was reached. Pure but for the files it is given.

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

export interface Edit {
  /** From the root of the repository. */
  file: string
  /** The guard as it stands there, once. */
  find: string
  /**
   * What stands there instead. `HIT(x)` is x and leaves a mark; in an index of a migration, where only what never changes may stand,
   * `HIT_IN_INDEX(x)`.
   */
  replace: string
}

export interface Guard extends Edit {
  id: string
  /** What it keeps from happening. */
  keeps: string
  /** Tests that have to go red: files under test/, and a pattern of their titles each. */
  tests: readonly (readonly [file: string, titles: string])[]
  /** Another guard closes the same race first: that one is taken out together with this one. */
  secondLineOf?: string
}

export interface Result {
  guard: Guard
  verdict: 'red' | 'survived' | 'not reached' | 'broken'
  /** The title of the test that went red first, or what went wrong. */
  told: string
}

const isSql = (file: string) => file.endsWith('.sql')
const mark = /\bHIT(_IN_INDEX)?\(/g

/** The edits of a guard; of a second line those of the first one too. */
export function editsOf(guard: Guard, all: readonly Guard[]): Edit[] {
  if (guard.secondLineOf === undefined) return [guard]
  const first = all.find(({ id }) => id === guard.secondLineOf)
  if (first === undefined) throw new Error(`${guard.id} is second to ${guard.secondLineOf}, which is not in the table`)
  return [guard, ...editsOf(first, all)]
}

/** What no longer fits the sources: every text stands there exactly once, every mutant leaves a mark, every test is there. */
export function staleness(guards: readonly Guard[], root: string): string[] {
  const texts = new Map<string, string | null>()
  const read = (file: string) => {
    let text = texts.get(file)
    if (text === undefined) {
      try {
        text = readFileSync(join(root, file), 'utf8')
      } catch {
        text = null
      }
      texts.set(file, text)
    }
    return text
  }
  const problems: string[] = []
  const seen = new Set<string>()
  for (const guard of guards) {
    const { id, file, find, replace, tests, secondLineOf } = guard
    if (seen.has(id)) problems.push(`${id}: the id is there twice`)
    seen.add(id)
    const text = read(file)
    if (text === null) problems.push(`${id}: ${file} is not there`)
    else {
      const count = text.split(find).length - 1
      if (count !== 1) problems.push(`${id}: its text stands ${count} times in ${file}`)
    }
    if (replace.match(mark) === null) problems.push(`${id}: its mutant leaves no mark`)
    if (replace.includes(find)) problems.push(`${id}: its mutant still holds the guard`)
    if (secondLineOf !== undefined && !guards.some((other) => other.id === secondLineOf))
      problems.push(`${id}: ${secondLineOf} is not in the table`)
    if (tests.length === 0) problems.push(`${id}: no test is mapped to it`)
    for (const [test, titles] of tests) {
      const source = read(`test/${test}`)
      if (source === null) problems.push(`${id}: test/${test} is not there`)
      else if (!new RegExp(titles).test(source)) problems.push(`${id}: no title in test/${test} matches ${titles}`)
    }
  }
  return problems
}

/** Writes the mutant into the copy at `root`; every mark appends its number, a line each, to `marks`. Gives how to undo it. */
export function mutate(edits: readonly Edit[], root: string, marks: string): () => void {
  const originals = new Map<string, string>()
  for (const [n, { file, find, replace }] of edits.entries()) {
    const path = join(root, file)
    const text = readFileSync(path, 'utf8')
    if (!originals.has(path)) originals.set(path, text)
    if (text.split(find).length !== 2) throw new Error(`the text of a guard does not stand once in ${file}:\n${find}`)
    const marked = isSql(file)
      ? replace.replaceAll(mark, (_, index) => `${index ? 'guard_hit_in_index' : 'guard_hit'}_${n}(`)
      : replace.replaceAll(mark, `guardHit(${n}, `)
    let mutated = text.replace(find, () => marked)
    if (isSql(file)) mutated = `${sqlMarks(n)}\n${mutated}`
    else if (!mutated.includes('function guardHit')) mutated += sourceMarks(marks)
    writeFileSync(path, mutated)
  }
  return () => {
    for (const [path, text] of originals) writeFileSync(path, text)
  }
}

const sourceMarks = (marks: string) => `
function guardHit<T>(n: number, value: T): T {
  process.getBuiltinModule('node:fs').appendFileSync(${JSON.stringify(marks)}, n + '\\n')
  return value
}
`

/** A sequence is the one thing that a rolled back transaction still moves. */
const sqlMarks = (n: number) => `
CREATE SEQUENCE guard_hit_seq_${n};
CREATE FUNCTION guard_hit_${n}(anyelement) RETURNS anyelement LANGUAGE plpgsql VOLATILE AS $$
BEGIN PERFORM nextval('guard_hit_seq_${n}'); RETURN $1; END $$;
CREATE FUNCTION guard_hit_in_index_${n}(anyelement) RETURNS anyelement LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN PERFORM nextval('public.guard_hit_seq_${n}'); RETURN $1; END $$;`

const drop = `    async drop() {
`

/** Lets the copy's test databases tell their marks before they are dropped. */
export function tellMarksOfDatabases(root: string, marks: string): void {
  const path = join(root, 'test/support/database.ts')
  const text = readFileSync(path, 'utf8')
  if (text.split(drop).length !== 2) throw new Error('test/support/database.ts does not drop its databases as it did')
  const told = text.replace(
    drop,
    () => `${drop}      await withClient(url, async (client) => {
        const { rows } = await client.query(
          "SELECT substring(sequencename from '[0-9]+$') AS n FROM pg_sequences WHERE sequencename LIKE 'guard_hit_seq_%' AND last_value IS NOT NULL",
        )
        for (const { n } of rows) process.getBuiltinModule('node:fs').appendFileSync(${JSON.stringify(marks)}, n + '\\n')
      })
`,
  )
  writeFileSync(path, told)
}
