import pg from 'pg'

/** Collects the text of every statement that goes to `database` (by name) while `work` runs; what they bind goes to `bound`. */
export async function statementsDuring(
  database: string,
  work: () => Promise<unknown>,
  bound: unknown[][] = [],
): Promise<string[]> {
  const texts: string[] = []
  const { query } = pg.Client.prototype
  pg.Client.prototype.query = function (this: pg.Client & { database?: string }, ...args: unknown[]) {
    const [first] = args as [string | { text?: string; values?: unknown[] }]
    if (this.database === database) {
      texts.push(typeof first === 'string' ? first : (first.text ?? ''))
      bound.push(typeof first === 'string' ? [] : (first.values ?? []))
    }
    return Reflect.apply(query, this, args)
  } as typeof query
  try {
    await work()
  } finally {
    pg.Client.prototype.query = query
  }
  return texts
}
