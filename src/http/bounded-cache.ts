const entriesMax = 500
const keyLengthMax = 20_000
/** Of all texts together. What is kept of one takes up to 250 times its length. */
const lengthMax = 200_000

/**
 * Keeps the latest values by text: 500 at most, and texts of 200 000 characters together, as anybody may send documents that are all different. Long
 * texts are not kept: a document with a prompt written into it never comes again.
 */
export function boundedCache<V>() {
  const entries = new Map<string, V>()
  let length = 0
  function forget(key: string): void {
    if (entries.delete(key)) length -= key.length
  }
  return {
    get: (key: string): V | undefined => entries.get(key),
    set(key: string, value: V): void {
      if (key.length > keyLengthMax) return
      forget(key)
      entries.set(key, value)
      length += key.length
      while (entries.size > entriesMax || length > lengthMax) forget(entries.keys().next().value!)
    },
  }
}
