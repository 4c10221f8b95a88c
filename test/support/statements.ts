import pg from 'pg'

/** Collects the text of every statement that goes to `database` (by name) while `work` runs; what they bind goes to `bound`, the rows that came of each as JSON to `returned`. */
export async function statementsDuring(
  database: string,
  work: () => Promise<unknown>,
  bound: unknown[][] = [],
  returned: string[] = [],
): Promise<string[]> {
  const texts: string[] = []
  const { query } = pg.Client.prototype
  pg.Client.prototype.query = function (this: pg.Client & { database?: string }, ...args: unknown[]) {
    const [first] = args as [string | { text?: string; values?: unknown[] }]
    const ours = this.database === database
    if (ours) {
      texts.push(typeof first === 'string' ? first : (first.text ?? ''))
      bound.push(typeof first === 'string' ? [] : (first.values ?? []))
    }
    const answer: unknown = Reflect.apply(query, this, args)
    if (ours && answer instanceof Promise)
      answer.then(({ rows }: { rows: unknown[] }) => returned.push(JSON.stringify(rows))).catch(() => {})
    return answer
  } as typeof query
  try {
    await work()
  } finally {
    pg.Client.prototype.query = query
  }
  return texts
}
