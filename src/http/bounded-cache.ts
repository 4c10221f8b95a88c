const entriesMax = 500
const keyLengthMax = 20_000

/** Keeps the 500 latest values by text. Long texts are not kept: a document with a prompt written into it never comes again. */
export function boundedCache<V>() {
  const entries = new Map<string, V>()
  return {
    get: (key: string): V | undefined => entries.get(key),
    set(key: string, value: V): void {
      if (key.length > keyLengthMax) return
      entries.delete(key)
      entries.set(key, value)
      if (entries.size > entriesMax) entries.delete(entries.keys().next().value!)
    },
  }
}
