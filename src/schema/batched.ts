import { mustStay, settleAccount } from './account.ts'
import type { Context } from './context.ts'
import { refusal } from './refusal.ts'

/**
 * Entries of lists in one answer. What a document may ask for is bounded before (limits.ts), by what lists usually hold; this is what they do hold, each as
 * often as it is asked for.
 */
export const answerItemsMax = 50_000
const answered = new WeakMap<Context, number>()

/** Each item of a subscription is an answer of its own. */
export function startAnswer(context: Context): void {
  answered.delete(context)
  settleAccount(context)
}

function count(context: Context, entries: number): void {
  const sum = (answered.get(context) ?? 0) + entries
  answered.set(context, sum)
  if (sum > answerItemsMax)
    throw refusal(
      'DOCUMENT_TOO_LARGE',
      `the answer is too large: its lists have more than ${answerItemsMax} entries; ask for smaller pages or for fewer lists within lists`,
    )
}

interface Batch<K, V> {
  keys: K[]
  /** By the id of its key: where its answer stands, and how many wait for it. */
  places: Map<string, { index: number; waiting: number }>
  answer: Promise<V[]>
}

/**
 * Makes many `load one` calls of one operation into one `load these`. `load` gets the keys of one turn of the event loop, at most
 * one call for each `args` and each key once, and answers in the order of its keys. Lists count towards the size of the answer before any of them is
 * gone through. Nothing is remembered beyond that turn: a mutation's next field reads what is there then.
 */
export function batched<K extends string | { id: string }, V, A = undefined>(
  load: (context: Context, keys: K[], args: A) => Promise<V[]>,
) {
  const gathering = new WeakMap<Context, Map<string, Batch<K, V>>>()
  return async (context: Context, key: K, args: A): Promise<V> => {
    const batches = gathering.get(context) ?? new Map<string, Batch<K, V>>()
    gathering.set(context, batches)
    const name = JSON.stringify(args) ?? ''
    let batch = batches.get(name)
    if (!batch) {
      const keys: K[] = []
      const places: Batch<K, V>['places'] = new Map()
      const answer = endOfTurn().then(async () => {
        batches.delete(name)
        mustStay(context)
        // Lists beside this one may have been too large already.
        count(context, 0)
        const values = await load(context, keys, args)
        for (const { index, waiting } of places.values()) {
          const value = values[index]
          if (Array.isArray(value)) count(context, value.length * waiting)
        }
        return values
      })
      batch = { keys, places, answer }
      batches.set(name, batch)
    }
    // A key twice in a statement would bring its rows twice.
    const id = typeof key === 'string' ? key : key.id
    const place = batch.places.get(id) ?? { index: batch.keys.push(key) - 1, waiting: 0 }
    place.waiting += 1
    batch.places.set(id, place)
    return (await batch.answer)[place.index]!
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
