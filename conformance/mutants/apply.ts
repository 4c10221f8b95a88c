import type { Mutant } from './table.ts'

/** The changed files of a mutant, by path. Throws when a text does not stand exactly once in its file: the table is stale. */
export function applied({ name, edits }: Mutant, read: (file: string) => string): Map<string, string> {
  const changed = new Map<string, string>()
  for (const { file, text, by } of edits) {
    const source = changed.get(file) ?? read(file)
    const times = source.split(text).length - 1
    if (times !== 1)
      throw new Error(`stale mutant ${name}: its text stands ${times} times in ${file}, not once: ${text.trim()}`)
    // As a function: a "$" in the text means nothing.
    changed.set(
      file,
      source.replace(text, () => by),
    )
  }
  return changed
}
