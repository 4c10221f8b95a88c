import type { Context } from './context.ts'

interface Batch<K, V> {
  keys: K[]
  answer: Promise<V[]>
}

/**
 * Makes many `load one` calls of one operation into one `load these`. `load` gets the keys of one turn of the event loop, at most
 * one call for each `args`, and answers in the order of its keys. Nothing is remembered beyond that turn: a mutation's
 * next field reads what is there then.
 */
export function batched<K, V, A = undefined>(load: (context: Context, keys: K[], args: A) => Promise<V[]>) {
  const gathering = new WeakMap<Context, Map<string, Batch<K, V>>>()
  return async (context: Context, key: K, args: A): Promise<V> => {
    const batches = gathering.get(context) ?? new Map<string, Batch<K, V>>()
    gathering.set(context, batches)
    const name = JSON.stringify(args) ?? ''
    let batch = batches.get(name)
    if (!batch) {
      const keys: K[] = []
      const answer = endOfTurn().then(() => {
        batches.delete(name)
        return load(context, keys, args)
      })
      batch = { keys, answer }
      batches.set(name, batch)
    }
    const index = batch.keys.push(key) - 1
    return (await batch.answer)[index]!
  }
}

/** After all promise reactions that are due now: sibling rows' resolvers run in those. */
function endOfTurn(): Promise<void> {
  return new Promise((resolve) => Promise.resolve().then(() => process.nextTick(resolve)))
}

/** Puts rows in the order of keys; `many` rows for each. */
export function grouped<K, R>(keys: K[], rows: R[], keyOf: (key: K) => string, rowKey: (row: R) => string): R[][] {
  const groups = new Map<string, R[]>()
  for (const row of rows) {
    const group = groups.get(rowKey(row))
    if (group) group.push(row)
    else groups.set(rowKey(row), [row])
  }
  return keys.map((key) => groups.get(keyOf(key)) ?? [])
}
